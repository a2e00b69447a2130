"""What a module keeps from one pass to the next: parameters, buffers, and whatever its attributes lead to.

All of it is copied and written with the module, and only parameters that train get noise. So nothing of it may depend
on examples (`unchanged`), and passes that are no steps leave it as it was.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from plrvo.noise.stretches import pieces
from plrvo.training.kept import Contents, Digest

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class State:
    """What a module keeps, modes and generators, to start every pass from."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._contents = Contents(module)
        self._modes = [(m, m.training) for m in module.modules()]
        self._device = next((p.device for p in module.parameters()), torch.device("cpu"))
        self.drew = False  # whether the pass that came last has drawn random numbers
        self.reseed()

    def reseed(self) -> None:
        """From now on passes draw from another seed, which nobody can have reckoned with."""
        self._seed = secrets.randbits(32)

    @contextmanager
    def fresh(self, seed: int | None = None) -> Iterator[int]:
        """As at the beginning, with generators in the same state each time, and as they were afterwards.

        Gives the seed of that state.
        """
        self.restore()
        hooks = self._hooks_on_parameters()
        seed = self._seed if seed is None else seed
        try:
            with generators_aside(self._device):
                seed_all(seed)
                before = _generators()
                yield seed
                self.drew = self._device.type == "cuda" or before != _generators()
        finally:
            for on_one, own in hooks:
                on_one.update(own)

    def _hooks_on_parameters(self) -> list[tuple[dict[int, Any], dict[int, Any]]]:
        """Take them off, to be put back: they hear of no step's gradients, so of no single row's in a try either."""
        found = [(on, dict(on)) for p in self._module.parameters() if (on := p._backward_hooks)]
        for on_one, _ in found:
            on_one.clear()
        return found

    def now(self) -> Digest:
        """What the module keeps, as it is at the moment."""
        return Digest(self._module)

    def restore(self) -> None:
        with torch.no_grad():
            self._contents.put_back()
        for m, training in self._modes:
            m.training = training


@contextmanager
def stirred(module: nn.Module) -> Iterator[bool]:
    """With random numbers for zeros, and for numbers that are all the same, in trainable parameters; tells if any are.

    A gate or a head that starts at zero hides what it is multiplied with until it has learned. Signs stay, and zeros
    become positive, as scales may have to be. Frozen parameters stay what they are. Written through `.data`, as no
    change of theirs is to be counted.
    """
    kept: list[tuple[Tensor, Tensor, Tensor]] = []
    generator = torch.Generator().manual_seed(secrets.randbits(60))
    try:
        for p in module.parameters():
            if p.requires_grad and p.numel() and _can_be_written(p):
                own = p.data
                alike = bool(own.amin() == own.amax())
                for piece in pieces(own):
                    where = torch.ones_like(piece, dtype=torch.bool) if alike else piece == 0
                    if bool(where.any()):
                        before = piece[where]
                        kept.append((piece, where, before))
                        drawn = 1 + torch.rand(len(before), generator=generator, dtype=torch.float64).to(own)
                        piece[where] = torch.where(before == 0, drawn / 2, before * drawn)
        yield bool(kept)
    finally:
        for piece, where, before in reversed(kept):  # memory that is in two of them was kept first as it was
            piece[where] = before


def _can_be_written(p: Tensor) -> bool:
    """Not what takes several places for one number: no optimizer can write to it either."""
    is_plain = p.is_floating_point() and p.layout == torch.strided and not p.is_meta
    return is_plain and torch._debug_has_internal_overlap(p) != 1


@contextmanager
def generators_aside(device: torch.device) -> Iterator[None]:
    """Afterwards torch's generator is as it was, and so are Python's and NumPy's: modules draw from those too."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def seed_all(seed: int) -> None:
    """Torch's, Python's and NumPy's."""
    seed_torch(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002


def seed_torch(seed: int) -> None:
    """`torch.manual_seed`, which without a device keeps the stack of every call for it: most of a small pass's time."""
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def sums(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """The sum of each tensor's bits, read as integers: a change of any number changes it."""
    return {
        name: 0 if t.is_meta or t.layout != torch.strided else _sum_of_bits(t.detach()) for name, t in tensors.items()
    }


def _sum_of_bits(t: Tensor) -> int:
    """A piece at a time: integers of 64 bits for all of it would take twice its room."""
    own = t.to_local() if isinstance(t, DTensor) else t  # the share that is here
    return sum(int(_bits(piece).sum(dtype=torch.int64)) for piece in pieces(own))


def _bits(t: Tensor) -> Tensor:
    t = torch.view_as_real(t) if t.is_complex() else t
    return t if t.dtype == torch.bool else t.contiguous().view(_INTEGERS[t.element_size()])


def _generators() -> Any:
    numpy: Any = np.random.get_state()  # noqa: NPY002
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), numpy[1].tobytes(), numpy[2:]
