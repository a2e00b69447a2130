"""What else a certificate rests on, tried out on this installation: tails, the generator, forks and the engine.

Each check says what it did and whether it came out as it must. Those that attack first attack something that is known
to be broken: an attack that fails there proves nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from plrvo.accounting import Plan, Workload
from plrvo.audit.noise_attacks import TWISTER_BITS, predicted_signs, tail_probabilities
from plrvo.noise import Keystream, Laplace, Noise

FALSE_ALARM = 1e-6  # of each statistical check
_DRAWS = 20_000
_LATER = 1024  # values whose signs are predicted
_STRIDE = 16


@dataclass(frozen=True)
class Checked:
    """One check: its name, what was done, and whether it came out as it must."""

    name: str
    what: str
    passed: bool

    def to_dict(self) -> dict[str, Any]:
        return {"checked": self.what, "passed": self.passed}


def checkup(noise: Noise, seed: int | None = None) -> list[Checked]:
    """All checks, for a noise of this shape."""
    keystream = Keystream() if seed is None else Keystream.from_seed(seed, "check-up")
    return [*_tails(noise, keystream), *_generator(noise, keystream), *_forks(), *_engine()]


def _tails(noise: Noise, keystream: Keystream) -> Iterator[Checked]:
    for depth in (1, 5):
        found = tail_probabilities(noise, _DRAWS, keystream, depth)
        yield Checked(
            f"tail_{20 * depth}_bits",
            f"{_DRAWS} draws from beyond the 2^-{20 * depth} quantile have the law of the tail",
            bool(stats.kstest(found, "uniform").pvalue > FALSE_ALARM),
        )


def _generator(noise: Noise, keystream: Keystream) -> Iterator[Checked]:
    import torch

    # Enough signs to find a recurrence of a twister's length, and a little more.
    count = _STRIDE * (2 * TWISTER_BITS + 200)
    twister = torch.randn(count + _LATER, generator=torch.Generator().manual_seed(5)).numpy()
    yield Checked(
        "prediction_of_a_twister",
        "the signs of a Mersenne twister's noise are predicted from those before: the attack works",
        _right_guesses(twister, count) == _LATER,
    )
    own = np.asarray(noise.sample(count + _LATER, keystream, np.float32))
    guessed = _right_guesses(own, count)
    yield Checked(
        "prediction_of_the_keystream",
        f"of {_LATER} signs of this installation's noise, {guessed} are guessed: chance",
        bool(stats.binomtest(guessed, _LATER).pvalue > FALSE_ALARM),
    )


def _right_guesses(noise: Any, seen: int) -> int:
    _, guesses = predicted_signs(noise[:seen], _LATER, _STRIDE)
    return int(np.count_nonzero(guesses == (noise[seen:] < 0)))


def _forks() -> Iterator[Checked]:
    if not hasattr(os, "fork"):
        return
    keystream = Keystream()
    drawn = [_in_a_child(lambda: int(keystream.words(1)[0])) for _ in range(2)]
    drawn.append(int(keystream.words(1)[0]))
    yield Checked("forks", "two forked children and their parent draw different noise", len(set(drawn)) == 3)


def _in_a_child(draw: Callable[[], int]) -> int:
    """The number that a forked child draws; a fork by hand, as that is what is asked."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        sender.send(draw())
        os._exit(0)
    os.waitpid(child, 0)
    return int(receiver.recv())


def _engine() -> Iterator[Checked]:
    import torch
    from torch import nn

    from plrvo.training.draws import BatchMismatch
    from plrvo.validate import InvalidArgument

    generator = torch.Generator().manual_seed(7)
    x, y = torch.randn(12, 5, generator=generator), torch.arange(12) % 3
    linear = nn.Linear(5, 3)
    expected = _sum_by_a_loop(linear, x, y)
    for mode in ("bookkeeping", "hooks"):
        found = _released(linear, x, y, mode)
        yield Checked(
            f"clipping_{mode}",
            f"the clipped sum of a batch ({mode}) is that of a loop over its examples",
            float((found - expected).norm()) < 1e-3 * _CLIP,
        )
    odd = x.clone()
    odd[0, 0] = float("nan")
    yield Checked(
        "not_a_number",
        "an example that is not a number contributes zero",
        bool(torch.isfinite(_released(linear, odd, y, "bookkeeping")).all()),
    )
    mixing = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3, affine=False))
    yield Checked(
        "mixing",
        "a layer that mixes examples is refused",
        _refused(lambda: _released(mixing, x, y, "bookkeeping"), InvalidArgument),
    )
    yield Checked(
        "own_batch",
        "a step on a batch that the engine did not draw is refused",
        _refused(lambda: _released(linear, x, y, "bookkeeping", drawn=False), BatchMismatch),
    )


_CLIP = 0.1


def _released(module: Any, x: Any, y: Any, mode: str, drawn: bool = True) -> Any:
    """What one step on this batch releases, at sum scale, under next to no noise."""
    import copy

    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    from plrvo.training import PrivacyEngine

    module = copy.deepcopy(module)
    work = Workload(1.0, 1, _CLIP, sum(p.numel() for p in module.parameters()))
    engine = PrivacyEngine(Plan.certify(Laplace(1e-6 * _CLIP), work, 1e-5))
    private, optimizer, _ = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
        data_loader=DataLoader(TensorDataset(x, y)),
        grad_sample_mode=mode,
        expected_batch_size=1,
    )
    if drawn:
        optimizer.draws.drawn(range(len(x)))
    with warnings.catch_warnings():
        # PyTorch's remark about the first layer, whose input needs no gradient.
        warnings.filterwarnings("ignore", message="Full backward hook is firing", category=UserWarning)
        loss: Any = nn.functional.cross_entropy(private(x), y)
        loss.backward()
    optimizer.pre_step()
    return torch.cat([p.grad.flatten() for p in optimizer.params])


def _sum_by_a_loop(module: Any, x: Any, y: Any) -> Any:
    import torch
    from torch import nn

    total = torch.zeros(sum(p.numel() for p in module.parameters()))
    for i in range(len(x)):
        loss = nn.functional.cross_entropy(module(x[i : i + 1]), y[i : i + 1])
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])
        total += gradient * min(1.0, _CLIP / float(gradient.norm()))
    return total


def _refused(attempt: Callable[[], Any], error: type[Exception]) -> bool:
    try:
        attempt()
    except error:
        return True
    return False
