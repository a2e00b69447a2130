"""Whole models: repeated and tied layers, what escapes the books, the choice that the engine makes."""

import copy
import warnings
from typing import Any

import pytest
import torch
from opacus.utils.batch_memory_manager import BatchMemoryManager
from tests.training.clipping.helpers import assert_equal_to_loop, by_books, by_loop
from tests.training.clipping.test_layers import normal, randomised
from tests.training.helpers import private, released, seeded, small_data, small_model, take_steps
from torch import nn

import plrvo
from plrvo.training.clipping import BookkeepingModule, unsupported_layers
from plrvo.training.clipping.contributions import Outer
from plrvo.validate import InvalidArgument

CLIPS = pytest.mark.parametrize("clip", [1e-3, 1.0, 1e4])


class Repeated(nn.Module):
    """One linear layer and one convolution used three and two times."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.linear = nn.Conv1d(3, 3, 3, padding=1), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.convolution(torch.tanh(self.convolution(x)))
        return self.linear(torch.tanh(self.linear(torch.tanh(self.linear(x)))))


class Tied(nn.Module):
    """A language model whose output layer is its embedding; positions are numbered once for all examples."""

    def __init__(self, vocabulary: int = 40, width: int = 6) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(10, width)
        self.inner, self.norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1])[None]
        x = self.words(tokens) + self.places(places)
        return self.head(self.norm(x + torch.tanh(self.inner(x))))


@CLIPS
def test_a_module_used_several_times(clip: float) -> None:
    assert_equal_to_loop(randomised(Repeated()), normal(4, 3, 8), clip)


@CLIPS
@pytest.mark.parametrize("count", [1, 4])
def test_tied_embeddings_and_shared_positions(clip: float, count: int) -> None:
    tokens = torch.randint(0, 40, (count, 7), generator=seeded(3))
    assert_equal_to_loop(randomised(Tied()), tokens, clip)


@CLIPS
def test_in_place_activations_and_residual_sums(clip: float) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1)
            self.norm = nn.GroupNorm(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = nn.functional.relu(self.norm(self.one(x)), inplace=True)
            y = self.two(y)
            y += x
            return nn.functional.relu(y, inplace=True)

    assert_equal_to_loop(randomised(nn.Sequential(Block(), Block())), normal(3, 2, 5, 5), clip)


@pytest.mark.parametrize("in_place", [False, True])
def test_the_gradient_of_a_layer_over_positions_is_handed_on_as_it_is(in_place: bool) -> None:
    """Its output is a view: autograd would copy the gradient of one that is written to, for others that look at it."""
    layer = nn.Linear(6, 4)
    wrapper = BookkeepingModule(nn.Sequential(nn.Identity(), layer, nn.ReLU(inplace=in_place)))
    given: list[Any] = []
    layer.register_forward_hook(lambda m, args, output: given.append(output.grad_fn))
    wrapper(normal(3, 5, 6))
    of_the_pass = given[-1]  # those before it are of tries
    assert of_the_pass.name() == "_TapBackward"
    assert all("CopySlices" not in node.name() for node in _graph_of(of_the_pass))


def _graph_of(node: Any) -> list[Any]:
    return [node, *(n for below, _ in node.next_functions if below is not None for n in _graph_of(below))]


@pytest.mark.parametrize("clip", [1e-3, 1e4])
def test_a_gradient_that_is_not_in_order(clip: float) -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(6, 5), nn.Linear(5, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(torch.tanh(self.one(x))).transpose(1, 2)

    assert_equal_to_loop(randomised(Turned()), normal(4, 3, 6), clip)


def test_a_parameter_that_the_loss_does_not_depend_on_gets_zero() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    found = by_books(randomised(Unused()), normal(4, 3), 1.0)
    assert [bool(f.any()) for f in found] == [True, True, False, False]


def test_sum_and_mean_losses_agree() -> None:
    module = randomised(Repeated())
    for mean, total in zip(
        by_books(module, normal(4, 3, 8), 1.0), by_books(module, normal(4, 3, 8), 1.0, reduction="sum"), strict=True
    ):
        assert torch.allclose(mean, total, rtol=1e-4, atol=1e-6)


def test_no_norm_is_reported_too_small_where_terms_cancel() -> None:
    """Opposite tokens leave a gradient 1e-4 of its terms: the ghost norm in single precision has lost it by then."""
    generator = seeded(4)
    for trial in range(200):
        count, width = 2 + trial % 40, 64
        left = torch.randn(8, count, width, generator=generator)
        left[:, 1::2] = left[:, 0 : count - count % 2 : 2]
        right = torch.randn(8, count, width, generator=generator)
        right[:, 1::2] = -right[:, 0 : count - count % 2 : 2] * (1 + 1e-4 * (trial % 3))
        if count % 2:
            right[:, -1] = 0
        exact = (left.double().transpose(1, 2) @ right.double()).square().sum(dim=(1, 2))
        assert torch.all(Outer(left, right).squared_norms().double() >= exact * (1 - 1e-6))


@pytest.mark.parametrize(
    ("examples", "positions", "rows", "columns"),
    [(2, 3, 5, 7), (2, 3, 7, 5), (3, 40, 8, 2), (256, 1, 80, 78), (4, 64, 512, 64), (64, 16, 512, 16), (1, 1, 1, 1)],
)
def test_weighted_sums_are_those_of_the_gradients_whichever_factor_comes_first(
    examples: int, positions: int, rows: int, columns: int
) -> None:
    left, right = normal(examples, positions, rows), normal(examples, positions, columns, seed=1)
    factors = torch.rand(examples, generator=seeded(2), dtype=torch.float64)
    whole = torch.einsum("b,bti,btj->ij", factors, left.double(), right.double())
    total = Outer(left, right).weighted_sum(factors)
    assert total.is_contiguous()
    assert torch.linalg.norm(total - whole) <= 1e-5 * torch.linalg.norm(whole)


def test_a_parameter_used_without_its_layer_is_refused() -> None:
    class Escape(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) @ self.linear.weight

    wrapped = BookkeepingModule(Escape())
    with pytest.raises(InvalidArgument, match=r"linear\.weight.*not clipped"):
        wrapped(normal(2, 3)).sum().backward()


def test_a_layer_that_mixes_examples_with_positions_is_refused() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x.flatten(0, 1))

    with pytest.raises(InvalidArgument, match="10 rows in a batch of 2"):
        BookkeepingModule(Flat())(normal(2, 5, 3)).sum().backward()


def test_gradients_of_two_batches_do_not_mix() -> None:
    _, model, optimizer, loss, _ = private(mode="bookkeeping")
    x, y = small_data().tensors
    loss(model(x[:3]), y[:3]).backward()
    with pytest.raises(InvalidArgument, match=r"a second pass before.* backward\(\) is called once"):
        model(x[:3])
    optimizer.zero_grad()
    loss(model(x[:3]), y[:3]).backward()


def test_evaluation_leaves_the_books_alone() -> None:
    _, model, optimizer, loss, _ = private(mode="bookkeeping")
    x, y = small_data().tensors
    model.eval()
    loss(model(x), y).backward  # noqa: B018
    model.train()
    with torch.no_grad():
        model(x[:2])
    before = released(model, optimizer, loss, x[:3], y[:3])
    _, model, optimizer, loss, _ = private(mode="bookkeeping")
    assert torch.equal(before, released(model, optimizer, loss, x[:3], y[:3]))


def test_virtual_batches_release_what_one_batch_does() -> None:
    def weights(limit: int | None) -> torch.Tensor:
        _, model, optimizer, loss, loader = private(mode="bookkeeping", steps=5)
        if limit is None:
            take_steps(model, optimizer, loss, loader)
        else:
            with BatchMemoryManager(data_loader=loader, max_physical_batch_size=limit, optimizer=optimizer) as split:
                take_steps(model, optimizer, loss, split)
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    assert torch.allclose(weights(None), weights(4), atol=1e-6)


def test_per_layer_clipping_equals_opacus() -> None:
    x, y = small_data().tensors
    noise = plrvo.Laplace(1e-6)
    one, other = (
        released(*private(noise, mode=mode, clipping="per_layer", clip=0.3)[1:4], x[:9], y[:9])
        for mode in ("hooks", "bookkeeping")
    )
    assert torch.allclose(one, other, atol=2e-5)


def test_auto_keeps_books_where_every_layer_has_a_rule() -> None:
    engine, *_ = private(mode="auto")
    assert engine.grad_sample_mode == "bookkeeping"


def without_a_rule() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.RNNCell(4, 4))


def test_auto_falls_back_to_hooks_and_says_why() -> None:
    assert unsupported_layers(without_a_rule()) == ["2 (RNNCell)"]
    with pytest.warns(UserWarning, match=r"hooks instead of bookkeeping.*no rule for 2 \(RNNCell\)"):
        engine, *_ = private(mode="auto", module=without_a_rule())
    assert engine.grad_sample_mode == "hooks"
    engine, *_ = private(plrvo.Laplace(1.0), mode="auto", clipping="l1")  # without a word: there is no other mode
    assert engine.grad_sample_mode == "hooks"


class Kept(nn.Module):
    """What a hook has kept of a layer's output goes into the model's own, beside what the next layer makes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)
        self.first.register_forward_hook(lambda layer, inputs, output: self.kept.append(output))
        self.kept: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept.clear()
        second = self.second(torch.tanh(self.first(x)))
        return second + self.kept.pop()[..., :3]


@CLIPS
@pytest.mark.parametrize("shape", [(5, 4), (5, 3, 4)])
def test_an_output_that_a_hook_has_kept_is_the_one_that_is_looked_at(clip: float, shape: tuple[int, ...]) -> None:
    """Of layers over positions it is a view, which would be exchanged if nobody else had it."""
    assert_equal_to_loop(randomised(Kept()), normal(*shape), clip)


def test_bookkeeping_that_was_asked_for_is_not_replaced() -> None:
    with pytest.raises(InvalidArgument, match="no rule for 2"):
        private(mode="bookkeeping", module=without_a_rule())


def test_the_module_is_itself_again_after_cleanup() -> None:
    module = small_model()
    before = copy.deepcopy(module.state_dict())
    wrapped = BookkeepingModule(module)
    plain: Any = wrapped.to_standard_module()
    x, y = small_data().tensors
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.CrossEntropyLoss()(plain(x), y).backward()
    assert all(p.grad is not None for p in module.parameters())
    assert all(torch.equal(before[k], v) for k, v in plain.state_dict().items())


def test_a_failing_layer_keeps_its_parameters() -> None:
    module = nn.Linear(3, 2)
    weight = module.weight
    with pytest.raises(RuntimeError):
        BookkeepingModule(module)(normal(2, 5))
    assert module.weight is weight


def test_loop_and_books_disagree_when_clipping_is_broken() -> None:
    """The comparison can fail: a sum clipped at twice the norm is seen."""
    module, x = randomised(nn.Linear(3, 2)), normal(4, 3)
    assert not all(
        torch.allclose(a, b, rtol=1e-2)
        for a, b in zip(by_books(module, x, 2e-3), by_loop(module, x, 1e-3), strict=True)
    )


class Twice(nn.Module):
    """One layer called twice: a few positions as factors, many as gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.linear(x[:, :4]), self.linear(0 * x[:, 4:])], dim=1)


def _cancelling(positions: int) -> torch.Tensor:
    """One example whose first three positions are huge and add up to nothing, among others of zeros."""
    x = torch.zeros(5, positions, 64)
    one, two = torch.randn(2, 64, generator=torch.Generator().manual_seed(0)) * 1e9
    x[0, 0], x[0, 1], x[0, 2] = one, two, -(one + two)
    return x


@pytest.mark.parametrize("module", [Twice(), nn.Linear(64, 64, bias=False)], ids=["twice", "once"])
def test_parts_that_cancel_are_released_within_the_clip(module: nn.Module) -> None:
    weights = (torch.arange(68) < 3).float()

    def loss(output: torch.Tensor) -> torch.Tensor:
        return (output.float() * weights[:, None]).sum(dim=(1, 2))

    (released,) = by_books(module, _cancelling(68), 1.0, loss=loss)
    assert released.double().norm() <= 1


def test_examples_that_hide_huge_parts_do_not_move_the_rounding_of_others() -> None:
    """With and without one example, beside a thousand whose parts cancel: the sums differ by its clip at most."""
    generator = torch.Generator().manual_seed(1)
    half = (torch.rand(1000, 8, 64, generator=generator) + 0.5) * 1e6
    others = torch.cat([half, -half], dim=1)
    one = torch.zeros(1, 16, 64)
    one[0, 0] = torch.randn(64, generator=generator) * 10

    def summed(x: torch.Tensor) -> torch.Tensor:
        module = nn.Linear(64, 64, bias=False)
        return by_books(module, x, 1.0, loss=lambda y: y.sum(dim=(1, 2)), reduction="sum")[0].double()

    assert (summed(torch.cat([one, others])) - summed(others)).norm() <= 1 + 1e-3


def test_a_factor_that_singles_cannot_hold_leaves_the_example_out() -> None:
    x = torch.full((1, 4), 2.0**50)
    (released,) = by_books(nn.Linear(4, 4, bias=False), x, 1e-12, loss=lambda y: y.sum(dim=1) * 2.0**47)
    assert released.double().norm() <= 1e-12
