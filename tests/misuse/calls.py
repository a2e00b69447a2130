"""B, continued. Modules that are called in another way, or that are switched, after some steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tests.misuse.sensitivity import TOKENS, WITHIN, B, tokens
from tests.misuse.setting import CLASSES, CLIP, FEATURES, Private
from torch import Tensor, nn

from plrvo.training.probe import _FEW, ROWS
from plrvo.validate import InvalidArgument


class Pooled(nn.Module):
    """A layer without a rule, which is computed once more for each example, with weights of its tokens."""

    class Pool(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(FEATURES))

        def forward(self, x: Tensor, weights: Tensor) -> Tensor:
            return (x * self.scale * weights[..., None]).sum(dim=1)

    def __init__(self) -> None:
        super().__init__()
        self.first, self.pool, self.out = nn.Linear(FEATURES, FEATURES), self.Pool(), nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        return self.out(self.pool(self.first(x), weights))  # type: ignore[no-any-return]


for _shape, _one in {"(1, T)": torch.ones(1, TOKENS), "(T)": torch.ones(TOKENS)}.items():

    @B.row(
        f"give a layer without a rule weights {_shape} for all examples in one step, and (B, T) in a later one",
        "works: each example is computed with its own row, and moves the sum by one clip at most",
        modes=("hooks", "exact"),
    )
    def rows_in_later_calls(mode: str, one: Tensor = _one) -> None:
        x, y = (t[:20] for t in tokens().tensors)
        weights = torch.ones(20, TOKENS)
        weights[0] = -1000.0
        found = []
        for start in (0, 1):
            torch.manual_seed(1)
            run = Private(mode, Pooled(), examples=tokens())

            def called(x: Tensor, given: Tensor, module: Any = run.module) -> Any:
                return module(x, given)

            run.released(x, y, forward=lambda x, called=called: called(x, one))
            found.append(
                run.released(x[start:], y[start:], forward=lambda x, called=called: called(x, weights[-len(x) :]))
            )
        assert float((found[0] - found[1]).norm()) / CLIP <= WITHIN


OFF = 2  # steps in which examples are kept apart


class Asked(nn.Module):
    """Mixes examples when it is asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.out = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES)

    def forward(
        self, x: Tensor, task: str = "a", weights: Tensor | None = None, step: int = 0, setting: Any = None
    ) -> Tensor:
        h = torch.tanh(self.first(x))
        if weights is not None:
            h = h * (weights / weights.mean())[:, None]
        if task == "b" or step > OFF or (setting or {}).get("hard"):
            h = h - h.mean(dim=0)
        return self.out(h)  # type: ignore[no-any-return]


_ASKS: dict[str, Callable[[Any, Tensor, int], Any]] = {
    "a text": lambda m, x, step: m(x, task="a" if step < OFF else "b"),
    "a tensor that was not given before": lambda m, x, step: m(x) if step < OFF else m(x, weights=x[:, 0].exp()),
    "the number of the step": lambda m, x, step: m(x, step=step + 1),
    "that number as a tensor": lambda m, x, step: m(x, step=torch.tensor(step + 1)),
    "a flag within a dict": lambda m, x, step: m(x, setting={"hard": step >= OFF}),
    "a text in a second pass of a step": lambda m, x, step: m(x) if step < OFF else m(x) + m(x, "b"),
}

for _name, _ask in _ASKS.items():

    @B.row(
        f"have the forward mix examples after some steps, asked by {_name}",
        "refused before that pass: a module that is called in a new form is tried again",
        modes=("bookkeeping", "hooks"),
        error=InvalidArgument,
        match="mixes them",
    )
    def asked(mode: str, ask: Any = _ask) -> None:
        run = Private(mode, Asked())
        try:
            run.train(forward=lambda x: ask(run.module, x, run.optimizer.steps_taken))
        finally:
            assert run.optimizer.steps_taken == OFF


def _centred(h: Tensor) -> Tensor:
    return torch.tanh(h - h.mean(dim=0))


class Switched(nn.Module):
    """Mixes examples when an attribute says so."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.out = nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES)
        self.task, self.kind, self.of, self.function = "a", 1, None, torch.tanh
        self.middle.forward = lambda h: torch.tanh(h)  # type: ignore[method-assign]
        self.hook = self.middle.register_forward_hook(lambda m, args, output: output / 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.function(self.middle(self.first(x)))
        return self.out(h if (self.task, self.kind, self.of) == ("a", 1, None) else _centred(h))  # type: ignore[no-any-return]

    def hook_again(self) -> None:
        self.hook.remove()
        self.hook = self.middle.register_forward_hook(lambda m, args, output: _centred(output))


_SWITCHES: dict[str, Callable[[Any], Any]] = {
    "a text": lambda m: setattr(m, "task", "b"),
    "a number": lambda m: setattr(m, "kind", 2),
    "None": lambda m: setattr(m, "of", "others"),
    "a function": lambda m: setattr(m, "function", _centred),
    "a forward that was patched before": lambda m: setattr(m.middle, "forward", lambda h: _centred(h)),
    "a hook, one for another": lambda m: m.hook_again(),
}

for _name, _switch in _SWITCHES.items():

    @B.row(
        f"switch layers to mixing examples after some steps, by an attribute: {_name}",
        "refused before the next pass: a module that was changed is tried again",
        modes=("bookkeeping", "hooks"),
        error=InvalidArgument,
        match="mixes them|computed by example",
    )
    def switched(mode: str, switch: Any = _switch) -> None:
        run = Private(mode, Switched())

        def forward(x: Tensor) -> Any:
            if run.optimizer.steps_taken == OFF:
                switch(run.plain)
            return run.module(x)

        try:
            run.train(forward=forward)
        finally:
            assert run.optimizer.steps_taken == OFF


class Compared(nn.Module):
    """Scores by a table of classes that comes with the call."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, 4)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        return self.first(x) @ table.t()  # type: ignore[no-any-return]


@B.row(
    "give every call a table, or a mask, that is as large as the rows on which a module is tried are many",
    "works: what has no rows in the batch has none in a part of it",
    modes=("bookkeeping", "hooks"),
)
def as_large_as_a_try(mode: str) -> None:
    for size in (_FEW, ROWS):
        run = Private(mode, Compared())
        table = torch.linspace(-1, 1, size * 4).view(size, 4)
        run.train(steps=2, forward=lambda x, run=run, table=table: run.module(x, table))


class Attends(nn.Module):
    """Attends to a table that comes with the call."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.out = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        return self.out((self.first(x) @ table.t()).softmax(dim=1) @ table)  # type: ignore[no-any-return]


@B.row(
    "give the module a public table in some steps, and the batch itself in its place in a later one",
    "refused before that pass: what had another size is not taken for shared",
    modes=("bookkeeping", "hooks", "functorch"),
    error=InvalidArgument,
    match="mixes them",
)
def table_then_batch(mode: str) -> None:
    run = Private(mode, Attends())
    public = torch.linspace(-1, 1, 7 * FEATURES).view(7, FEATURES)

    def forward(x: Tensor) -> Any:
        return run.module(x, public if run.optimizer.steps_taken < OFF else x.clone())

    try:
        run.train(forward=forward)
    finally:
        assert run.optimizer.steps_taken == OFF
