"""Tries a module on a batch: are examples apart, and are their gradients right?

A list of layers that mix examples is never complete, and a rule for a layer's gradient is right only as long as nobody
has overridden what the layer does. Both can be tried, on a few rows of a batch (the first, the last, and others at
random), with every generator in the same state for both passes of a comparison, so that dropout falls alike:

- *apart*: the other rows are replaced by copies of one, and by themselves times 10,000, over 10,000, and not numbers
  (integers stay); that row's outputs must stay as they were, in every layer (a head that starts at zero hides what is
  before it), and so must what the module keeps (`state`). Also where some of that row's own numbers are none (missing
  values), and in rows as they came, if some have such numbers. And once more with random numbers for what is zero, or
  all the same, in trainable parameters: a gate that starts at zero hides what it is multiplied with;
- *ragged*: both of these once more with lengths, masks and padding that differ from row to row (`ragged`), as a first
  batch may have all of one length;
- *gradients*: those of each row alone, by plain autograd, must be what the wrapper computes for that row; and they must
  scale with the row's own loss exactly, and not with the others' (a hook on gradients may look at all of them).

A module that draws random numbers is compared under 16 seeds, which are secret and new in every try: a branch that it
takes with probability p is missed by one try with probability (1 - p)^16 at most, if it mixes all rows (1.5e-5 for a
half, 0.19 for a tenth). Which dimension of a layer's output has the rows is found by giving it one row more. A module
that was tried before is tried on fewer rows, under one seed, and with one extreme and one weighting at random.

Where nothing can be compared, the module is refused: what was not tried is not certified.
"""

from __future__ import annotations

import itertools
import math
import secrets
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from plrvo.noise.stretches import pieces
from plrvo.training.apart import ITSELF, Pass, Use, check_apart, closeness, compare_under_seed, passes
from plrvo.training.call import Call, Inputs
from plrvo.training.layout import Layout, layout_of
from plrvo.training.ragged import ragged
from plrvo.training.state import State, stirred, sums
from plrvo.training.structure import tensors_in
from plrvo.training.unchanged import refuse_parameters
from plrvo.validate import InvalidArgument

ROWS = 8  # of the batch
_FEW = 4  # for every seed but the first
_SEEDS = 16
_SIZES = (1.0, 100.0, 1e4, 1e8)  # of rows, for a loss of the module's own
_ANY_MODULE = ', or pass grad_sample_mode="functorch", which asks nothing of layers'
_FACTOR = 2.0**13  # so that products are exact
# Of one row, and of the others.
_WEIGHTINGS = ((1.0, _FACTOR), (1.0, 1 / _FACTOR), (_FACTOR, _FACTOR), (1 / _FACTOR, 1 / _FACTOR))


class Gradients(Protocol):
    """One parameter's gradients of each row, and of all rows together."""

    def __getitem__(self, row: int) -> Tensor: ...

    def total(self) -> Tensor: ...


# What the wrapper computes: from a function that gives the sum of all rows' scores, and the number of rows, to the
# gradients of each row.
PerExample = Callable[[Callable[[], Tensor], int], Mapping[nn.Parameter, Gradients]]


@dataclass(frozen=True)
class Tried:
    """What a try has found of the tensors that the module gives, by their places among them."""

    layouts: dict[int, Layout] = field(default_factory=dict)
    not_sums: set[int] = field(default_factory=set)  # numbers that are no sums over examples
    statistics: set[int] = field(default_factory=set)  # that change with other examples, and want no gradient
    learns: bool = False  # whether there is something to learn from
    silent: bool = False  # whether a parameter had no gradient, as all do behind a layer that starts at zero


def probe(
    module: nn.Module, call: Call, per_example: PerExample, reduction: str, inputs: Inputs, *, again: bool = False
) -> Tried:
    """Raise unless the module keeps examples apart and `per_example` gives their gradients."""
    try:
        return _probe(module, call, per_example, reduction, again)
    except Exception:
        # An input without rows may be as large as the batch by chance. That it has none, earlier passes have shown.
        shared = inputs.shared(call)
        if not shared:
            raise
        with suppress(Exception):
            return _probe(module, replace(call, shared=call.shared | shared), per_example, reduction, again)
        raise


def _probe(module: nn.Module, call: Call, per_example: PerExample, reduction: str, again: bool) -> Tried:
    state, weights = State(module), sums(dict(module.named_parameters()))
    # Where rows have numbers that are none, gradients tell nothing about the module.
    came, call = call.as_it_came(_FEW), call.finite()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the first step will say what there is to say
            few = call.some(_FEW if again else ROWS)
            if not passes(module, few, state):  # it takes no few rows: all of them, and its own error if those fail too
                few = call
                Pass(module, few, state)
            layouts = _check_apart(module, few, state, again)
            drew = state.drew
            if came is not None and passes(module, came, state):  # else the pass itself will say so
                _add_statistics(layouts, _check_apart(module, came, state, again=True))
            state.drew = drew
            for _ in range(0 if again else _SEEDS - 1):
                if not state.drew or call.rows < 2:
                    break
                state.reseed()
                compare_under_seed(module, few if few is call else call.some(_FEW), state, layouts)
            refuse_parameters(module, weights, sums(dict(module.named_parameters())))
            own = {place: found[0] for (name, _, place), found in layouts.items() if name == ITSELF and found}
            drew = state.drew
            silent = _compare_gradients(module, few, per_example, state, own, again)
            learns = silent is not None
            not_sums = _not_sums(module, few, reduction, state)
            if not again and (varied := ragged(few)) is not None and passes(module, varied, state):
                _add_statistics(layouts, _check_apart(module, varied, state, again=True))
                _compare_gradients(module, varied, per_example, state, own, again=True)
                not_sums |= _not_sums(module, varied, reduction, state)
            for _ in range(_SEEDS - 1 if drew and learns and not again and call.rows > 1 else 0):
                state.reseed()
                two = few if few is call else call.some(2)
                _compare_gradients(module, two, per_example, state, own, again, linearly=False)
            statistics = {place for (name, _, place), found in layouts.items() if name == ITSELF and not found}
            return Tried(own, not_sums, statistics, learns, bool(silent))
    finally:
        state.restore()


def _check_apart(module: nn.Module, call: Call, state: State, again: bool) -> dict[Use, list[Layout]]:
    """With its parameters as they are, and with others where they are zero, or all the same."""
    layouts, drew = check_apart(module, call, state, again), state.drew
    with stirred(module) as others:
        if others and passes(module, call, state):
            _add_statistics(layouts, check_apart(module, call, state, again))
    state.drew = drew
    return layouts


def _add_statistics(layouts: dict[Use, list[Layout]], others: dict[Use, list[Layout]]) -> None:
    layouts |= {use: [] for use, found in others.items() if not found}


@contextmanager
def passes_in_eval(module: nn.Module) -> Iterator[Callable[..., Any]]:
    """A function from a call (and a seed) to the module's outputs without dropout, always from the same state."""
    state = State(module)

    def outputs(call: Call, seed: int = 0) -> Any:
        with state.fresh(seed), torch.no_grad():
            module.eval()
            return module(*call.args, **call.kwargs)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield outputs
    finally:
        state.restore()


def _compare_gradients(module: nn.Module, call: Call, per_example: PerExample, *how: Any, **more: Any) -> int | None:
    """`_compare`; and once more where the wrapper fails and has another way to compute them, which must not fail."""
    try:
        return _compare(module, call, per_example, *how, **more)
    except Exception as error:
        another_way = getattr(per_example, "another_way", nullcontext)
        with suppress(Exception), another_way(error) as found:
            if found is True:
                return _compare(module, call, per_example, *how, **more)
        raise


def _compare(
    module: nn.Module,
    call: Call,
    per_example: PerExample,
    state: State,
    layouts: dict[int, Layout],
    again: bool,
    *,
    linearly: bool = True,
) -> int | None:
    """How many parameters have none; raises where they are not those of each row, or (`linearly`) do not scale.

    None if there are none to compare.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    generator = torch.Generator()

    def scores(tried: Call) -> Tensor | None:
        """One number for each row, its outputs weighed at random; one for all where the module gives numbers only."""
        generator.manual_seed(1)
        learned = [(i, t) for i, t in enumerate(tensors_in(module(*tried.args, **tried.kwargs))) if t.requires_grad]
        found = []
        for i, t in learned:
            layout = layout_of(t, layouts.get(i), tried.rows, tried.dimension)
            if layout is not None:
                rows = layout.by_row(t, tried.rows)
                found.append((rows * torch.randn(rows.shape[1], generator=generator).to(rows)).sum(dim=1).float())
        if learned and not found:
            found = [t.float().reshape(1) for _, t in learned if t.ndim == 0]
            if not found:
                what = "an output with a row for each example, to learn from"
                raise InvalidArgument("module", type(module).__name__, what)
        return torch.stack(found).sum(dim=0) if found else None

    def recorded(tried: Call, weights: Any = 1.0) -> Mapping[nn.Parameter, Gradients]:
        with state.fresh(), torch.enable_grad():
            return per_example(lambda: (_known(scores(tried)) * weights).sum(), tried.rows)

    def gone_back(score: Tensor) -> Iterator[Sequence[Any]]:
        for one in score:
            yield torch.autograd.grad(one, parameters, retain_graph=True, allow_unused=True)

    def alone() -> Generator[Sequence[Any], None, None]:
        """The gradients of one row after the other: all of them at once may not fit into memory."""
        with state.fresh(), torch.enable_grad():
            yield from gone_back(_known(scores(call)))

    with state.fresh(), torch.enable_grad():
        score = scores(call)
        if score is None:
            return None
        try:
            deque(itertools.islice(gone_back(score), 2), maxlen=0)  # which keeps none, while the next one comes
        except RuntimeError as error:
            raise InvalidArgument(
                "module",
                type(module).__name__,
                "layers that autograd can go back through more than once; checkpoints with use_reentrant=False "
                f"({' '.join(str(error).split())[:200]})",
            ) from None
        like = score.detach()
        del score
    if call.rows > 1:
        # So that what is looked up once for all rows is told from what is looked up for each.
        with suppress(Exception):
            recorded(call.one_more())
    found = recorded(call)
    heard, rows = set[int](), iter([None] if len(like) < call.rows else range(call.rows))
    with closing(alone()) as expected:
        for gradients in expected:
            row = next(rows)
            heard |= {i for i, g in enumerate(gradients) if g is not None and g.any()}
            name, apart = _furthest(module, gradients, _of_row(found, parameters, row))
            if name:
                raise InvalidArgument(
                    "module",
                    type(module).__name__,
                    f"layers whose gradients can be computed by example; that of {name} is off by {apart:.1%} of the "
                    "example's gradient. Its layer may be overridden, checkpointed (use_reentrant=False), or used "
                    "outside of its own call, or examples are not in the same order everywhere; freeze it"
                    + ("" if getattr(per_example, "is_whole", False) else _ANY_MODULE),
                )
            del gradients  # before those of the next row are there
    if call.rows > 1 and linearly:
        row = secrets.randbelow(call.rows)
        of_row = list(_of_row(found, parameters, row))
        del found
        for own, others in [secrets.choice(_WEIGHTINGS)] if again else _WEIGHTINGS:
            weights = torch.full_like(like, others)
            weights[row % len(weights)] = own
            name, apart = _furthest(module, of_row, _of_row(recorded(call, weights), parameters, row), own)
            if name:
                raise InvalidArgument(
                    "module",
                    type(module).__name__,
                    f"gradients that are computed by row, and linearly; that of {name} changes by {apart:.1%} with the "
                    "size of the gradients that go into the module (a hook that clips, normalises or averages them?)",
                )
    return len(parameters) - len(heard)


def _known(score: Tensor | None) -> Tensor:
    return torch.zeros(1) if score is None else score


def _of_row(
    gradients: Mapping[nn.Parameter, Gradients], parameters: list[nn.Parameter], row: int | None
) -> Iterator[Tensor | None]:
    """Of one row; of all together where there is none. One parameter after the other."""
    for p in parameters:
        found = gradients.get(p)
        yield None if found is None else found.total() if row is None else found[row]


def _furthest(
    module: nn.Module, expected: Sequence[Any], found: Iterable[Any], factor: float = 1.0
) -> tuple[str, float]:
    """The name of a parameter whose gradients are apart, and how far, relative to the example's gradient.

    Those expected are `factor` times what is given, a piece at a time: two more copies of all might not fit.
    """
    close = closeness(module)
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    norms = [0.0 if g is None else _length(factor * piece for piece in pieces(g.to_dense())) for g in expected]
    whole = sum(n * n for n in norms) ** 0.5
    for (name, p), a, b, norm in zip(named, expected, found, norms, strict=True):
        one, other = (pieces(p.new_zeros(()).expand_as(p) if g is None else g.to_dense()) for g in (a, b))
        difference = _length(factor * x - y for x, y in zip(one, other, strict=True))
        if difference > close * (norm + 0.1 * whole):
            return name, difference / max(whole, 1e-30)
    return "", 0.0


def _length(parts: Iterable[Tensor]) -> float:
    """The norm of a gradient that comes in parts."""
    return math.hypot(*(float(torch.linalg.vector_norm(part, dtype=torch.float64)) for part in parts))


def _not_sums(module: nn.Module, call: Call, reduction: str, state: State) -> set[int]:
    """Which of the numbers that the module computes and could be trained on are no sums (or means) over its examples.

    Told by their places among all such numbers. In training, with dropout falling alike, the difference that one row
    makes must be the same beside other rows, also where all are large: a term that couples them may be tiny on ordinary
    ones. And in eval(), where one row can stand alone, the rows must add up.
    """

    def numbers(tried: Call, *, training: bool) -> dict[int, float]:
        with state.fresh(), torch.enable_grad():
            if not training:
                module.eval()
            found = tensors_in(module(*tried.args, **tried.kwargs))
        return {place: float(t) for place, t in enumerate(found) if t.ndim == 0 and t.requires_grad}

    together, wrong = numbers(call, training=True) if call.rows > 1 else {}, set[int]()
    if not together:
        return wrong
    close = closeness(module)
    order = list(range(call.rows))
    for row, factor in itertools.product((0, call.rows - 1), _SIZES if call.has_floats else _SIZES[:1]):
        other = call.rows - 1 - row
        changed = [other if i == row else i for i in order]
        beside = [i if i == row else row for i in order]
        both = [other if i == row else row for i in order]
        sized = call.times(factor)
        if factor != 1 and not passes(module, sized, state):
            continue
        values = [numbers(sized.picked(rows), training=True) for rows in (order, changed, beside, both)]
        for place in together:
            a, b, c, d = (v.get(place, math.nan) for v in values)
            overflows = factor != 1 and not all(map(math.isfinite, (a, b, c, d)))
            if not overflows and not abs(a - b - c + d) <= close * max(map(abs, (a, b, c, d))) + 1e-6:
                wrong.add(place)
    whole = numbers(call, training=False)
    alone = [numbers(call.single(row), training=False) for row in range(call.rows)]
    for place, value in whole.items():
        total = sum(single.get(place, math.nan) for single in alone)
        expected = total / call.rows if reduction == "mean" else total
        if not abs(value - expected) <= close * abs(expected) + 1e-6:
            wrong.add(place)
    return wrong
