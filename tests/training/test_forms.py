"""Calls of a module have another form where they may compute something else, and ordinary ones have few forms."""

import enum
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from opacus.optimizers import DPOptimizer
from tests.training.clipping.helpers import by_loop, squares
from torch import nn

from plrvo.training import watch
from plrvo.training.call import Call
from plrvo.training.clipping import BookkeepingMixin, BookkeepingModule, SamplesMixin, SamplesModule
from plrvo.training.forms import Forms
from plrvo.training.probe import probe
from plrvo.training.state import stirred


class Kind(enum.Enum):
    ONE = 1
    TWO = 2


X = torch.ones(6, 3)
CALLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "text": ({"task": "a"}, {"task": "b"}),
    "none": ({"mask": None}, {"mask": torch.ones(6)}),
    "given": ({}, {"mask": torch.ones(6)}),
    "flag": ({"hard": False}, {"hard": True}),
    "enum": ({"kind": Kind.ONE}, {"kind": Kind.TWO}),
    "number": ({"step": 1}, {"step": 2}),
    "float": ({"weight": 0.0}, {"weight": 0.5}),
    "within": ({"s": {"a": [1, "x"]}}, {"s": {"a": [1, "y"]}}),
    "object": ({"s": SimpleNamespace(task="a")}, {"s": SimpleNamespace(task="b")}),
    "one row": ({"mask": torch.ones(1, 3)}, {"mask": torch.ones(6, 3)}),
    "dimensions": ({"mask": torch.ones(6)}, {"mask": torch.ones(6, 3)}),
    "integers": ({"ids": torch.ones(6)}, {"ids": torch.ones(6, dtype=torch.long)}),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_may_switch_something_on_is_told_apart(name: str) -> None:
    forms, module = Forms(), nn.Linear(3, 2)
    one, other = (forms.of(module, Call((X,), kwargs, 6)) for kwargs in CALLS[name])
    assert one != other
    assert one == forms.of(module, Call((X,), CALLS[name][0], 6))


def test_ordinary_calls_have_few_forms() -> None:
    module = nn.Linear(3, 2)

    def count(**given: Any) -> int:
        forms = Forms()
        return len(
            {
                forms.of(
                    module, Call((torch.ones(i % 7 + 2, i % 5 + 1),), {k: f(i) for k, f in given.items()}, i % 7 + 2)
                )
                for i in range(1000)
            }
        )

    assert count() == 1
    assert count(rate=lambda i: 0.1 * i + 1) == 1
    assert count(step=lambda i: i) <= 16
    assert count(name=lambda i: f"batch {i}") <= 65
    assert count(a=lambda i: i * 7 % 11, b=lambda i: i * 5 % 13) <= 140
    assert count(lengths=lambda i: [*range(1, i % 7 + 3)]) == 1  # one for each example
    assert count(table=lambda i: {j: j for j in range(i)}) <= 3


class Squared(nn.Module):
    """Keeps examples apart in both of its forms."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.out = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, hard: bool = False) -> torch.Tensor:
        h = torch.tanh(self.first(x))
        return self.out(h.square() if hard else h)  # type: ignore[no-any-return]


class Both(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + self.inner(x, hard=True)  # type: ignore[no-any-return]


@pytest.mark.parametrize("wrapper", [BookkeepingModule, SamplesModule])
def test_a_new_form_in_a_second_pass_is_tried_and_the_first_pass_counts(wrapper: Any, monkeypatch: Any) -> None:
    tried: list[Any] = []

    def probed(*args: Any, **options: Any) -> Any:
        tried.append(args[1].kwargs)
        return probe(*args, **options)

    monkeypatch.setattr(watch, "probe", probed)
    monkeypatch.setattr(watch, "_MODULE_AGAIN", 1 << 60)
    module, x, clip = Squared(), torch.randn(6, 3), 0.5
    expected = by_loop(Both(module), x, clip)
    wrapped = wrapper(module)
    mixin: Any = BookkeepingMixin if wrapper is BookkeepingModule else SamplesMixin
    optimizer = type("Clipping", (mixin, DPOptimizer), {"clipping": "flat", "clip": clip, "clips": {}})(
        torch.optim.SGD(module.parameters(), lr=0.1), noise_multiplier=0.0, max_grad_norm=clip, expected_batch_size=1
    )
    optimizer.keep(wrapped.book)
    for _ in range(2):  # the forms of the second step are known
        outputs = wrapped(x) + wrapped(x, hard=True)
        squares(outputs).mean().backward()
        optimizer.sums = None
        optimizer.clip_and_accumulate()
        wrapped.book.clear()
        wrapped.watch.new_step()
        for found, e in zip(optimizer.sums, expected, strict=True):
            torch.testing.assert_close(found, e, rtol=1e-2, atol=1e-4)
        assert tried == [{}, {"hard": True}]
    wrapped.cleanup()


def test_what_had_no_gradient_is_tried_again_after_an_update_and_not_between_parts_of_a_step(monkeypatch: Any) -> None:
    tried = []

    def probed(*args: Any, **options: Any) -> Any:
        tried.append(options["again"])
        return probe(*args, **options)

    monkeypatch.setattr(watch, "probe", probed)
    monkeypatch.setattr(watch, "_MODULE_AGAIN", 1 << 60)
    module, x = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)), torch.randn(6, 3)
    nn.init.zeros_(module[1].weight)  # as an addition of low rank begins: what is before it has no gradient
    wrapped = BookkeepingModule(module)
    for last in (False, False, True, False, True):
        wrapped(x).square().sum().backward()
        wrapped.book.clear()
        wrapped.watch.new_step(last)
        if last:
            with torch.no_grad():
                module[1].weight += 1.0
    wrapped.cleanup()
    assert tried == [False, False]  # the first part of each step, whole both times; then it has one


def _made(scale: float) -> Any:
    return lambda x: scale * x


SWITCHES: dict[str, Callable[[Any, int], None]] = {
    "text": lambda m, i: setattr(m, "task", "ab"[i]),
    "none": lambda m, i: setattr(m, "mask", [None, "x"][i]),
    "enum": lambda m, i: setattr(m, "kind", [Kind.ONE, Kind.TWO][i]),
    "number": lambda m, i: setattr(m, "k", i + 1),
    "buffer": lambda m, i: m.register_buffer("k", torch.tensor(i + 1)),
    "function": lambda m, i: setattr(m, "act", [torch.relu, torch.tanh][i]),
    "what a function refers to": lambda m, i: setattr(m, "act", _made(1.0 * i)),
    "forward": lambda m, i: setattr(m, "forward", [lambda x: x, lambda x: x.sin()][i]),
    "mode": lambda m, i: m.train(bool(i)),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_layers_that_were_switched_are_told_apart(name: str) -> None:
    forms, found = Forms(), []
    module = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    for i in (0, 1, 0):
        SWITCHES[name](module[1], i)
        found.append(forms.of(module, Call((X,), {}, 6)))
    assert found[0] != found[1]
    assert found[0] == found[2]


def test_a_layer_in_the_place_of_another_is_told_apart() -> None:
    forms, module, found = Forms(), nn.Sequential(nn.Tanh()), set()
    for _ in range(5):
        module[0] = nn.Tanh()  # in the memory of one that is gone, perhaps
        found.add(forms.of(module, Call((X,), {}, 6)))
    assert len(found) == 5


def test_counters_and_functions_that_are_made_anew_have_few_forms() -> None:
    forms, module, found = Forms(), nn.Tanh(), set()
    for i in range(1000):
        module.steps, module.seen = i, i * 32  # type: ignore[assignment]
        module.function = lambda x: x + 1  # type: ignore[assignment]
        handle = module.register_forward_hook(lambda m, args, output: None)
        found.add(forms.of(module, Call((X,), {}, 6)))
        handle.remove()
    assert len(found) <= 24


def test_a_proxy_of_what_is_gone_is_not_looked_at() -> None:
    module, gone = nn.Tanh(), Forms()
    module.owner = weakref.proxy(gone)
    del gone
    Forms().of(module, Call((X,), {"owner": module.owner}, 6))


def test_weights_that_share_memory_are_what_they_were_after_a_try() -> None:
    """Stirred in pieces, of which the later ones have kept what the earlier ones wrote."""
    module = nn.Module()
    module.wide = nn.Parameter(torch.zeros(300_001).as_strided((300_000, 2), (1, 1)))
    one = nn.Parameter(torch.zeros(1))
    module.one, module.same = one, nn.Parameter(one.data)
    with stirred(module) as changed:
        assert changed
        assert bool((module.wide != 0).any())
    assert not bool((module.wide != 0).any())
    assert float(module.one.detach()) == float(module.same.detach()) == 0.0
