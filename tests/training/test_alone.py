"""Examples that never meet: whatever module, loss and collate function do, one of them moves the sum by one clip."""

import copy
import functools
import itertools
import pickle
import threading
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.misuse.setting import CLASSES, CLIP, data, mlp
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

import plrvo
from plrvo import InvalidArgument
from plrvo.noise import Keystream
from plrvo.training import PrivacyEngine
from plrvo.training.alone import CollateAlone, FetchAlone
from plrvo.training.draws import BatchMismatch

X, Y = data().tensors


def plain(module: nn.Module, example: Any) -> Tensor:
    return cross_entropy(module(example[0]), example[1])


class Alone:
    """A module made private in this mode, with noise of a ten-thousandth of the clip."""

    def __init__(
        self,
        module: nn.Module,
        examples: Any,
        criterion: Any = plain,
        collate: Any = None,
        *,
        exact: bool = False,
        clipping: str = "flat",
        **options: Any,
    ) -> None:
        dimension = sum(p.numel() for p in module.parameters() if p.requires_grad)
        work = plrvo.Workload(sample_rate=0.5, steps=10, clip=CLIP, dimension=dimension)
        plan = plrvo.Plan.certify(plrvo.Laplace(1e-4 * CLIP), work, 1e-4, clipping=clipping)
        self.engine = PrivacyEngine(plan, exact=exact, grid=2.0**-30 if exact else None)
        self.examples, self.collate = examples, collate or torch.utils.data.default_collate
        self.module, self.optimizer, self.loader = self.engine.make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=DataLoader(examples, collate_fn=self.collate),
            grad_sample_mode="alone",
            criterion=criterion,
            noise_generator=Keystream(bytes(32)),
            sample_generator=Keystream(bytes(range(32))),
            steps_per_epoch=10,
            **options,
        )

    def released(self, rows: list[int]) -> Tensor:
        """What one step on these examples releases, at sum scale; they count as drawn."""
        self.optimizer.zero_grad()
        self.optimizer.draws.drawn(rows)
        self.module.backward([self.collate([self.examples[i]]) for i in rows])
        self.optimizer.pre_step()
        return torch.cat([p.grad.flatten().double() for p in self.optimizer.params]) * (
            self.optimizer.expected_batch_size
        )


def influence(module: nn.Module, examples: Any, criterion: Any = plain, collate: Any = None, rows: int = 12) -> float:
    """How far the release moves, in clips, when the first example leaves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both = [
            Alone(copy.deepcopy(module), examples, criterion, collate).released(list(range(start, rows)))
            for start in (0, 1)
        ]
    return float((both[0] - both[1]).norm()) / CLIP


@pytest.mark.parametrize("exact", [False, True])
def test_the_sum_is_that_of_a_loop_over_examples(exact: bool) -> None:
    module = mlp()
    run = Alone(copy.deepcopy(module), list(zip(X, Y, strict=True)), exact=exact)
    found = run.released(list(range(12)))

    expected = torch.zeros_like(found)
    for i in range(12):
        own = copy.deepcopy(module)
        cross_entropy(own(X[i : i + 1]), Y[i : i + 1]).backward()
        gradient = torch.cat([p.grad.flatten().double() for p in own.parameters()])
        expected += gradient * min(1.0, CLIP / float(gradient.norm()))
    assert float((found - expected).norm()) < 0.02 * CLIP  # noise of a ten-thousandth of the clip in a few hundred
    assert run.optimizer.steps_taken == 1


class Centred(nn.Module):
    """Takes the batch's mean away: batch normalisation written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.gate = mlp(), nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.where(x.isnan(), x.nanmean(0), x)
        return self.body(x + self.gate * (x - x.mean(0)) + x.mean(0))


class Remembering(nn.Module):
    """Adds what the last example has left behind, one by one and in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.last = mlp(), None
        self.register_buffer("seen", torch.zeros(X.shape[1]))

    def forward(self, x: Tensor) -> Tensor:
        before = self.seen.clone() if self.last is None else self.last
        self.last = x.detach().mean(0)
        self.seen += x.detach().mean(0)
        return self.body(x + before)


def outlier() -> list[Any]:
    """The first example is a thousand times as large as the others."""
    x = X.clone()
    x[0] *= 1000
    x[3, 0] = torch.nan
    return list(zip(x, Y, strict=True))


@pytest.mark.parametrize("module", [Centred, Remembering])
def test_what_a_module_makes_of_its_batch_reaches_no_other_example(module: Any) -> None:
    torch.manual_seed(0)
    assert influence(module(), outlier()) < 1.001


def test_what_a_loss_makes_of_its_batch_reaches_no_other_example() -> None:
    def normalised(module: nn.Module, example: Any) -> Tensor:
        outputs = module(example[0])
        return cross_entropy(outputs / (1e-3 + outputs.detach().std()), example[1]) * len(outputs)

    assert influence(mlp(), outlier(), normalised) < 1.001


class Reader(nn.Module):
    """A mean over all positions, padding included."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(50, 8), nn.Linear(8, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.words(ids).mean(dim=1))


def padded(examples: list[Any]) -> tuple[Tensor, Tensor]:
    ids, labels = zip(*examples, strict=True)
    return pad_sequence(list(ids), batch_first=True), torch.stack(labels)


def test_padding_to_the_longest_has_one_example_to_look_at() -> None:
    torch.manual_seed(0)
    examples = [(torch.randint(1, 50, (60 if i == 0 else 2 + i % 3,)), Y[i]) for i in range(12)]
    assert influence(Reader(), examples, collate=padded) < 1.001


def test_examples_of_several_shapes_are_all_in_the_step_and_an_empty_batch_takes_one() -> None:
    torch.manual_seed(0)
    examples = [(torch.randint(1, 50, (2 + i % 3,)), Y[i]) for i in range(40)]
    run = Alone(Reader(), examples, collate=padded)
    for batch in run.loader:
        run.optimizer.zero_grad()
        assert bool(torch.isfinite(run.module.backward(batch)))
        run.optimizer.step()
    assert run.optimizer.steps_taken == 10
    run = Alone(Reader(), examples, collate=padded)
    run.optimizer.draws.drawn([])
    assert float(run.module.backward([])) == 0.0
    run.optimizer.step()
    assert run.optimizer.steps_taken == 1


def test_a_step_without_its_batch_is_refused() -> None:
    run = Alone(mlp(), list(zip(X, Y, strict=True)))
    run.optimizer.draws.drawn(range(12))
    with pytest.raises(BatchMismatch):
        run.optimizer.step()
    run.module.backward([run.collate([run.examples[i]]) for i in range(11)])
    with pytest.raises(BatchMismatch):
        run.optimizer.step()


def test_another_objective_learns_nothing_beside_the_module() -> None:
    run = Alone(mlp(), list(zip(X, Y, strict=True)))
    cross_entropy(run.module(X[:12]), Y[:12]).backward()  # a plain pass: its gradients are dropped
    found = run.released(list(range(12)))
    expected = Alone(copy.deepcopy(run.module._module), run.examples).released(list(range(12)))
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"criterion": None}, "criterion=None"),
        ({"criterion": nn.CrossEntropyLoss()}, "criterion='CrossEntropyLoss'"),
        ({"batch_first": False}, "grad_sample_mode='alone'"),
    ],
)
def test_what_it_does_not_go_with_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        Alone(mlp(), list(zip(X, Y, strict=True)), **change)


def test_a_loss_of_several_numbers_and_a_collated_batch_are_refused() -> None:
    run = Alone(mlp(), list(zip(X, Y, strict=True)), lambda m, e: m(e[0]))
    run.optimizer.draws.drawn(range(4))
    with pytest.raises(InvalidArgument, match="criterion"):
        run.module.backward([run.collate([run.examples[i]]) for i in range(4)])
    with pytest.raises(InvalidArgument, match="examples"):
        run.module.backward((X[:4], Y[:4]))


def test_one_engine_one_wrapping_and_a_copy_is_under_none() -> None:
    run = Alone(mlp(), list(zip(X, Y, strict=True)))
    with pytest.raises(InvalidArgument, match="not private yet"):
        Alone(run.module._module, run.examples)
    Alone(copy.deepcopy(run.module._module), run.examples)
    assert isinstance(copy.deepcopy(run.module), nn.Sequential)  # for an average of the weights, say
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(run.module)


def test_parameters_that_are_unfrozen_later_are_refused() -> None:
    module = mlp()
    first = next(module.parameters()).requires_grad_(False)
    run = Alone(module, list(zip(X, Y, strict=True)))
    first.requires_grad_(True)
    with pytest.raises(InvalidArgument, match="trainable"):
        run.released(list(range(12)))


@pytest.mark.parametrize("clipping", ["per_layer", "automatic"])
def test_other_clippings_hold(clipping: str) -> None:
    module = mlp()
    both = [
        Alone(copy.deepcopy(module), outlier(), clipping=clipping).released(list(range(start, 12))) for start in (0, 1)
    ]
    assert 0.1 < float((both[0] - both[1]).norm()) / CLIP < 1.001


class Codes(nn.Module):
    """Keeps something of its examples in places that are no buffers."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.body, self.where, self.plain = mlp(), where, torch.zeros(X.shape[1])
        self.frozen = nn.Parameter(torch.zeros(X.shape[1]), requires_grad=False)
        self.count, self.layer = itertools.count(), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        before = self.frozen + self.plain.reshape(-1, X.shape[1]).mean(0)
        before = before + 100 * next(self.count) + (0.0 if isinstance(self.layer, nn.Identity) else 100.0)
        out = self.body(x + before.detach() + (0.0 if self.layer.training else 100.0))
        if self.where == "parameter":
            self.frozen += x.detach().mean(0)
        elif self.where == "new parameter":
            self.frozen = nn.Parameter(x.detach().mean(0), requires_grad=False)
        elif self.where == "grown":
            self.plain.data = torch.cat([self.plain.reshape(-1, X.shape[1]), x.detach()])
        elif self.where == "layer":
            self.layer = nn.Dropout(0.0)
        else:
            self.layer.training = float(x.sum()) > 1e3
        return out


@pytest.mark.parametrize("where", ["parameter", "new parameter", "grown", "layer", "mode"])
def test_no_example_finds_what_another_has_left_in_the_module_and_none_stays(where: str) -> None:
    torch.manual_seed(0)
    module = Codes(where)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    assert influence(module, outlier()) < 1.001
    run = Alone(module, list(zip(X, Y, strict=True)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run.released(list(range(12)))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items() if "frozen" in name)


class Shown:
    """Prints as any other of its kind."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __repr__(self) -> str:
        return f"Shown({tuple(self.x.shape)})"


@pytest.mark.parametrize("form", [Shown, lambda x: x.numpy(), lambda x: {"x": Shown(x)}])
def test_examples_are_told_apart_by_what_they_hold_and_not_by_how_they_print(form: Any) -> None:
    wide = torch.zeros(len(X), 1200)
    wide[:, 600 : 600 + X.shape[1]] = X  # NumPy prints no numbers in the middle of so many
    examples = list(zip(wide, Y, strict=True))

    def read(examples: list[Any]) -> tuple[Any, Tensor]:
        ((x, y),) = examples
        return form(x), y[None]

    def loss(module: nn.Module, example: Any) -> Tensor:
        x = example[0]["x"] if isinstance(example[0], dict) else example[0]
        x = torch.from_numpy(x) if not isinstance(x, Shown) else x.x
        return cross_entropy(module(x[None, 600 : 600 + X.shape[1]]), example[1])

    module = mlp()
    found = Alone(copy.deepcopy(module), examples, loss, read).released(list(range(12)))
    expected = Alone(copy.deepcopy(module), list(zip(X, Y, strict=True))).released(list(range(12)))
    assert float((found - expected).norm()) < 1e-4 * CLIP


def test_a_data_set_that_could_give_a_batch_is_asked_for_single_examples() -> None:
    class Batched:
        asked: list[int]

        def __len__(self) -> int:
            return 40

        def __getitems__(self, indices: list[int]) -> list[Any]:
            self.asked.append(len(indices))
            return [(X[i], Y[i]) for i in indices]

    examples = Batched()
    examples.asked = []
    run = Alone(mlp(), examples)
    next(iter(run.loader))
    assert set(examples.asked) == {1}


def test_an_example_that_fails_leaves_nothing_of_those_before_it() -> None:
    torch.manual_seed(0)
    examples = [(torch.randint(1, 50, (2 + i % 2,)), Y[i]) for i in range(12)]
    broken = [True]

    def loss(module: nn.Module, example: Any) -> Tensor:
        if broken[0] and example[0].shape[1] == 3:
            raise ValueError("a broken example")
        return plain(module, example)

    run = Alone(Reader(), examples, loss, padded)
    batch = [run.collate([example]) for example in examples]
    run.optimizer.draws.drawn(range(12))
    with pytest.raises(ValueError, match="a broken example"):
        run.module.backward(batch)
    assert run.optimizer.sums is None
    run.module.backward([example for example in batch if example[0].shape[1] == 2])  # without the broken ones
    with pytest.raises(BatchMismatch):
        run.optimizer.step()
    broken[0] = False
    run.module.backward(batch)
    run.optimizer.step()
    assert run.optimizer.steps_taken == 1


def test_examples_need_no_tensor() -> None:
    examples = [(f"{'a' * i}", int(Y[i])) for i in range(12)]

    def loss(module: nn.Module, example: Any) -> Tensor:
        text, label = example
        return cross_entropy(module(X[len(text)][None]), torch.tensor([label]))

    module = mlp()
    found = Alone(copy.deepcopy(module), examples, loss, lambda one: one[0]).released(list(range(12)))
    expected = Alone(copy.deepcopy(module), list(zip(X, Y, strict=True))).released(list(range(12)))
    assert float((found - expected).norm()) < 1e-4 * CLIP


def test_a_parameter_by_another_name_has_its_gradient_and_another_module_is_refused() -> None:
    class Aliased(nn.Module):
        def __init__(self, body: nn.Module) -> None:
            super().__init__()
            self.body = body
            self.weights = list(body.parameters())

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x) + sum(p.square().sum() for p in self.weights)

    examples, module = list(zip(X, Y, strict=True)), Aliased(mlp())
    labels = [torch.nn.functional.one_hot(y, CLASSES).float() for y in Y]
    squares = list(zip(X, labels, strict=True))

    def loss(module: nn.Module, example: Any) -> Tensor:
        return (module(example[0]) - example[1]).square().sum()

    found = Alone(copy.deepcopy(module), squares, loss).released([0])
    own = copy.deepcopy(module)
    loss(own, (X[:1], labels[0][None])).backward()
    expected = torch.cat([p.grad.flatten().double() for p in own.body.parameters()])
    expected *= min(1.0, CLIP / float(expected.norm()))
    assert float((found - expected).norm()) < 0.02 * CLIP
    other = mlp()
    with pytest.raises(InvalidArgument, match="the module that it is given"):
        Alone(mlp(), examples, lambda module, example: plain(other, example)).released([0])


class Shares(nn.Module):
    """A running mean of what it was given, reached by a way that every copy of it shares."""

    mean_of_all = torch.zeros(X.shape[1])

    def __init__(self, way: str) -> None:
        super().__init__()
        self.body, self.way = mlp(), way
        self.register_buffer("mean", torch.zeros(X.shape[1]))
        self.write = lambda x: self.mean.add_(x)
        self.kept = SimpleNamespace() if way != "object" else Uncopied()
        if way == "hook":
            self.body.register_forward_pre_hook(lambda module, args: self.keep(args[0]))

    def keep(self, x: Tensor) -> None:
        self.mean += x.detach().mean(0)

    def forward(self, x: Tensor) -> Tensor:
        seen = x.detach().mean(0)
        if self.way == "closure":
            self.write(seen)
        elif self.way == "class":
            Shares.mean_of_all = Shares.mean_of_all + seen
        elif self.way == "object":
            self.kept.mean = self.kept.mean + seen
        return self.body(x)


class Uncopied:
    def __init__(self) -> None:
        self.mean = torch.zeros(X.shape[1])

    def __deepcopy__(self, memo: Any) -> "Uncopied":
        return self


@pytest.mark.parametrize("way", ["closure", "hook", "class", "object"])
def test_what_copies_of_the_module_share_and_write_to_is_refused_before_the_step(way: str) -> None:
    run = Alone(Shares(way), list(zip(X, Y, strict=True)))
    with pytest.raises(InvalidArgument, match="passes of copies"):
        run.released(list(range(12)))
    assert run.module.book.is_empty


def test_a_call_in_the_loop_leaves_nothing_behind_in_the_module() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()
            self.register_buffer("mean", torch.zeros(X.shape[1]))

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                self.mean += x.detach().mean(0)
            return self.body(x)

    run = Alone(Counts(), list(zip(X, Y, strict=True)))
    run.released(list(range(12)))
    assert not run.module._module.mean.any()
    with pytest.raises(InvalidArgument, match="call eval"):
        run.module(X)
    run.module.eval()
    run.module(X)


def test_weights_that_forward_writes_to_are_a_copys() -> None:
    class Clamped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def forward(self, x: Tensor) -> Tensor:
            self.body[0].weight.data.clamp_(-0.01, 0.01)
            return self.body(x)

    module = Clamped()
    before = module.body[0].weight.detach().clone()
    assert influence(module, outlier()) < 1.001
    assert torch.equal(module.body[0].weight, before)


class SeesTheGroup(torch.autograd.Function):
    """Has a rule of its own for several at once, which takes their mean."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor) -> Any:
        return x + x.mean(dim=in_dims[0], keepdim=True), in_dims[0]


class Penalised(nn.Module):
    """Draws from a seed of its own, and has a penalty on weights by another name."""

    def __init__(self) -> None:
        super().__init__()
        self.body = mlp()
        self.decayed = list(self.body.parameters())

    def forward(self, x: Tensor) -> Tensor:
        x = x + torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
        return self.body(SeesTheGroup.apply(x)) + sum(p.square().sum() for p in self.decayed)


@pytest.mark.parametrize("size", [1e6, torch.nan])
def test_no_example_decides_how_others_are_computed(size: float) -> None:
    x = X.clone()
    x[0] *= size
    assert influence(Penalised(), list(zip(x, Y, strict=True)), rows=40) < 1.001


def test_dropout_is_drawn_from_secret_seeds_unless_the_run_is_seeded() -> None:
    module = nn.Sequential(nn.Linear(X.shape[1], 64), nn.Dropout(0.5), nn.Linear(64, CLASSES))

    def gradients(seeded: bool) -> Tensor:
        from plrvo.training.alone import AloneModule

        torch.manual_seed(0)
        alone = AloneModule(copy.deepcopy(module), criterion=plain, seeded=seeded)
        alone.backward([(X[i : i + 1], Y[i : i + 1]) for i in (0, 0)])
        return alone.book.contributions(next(alone.parameters()))[0].per_example()

    assert torch.equal(gradients(seeded=True), gradients(seeded=True))
    assert not torch.equal(gradients(seeded=False), gradients(seeded=False))
    first, second = gradients(seeded=True)
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    gradients(seeded=False)
    assert torch.equal(torch.get_rng_state(), before)


def test_examples_may_be_changed_in_place_and_share_what_the_collate_function_gives_all() -> None:
    table = torch.zeros(X.shape[1])

    def collate(examples: list[Any]) -> dict[str, Any]:
        x, y = torch.utils.data.default_collate(examples)
        return {"x": x, "labels": y, "table": table}

    def loss(module: nn.Module, example: Any) -> Tensor:
        labels = example.pop("labels")
        example["x"] /= 10
        example["table"] += example["x"][0]
        return cross_entropy(module(example["x"] + example["table"]), labels)

    assert influence(mlp(), outlier(), loss, collate) < 1.001
    assert not table.any()


def test_a_batch_that_is_taken_back_counts_once() -> None:
    run = Alone(mlp(), list(zip(X, Y, strict=True)))
    batch = [run.collate([run.examples[i]]) for i in range(12)]
    for zero_grad in (run.optimizer.zero_grad, run.module.zero_grad):
        run.optimizer.draws.drawn(range(12))
        run.module.backward(batch)
        zero_grad()
        run.module.backward(batch[:6])
        with pytest.raises(BatchMismatch):
            run.optimizer.step()
        run.optimizer.zero_grad()
        run.module.backward(batch)
        run.optimizer.step()
    assert run.optimizer.steps_taken == 2


def test_an_example_without_a_loss_contributes_nothing_and_the_original_may_not_learn() -> None:
    def loss(module: nn.Module, example: Any) -> Tensor:
        return plain(module, example) if example[1] == 0 else torch.zeros(())

    some = [i for i in range(12) if Y[i] == 0]
    module, examples = mlp(), list(zip(X, Y, strict=True))
    found = Alone(copy.deepcopy(module), examples, loss).released(list(range(12)))
    expected = Alone(copy.deepcopy(module), examples).released(some)
    assert float((found - expected).norm()) < 0.02 * CLIP

    class ByALambda(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.out = nn.Linear(X.shape[1], 8), nn.Linear(8, CLASSES)
            self.stages = [lambda x: self.first(x)]

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.stages[0](x))

    with pytest.raises(InvalidArgument, match="made private either"):
        Alone(ByALambda(), examples).released(list(range(12)))


def test_sparse_gradients_and_attributes_of_the_data_set() -> None:
    class Texts(list):
        words = 50

    class Sparse(Reader):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(50, 8, sparse=True)

    torch.manual_seed(0)
    examples = Texts((torch.randint(1, 50, (2 + i % 3,)), Y[i]) for i in range(40))
    run = Alone(Sparse(), examples, collate=padded)
    assert run.loader.dataset.words == 50
    assert bool(run.released(list(range(12))).isfinite().all())


def test_what_cannot_be_copied_is_refused_in_make_private() -> None:
    module = mlp()
    module.lock = threading.Lock()
    with pytest.raises(InvalidArgument, match="deepcopy"):
        Alone(module, list(zip(X, Y, strict=True)))


def _running_norm() -> Any:
    mean = torch.zeros(X.shape[1])

    def norm(x: Tensor) -> Tensor:
        nonlocal mean
        mean = mean + x.detach().mean(0)
        return x - mean

    return norm


def _with_a_default(x: Tensor, seen: list[Tensor] = []) -> Tensor:  # noqa: B006
    seen.append(x.detach().mean(0))
    return x - seen[0]


@functools.lru_cache(maxsize=2)
def _first_of(length: int) -> list[int]:
    return []


class ByAFunction(nn.Module):
    """Keeps something in a function, a cache, or a generator of its class."""

    numpy, torch, counter = np.random.default_rng(0), torch.Generator(), itertools.count()

    def __init__(self, way: str) -> None:
        super().__init__()
        self.body, self.way = mlp(), way
        self.norm = {"nonlocal": _running_norm(), "default": _with_a_default, "cache": _first_of}.get(way)
        if way == "hook":
            norm = _running_norm()
            self.body.register_forward_pre_hook(lambda module, args: (norm(args[0]),))

    def forward(self, x: Tensor) -> Tensor:
        if self.way in ("nonlocal", "default"):
            x = self.norm(x)
        elif self.way == "cache":
            self.norm(x.shape[0]).append(1)
        elif self.way == "numpy":
            x = x + float(self.numpy.normal())
        elif self.way == "torch":
            x = x + torch.randn(x.shape, generator=self.torch)
        elif self.way == "counter":
            x = x * next(self.counter)
        return self.body(x)


@pytest.mark.parametrize("way", ["nonlocal", "default", "cache", "hook", "numpy", "torch", "counter"])
def test_functions_and_generators_that_copies_share_are_looked_into(way: str) -> None:
    run = Alone(ByAFunction(way), list(zip(X, Y, strict=True)))
    with pytest.raises(InvalidArgument, match="passes of copies"):
        run.released(list(range(12)))
    run.optimizer.zero_grad()
    with pytest.raises(InvalidArgument, match="refused before"):  # what it left need not change a second time
        run.module.backward([run.collate([run.examples[0]])])


class Encodes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.seen = mlp(), None
        self.register_buffer("mean", torch.zeros(X.shape[1]))

    def encode(self, x: Tensor) -> Tensor:
        self.mean += x.detach().mean(0)
        return x

    def forward(self, x: Tensor) -> Tensor:
        self.seen = x.detach()
        return self.body(x)


def test_what_a_method_writes_in_the_loop_is_refused_and_an_evaluation_leaves_nothing() -> None:
    run = Alone(Encodes(), list(zip(X, Y, strict=True)))
    run.released(list(range(12)))
    run.module.eval()
    run.module(X)
    assert run.module._module.seen is None
    run.module.train()
    run.released(list(range(12)))
    run.module._module.encode(X)
    with pytest.raises(InvalidArgument, match="from step to step"):
        run.released(list(range(12)))


def test_what_is_written_before_a_refusal_is_taken_away() -> None:
    run = Alone(Shares("closure"), list(zip(X, Y, strict=True)))
    with pytest.raises(InvalidArgument):
        run.released(list(range(12)))
    assert not run.module._module.mean.any()


def test_data_sets_and_collate_functions_draw_from_secret_seeds() -> None:
    class Noisy(list):
        def __getitem__(self, i: Any) -> Any:
            torch.rand(100 if i == 0 else 1)  # one that draws more than others
            return float(torch.rand(())), int(i)

    def draw(seeded: bool) -> list[Any]:
        torch.manual_seed(0)
        data = FetchAlone(Noisy(range(4)), seeded)
        collate = CollateAlone(lambda examples: (examples[0], float(torch.rand(()))), seeded)
        return collate([data[i] for i in range(4)])

    assert draw(seeded=True) == draw(seeded=True)
    assert draw(seeded=False) != draw(seeded=False)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    draw(seeded=False)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("nothing", [0, 0.0, torch.tensor(0), torch.zeros(1)])
def test_a_missing_label_may_give_any_constant(nothing: Any) -> None:
    run = Alone(mlp(), list(zip(X, Y, strict=True)), lambda m, e: plain(m, e) if e[1] == 0 else nothing)
    assert bool(run.released(list(range(12))).isfinite().all())


@pytest.mark.parametrize("autocast", [False, True])
def test_halves_are_taken_where_no_example_stands_beside_another(autocast):
    """Frozen halves, or autocast: what is refused in a batch, where an example is rounded as others ask for."""
    low = nn.Linear(6, 5, dtype=torch.float32 if autocast else torch.bfloat16).requires_grad_(False)
    module = nn.ModuleDict({"low": low, "high": nn.Linear(5, 2)})

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = module

        def forward(self, x):
            return self.parts["high"](self.parts["low"](x.to(low.weight.dtype)).float())

    def loss(both, example):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            return nn.functional.cross_entropy(both(example[0]), example[1])

    both, engine = Both(), plrvo.PrivacyEngine()
    data = torch.utils.data.TensorDataset(
        torch.randn(20, 6, generator=torch.Generator().manual_seed(1)), torch.arange(20) % 2
    )
    private_module, optimizer, loader = engine.make_private(
        module=both,
        optimizer=torch.optim.SGD(module["high"].parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, batch_size=10),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        grad_sample_mode="alone",
        criterion=loss,
    )
    for examples in loader:
        optimizer.zero_grad()
        private_module.backward(examples)
        optimizer.step()
    assert len(engine.accountant) == 2
