"""C. Steps that are what the ledger says."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from opacus.schedulers import ExponentialGradClip, ExponentialNoise
from opacus.utils.batch_memory_manager import BatchMemoryManager
from tests.misuse.row import ANY, Section
from tests.misuse.setting import CLASSES, CLIP, FEATURES, Private, data, mlp
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, SubsetRandomSampler

import plrvo
from plrvo.training import BudgetExhausted, PrivacyEngine
from plrvo.training.draws import BatchMismatch
from plrvo.training.loss_form import NotASum
from plrvo.validate import InvalidArgument

C = Section("C. Steps")


@C.row(
    "ignore the private loader and train on batches of one's own",
    "refused at the first step",
    error=BatchMismatch,
    match="without a batch",
)
def own_batches(mode: str) -> None:
    run = Private(mode)
    for x, y in DataLoader(data(), batch_size=30, shuffle=True):
        run.optimizer.zero_grad()
        functional.cross_entropy(run.module(x), y).backward()
        run.optimizer.step()


@C.row("take two steps on one batch", "refused at the second", error=BatchMismatch, match="without a batch")
def two_steps(mode: str) -> None:
    run = Private(mode)
    for x, y in run.loader:
        for _ in range(2):
            run.optimizer.zero_grad()
            functional.cross_entropy(run.module(x), y).backward()
            run.optimizer.step()


@C.row(
    "skip batches, by their loss or because they are empty",
    "refused at the next step: which batches take one must not depend on them",
    error=BatchMismatch,
    match="no step was taken",
)
def skipping(mode: str) -> None:
    run = Private(mode)
    for number, (x, y) in enumerate(run.loader):
        if number % 2:
            continue
        run.optimizer.zero_grad()
        functional.cross_entropy(run.module(x), y).backward()
        run.optimizer.step()


@C.row(
    "accumulate gradients over two batches",
    "refused",
    error=(BatchMismatch, ValueError),
    match="second pass|grad accumulation|rows",
)
def accumulating(mode: str) -> None:
    run = Private(mode)
    run.optimizer.zero_grad()
    for number, (x, y) in enumerate(run.loader):
        functional.cross_entropy(run.module(x), y).backward()
        if number % 2:
            run.optimizer.step()


@C.row(
    "tell the optimizer to skip steps (`signal_skip_step`), so that two batches count as one",
    "refused",
    error=BatchMismatch,
    match="no step was taken|rows in a step",
)
def joined(mode: str) -> None:
    run = Private(mode)
    run.optimizer.signal_skip_step(True)
    run.train()


@C.row("cut batches with Opacus's BatchMemoryManager", "works: parts of a batch are one step")
def cut(mode: str) -> None:
    run = Private(mode, steps=3)
    manager = BatchMemoryManager(data_loader=run.loader, max_physical_batch_size=7, optimizer=run.optimizer)
    with manager as parts:
        run.loader = parts
        run.train()
    assert len(run.engine.accountant) == 3


@C.row(
    "look at batches by `next(iter(loader))` and step on those that one likes, with workers or without",
    "not possible: a batch that has no step yet comes again",
    modes=("bookkeeping",),
)
def choosing(mode: str) -> None:
    for workers in (0, 1):
        run = Private(mode, steps=6, workers=workers)
        for taken in range(1, 4):
            looks = [next(iter(run.loader))[0] for _ in range(3)]
            assert all(torch.equal(look, looks[0]) for look in looks)
            run.train(1)
            assert len(run.engine.accountant) == taken
        run.train()
        assert len(run.engine.accountant) == 6  # left loops have cost no step


@C.row(
    "skip batches that workers have collated ahead",
    "refused at the next step, as without workers",
    modes=("bookkeeping",),
    error=BatchMismatch,
    match="no step was taken",
)
def skipping_ahead(mode: str) -> None:
    run = Private(mode, workers=1)
    for number, (x, y) in enumerate(run.loader):
        if number != 1:
            run.optimizer.zero_grad()
            functional.cross_entropy(run.module(x), y).backward()
            run.optimizer.step()


@C.row(
    "leave a loop between the parts of a batch, and begin another",
    "the batch comes again, whole; parts of it are not counted twice",
)
def left_between_parts(mode: str) -> None:
    run = Private(mode)
    x, y = (t[:20] for t in data().tensors)
    whole = Private(mode).released(x, y)
    batches = run.optimizer.draws.through(iter([list(range(20))]))
    next(batches)
    run.optimizer.signal_skip_step(True)
    functional.cross_entropy(run.module(x[:10]), y[:10]).backward()
    run.optimizer.step()
    next(run.optimizer.draws.through(iter([])))
    run.optimizer.zero_grad()
    functional.cross_entropy(run.module(x), y).backward()
    run.optimizer.pre_step()
    found = torch.cat([p.grad.flatten().double() for p in run.optimizer.params]) * run.optimizer.expected_batch_size
    assert float((found - whole).norm()) <= 0.01 * CLIP


@C.row(
    "change the sampler's rate, size or generator",
    "refused",
    error=InvalidArgument,
    match="sample_rate",
)
def resampled(mode: str) -> None:
    Private(mode).engine.sampler.sample_rate = 1.0


def _loader_row(does: str, loader: Any, match: str) -> None:
    @C.row(does, "refused: the engine samples all of a data set", error=InvalidArgument, match=match)
    def attempt(mode: str) -> None:
        run = Private(mode)
        module = mlp()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        run.engine.make_private(module=module, optimizer=optimizer, data_loader=loader())


_loader_row(
    "give a loader whose own sampler draws from a part of the data",
    lambda: DataLoader(data(), sampler=SubsetRandomSampler(range(10))),
    "SubsetRandomSampler.*Subset",
)
_loader_row(
    "give a loader with a batch sampler over a part of the data",
    lambda: DataLoader(data(), batch_sampler=BatchSampler(SubsetRandomSampler(range(10)), 5, False)),
    "SubsetRandomSampler.*Subset",
)
_loader_row(
    "give a loader with batches of one's own",
    lambda: DataLoader(data(), batch_sampler=[[0, 1], [2, 3]]),
    "list.*Subset",
)
_loader_row(
    "give a loader whose sampler is that of a smaller data set",
    lambda: DataLoader(data(), sampler=SequentialSampler(range(10))),
    "SequentialSampler.*Subset",
)


def _assign(name: str, value: Any) -> Any:
    def attempt(mode: str) -> None:
        setattr(Private(mode).optimizer, name, value)

    return attempt


for _name, _value in (
    ("max_grad_norm", 100.0),
    ("noise", plrvo.Laplace(1e-9)),
    ("noise_multiplier", 0.0),
    ("dimension", 1),
    ("generator", torch.Generator()),
    ("loss_reduction", "sum"),
    ("step_hook", None),
    ("most_steps", 10**9),
):
    C.row(f"assign to `optimizer.{_name}`", "refused", error=InvalidArgument, match=_name)(_assign(_name, _value))


@C.row("give the engine another plan or accountant", "refused", error=InvalidArgument, match="no change after")
def another_accountant(mode: str) -> None:
    from plrvo.training.accountant import CertifiedAccountant

    Private(mode).engine.accountant = CertifiedAccountant()


@C.row("empty the ledger of steps that were taken", "refused", error=InvalidArgument, match="that were taken")
def emptied(mode: str) -> None:
    run = Private(mode)
    run.train(2)
    run.engine.accountant.ledger = plrvo.Ledger()


@C.row(
    "load a checkpoint into an engine that has taken steps, or give it another ledger",
    "refused: those steps would be forgotten; a new engine resumes",
    error=InvalidArgument,
    match="released 2 steps already",
)
def loaded_over(mode: str) -> None:
    first, second = (Private(mode, steps=6, noise=plrvo.Laplace(10.0), epsilon=2.0) for _ in range(2))
    first.train(3)
    second.train(2)
    try:
        second.engine.accountant.load_state_dict(first.engine.accountant.state_dict())
    except InvalidArgument as refused:
        assert "that were taken" in str(refused)  # noqa: PT017
    with TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        first.engine.save_checkpoint(path=path, module=first.module, optimizer=first.optimizer)
        second.engine.load_checkpoint(path=path, module=second.module, optimizer=second.optimizer)


@C.row(
    "use Opacus's schedule of the clip, or any with a plan",
    "refused at its first step",
    error=InvalidArgument,
    match="max_grad_norm",
)
def clip_schedule(mode: str) -> None:
    ExponentialGradClip(Private(mode).optimizer, gamma=2.0).step()


@C.row(
    "use Opacus's schedule of the noise, or any with a plan", "refused", error=InvalidArgument, match="noise_multiplier"
)
def noise_schedule(mode: str) -> None:
    ExponentialNoise(Private(mode).optimizer, gamma=0.5).step()


@C.row("attach a step hook, which replaces the accountant in Opacus", "the hook is called; the account stays")
def hooked(mode: str) -> None:
    run = Private(mode, steps=4)
    seen: list[int] = []
    run.optimizer.attach_step_hook(lambda optimizer: seen.append(optimizer.steps_taken))
    run.train()
    assert seen == [1, 2, 3, 4]
    assert len(run.engine.accountant) == 4


def _second(run: Private, module: nn.Module) -> Private:
    other = copy.copy(run)
    other.module, other.optimizer, other.loader = run.engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(data()),
    )
    return other


@C.row(
    "call `make_private` again for another model, on the same budget",
    "works: all steps of the engine count, and one too many is refused",
    error=BudgetExhausted,
    match="at most 4",
)
def again(mode: str) -> None:
    run = Private(mode, steps=4, noise=plrvo.Laplace(10.0), epsilon=1.0)
    run.train(3)
    assert len(run.engine.accountant) == 3
    _second(run, mlp()).train()


@C.row("make the same module private twice", "refused", error=InvalidArgument, match="not private yet")
def wrapped_twice(mode: str) -> None:
    run = Private(mode)
    _second(run, run.plain)


@C.row("make the wrapper private once more", "refused", error=InvalidArgument, match="not private yet")
def wrapper_wrapped(mode: str) -> None:
    run = Private(mode)
    _second(run, run.module)


@C.row("go on after the last step of the budget", "refused before anything is released", error=BudgetExhausted)
def beyond(mode: str) -> None:
    run = Private(mode, steps=3, noise=plrvo.Laplace(10.0), epsilon=1.0)
    run.train()
    run.engine.sampler.remaining = 1  # a loader that would go on
    run.train()


@C.row(
    "go over the loader once more after the last step of the plan",
    "one clear error; an empty pass only where it was asked for",
    error=BudgetExhausted,
    match="after the last step",
)
def another_pass(mode: str) -> None:
    run = Private(mode, steps=3, noise=plrvo.Laplace(10.0), epsilon=1.0)
    run.train()
    run.train()


@C.row(
    "count on amplification for shuffled batches (`poisson_sampling=False`)",
    "refused: no account here holds for them",
    modes=ANY,
    error=InvalidArgument,
    match="no account here holds for shuffled batches",
)
def shuffled(mode: str) -> None:
    module = mlp()
    plrvo.PrivacyEngine().make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(data(), batch_size=20, shuffle=True),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
    )


@C.row(
    "go on from a checkpoint of Opacus's, or under another noise than the run had",
    "refused: the steps in it are not those of this mechanism",
    modes=ANY,
    error=InvalidArgument,
    match="written by another",
)
def another_noise(mode: str) -> None:
    first, second = (_counted(multiplier) for multiplier in (1.0, 2.0))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        first[0].save_checkpoint(path=path, module=first[1], optimizer=first[2])
        second[0].load_checkpoint(path=path, module=second[1], optimizer=second[2])


def _counted(multiplier: float) -> tuple[Any, Any, Any]:
    engine, module = plrvo.PrivacyEngine(), mlp()
    private, optimizer, _ = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(data(), batch_size=20),
        noise_multiplier=multiplier,
        max_grad_norm=1.0,
    )
    return engine, private, optimizer


@C.row(
    "unfreeze parameters after `make_private`",
    "refused at the next pass",
    error=InvalidArgument,
    match="trainable in make_private",
)
def unfreezing(mode: str) -> None:
    module = mlp()
    module[0].requires_grad_(False)
    run = Private(mode, module)
    run.train(1)
    module[0].requires_grad_(True)
    run.train()


@C.row(
    "add a parameter group after `make_private`",
    "refused at the next pass",
    error=(InvalidArgument, ValueError, RuntimeError, AttributeError),
)
def more_parameters(mode: str) -> None:
    run = Private(mode)
    extra = nn.Linear(CLASSES, CLASSES)
    run.plain.append(extra)
    run.optimizer.original_optimizer.add_param_group({"params": list(extra.parameters())})
    run.train()


@C.row("freeze parameters after `make_private`", "works; the dimension that was paid for stays")
def freezing(mode: str) -> None:
    module = mlp()
    run = Private(mode, module, steps=4)
    run.train(2)
    module[0].requires_grad_(False)
    run.train()
    assert len(run.engine.accountant) >= 3
    assert {work.dimension for _, work in run.engine.accountant.ledger.entries} == {83}


@C.row(
    "step with a GradScaler, which skips steps by gradients before the noise",
    "refused",
    error=(InvalidArgument, NotASum),
    match="GradScaler|by the tensor",
)
def scaler(mode: str) -> None:
    run = Private(mode)
    scaler = torch.amp.GradScaler("cpu")
    for x, y in run.loader:
        run.optimizer.zero_grad()
        scaler.scale(functional.cross_entropy(run.module(x), y)).backward()
        scaler.step(run.optimizer)


@C.row(
    "step with the original optimizer instead of the returned one",
    "refused: that step would have no noise",
    error=InvalidArgument,
    match="the optimizer that make_private returned",
)
def original_optimizer(mode: str) -> None:
    run = Private(mode)
    for x, y in run.loader:
        functional.cross_entropy(run.module(x), y).backward()
        run.optimizer.original_optimizer.step()


@C.row("look at `p.grad` between backward and step", "there is none: the batch's gradient is let go at once")
def peeking(mode: str) -> None:
    run = Private(mode)
    x, y = data().tensors
    functional.cross_entropy(run.module(x), y).backward()
    assert all(p.grad is None for p in run.plain.parameters())


@C.row("call the original module instead of the returned one", "the same steps: hooks are on the module itself")
def original_module(mode: str) -> None:
    x, y = (t[:20] for t in data().tensors)
    one, other = Private(mode), Private(mode)
    assert torch.equal(one.released(x, y), other.released(x, y, forward=other.plain))


@C.row(
    "train a deep copy of the private module",
    "refused at its first pass; a copy may be evaluated",
    error=InvalidArgument,
    match="a copy of it is not private",
)
def copied(mode: str) -> None:
    run = Private(mode)
    twin = copy.deepcopy(run.plain)
    twin.eval()
    twin(data().tensors[0])
    twin.train()
    run.train(forward=twin)


@C.row(
    "compute the loss from another model, so that no gradient arrives",
    "refused: the batch has no rows in the step",
    error=(BatchMismatch, ValueError),
    match="other rows|not initialized",
)
def other_model(mode: str) -> None:
    Private(mode).train(forward=mlp())


class Shifted(nn.Conv1d):
    """Overrides what `forward` calls, not `forward`."""

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(x, weight * 2, bias)


def _convolution(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (1, FEATURES)), layer, nn.Flatten(), nn.Linear(4 * 4, CLASSES))


@C.row(
    "override `_conv_forward`",
    "no rule is believed: a fallback, compared with autograd on the first batch; right, or refused",
)
def conv_override(mode: str) -> None:
    _right_or_refused(mode, _convolution(Shifted(1, 4, 3)))


@C.row("patch a layer's `forward` on the object", "right, or refused, likewise")
def patched(mode: str) -> None:
    module = mlp()
    layer = module[0]
    plain = layer.forward
    layer.forward = lambda x: 2 * plain(x)
    _right_or_refused(mode, module)


class Circular(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.scale = (
            nn.Conv1d(1, 4, 3, padding=1, padding_mode="circular"),
            nn.Parameter(torch.ones(1)),
        )
        self.out = nn.Linear(4 * FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.convolution(x[:, None]).flatten(1)) * self.scale


@C.row("have layers that Opacus's rules get wrong (circular padding)", "right, or refused on the first batch")
def circular(mode: str) -> None:
    _right_or_refused(mode, Circular())


def _right_or_refused(mode: str, module: nn.Module) -> None:
    x, y = (t[:8] for t in data().tensors)
    expected = []
    for i in range(len(x)):
        loss = functional.cross_entropy(module(x[i : i + 1]), y[i : i + 1])
        g = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))]).double()
        expected.append(g * min(1.0, CLIP / float(g.norm())))
    try:
        run = Private("auto" if mode == "bookkeeping" else mode, module)
        found = run.released(x, y)
    except InvalidArgument as refused:
        if "by example" in str(refused) or "no rule" in str(refused):
            return
        raise
    assert float((found - torch.stack(expected).sum(dim=0)).norm()) <= 0.01 * CLIP


@C.row(
    "write the model with `torch.save`, after backward, between the parts of a batch or after a step",
    "nothing on it is without noise",
)
def saved(mode: str) -> None:
    run = Private(mode, steps=2)
    manager = BatchMemoryManager(data_loader=run.loader, max_physical_batch_size=8, optimizer=run.optimizer)
    buffer = io.BytesIO()
    torch.save(run.plain, buffer)
    size, seen = buffer.tell(), 0
    with manager as parts:
        for x, y in parts:
            run.optimizer.zero_grad()
            run.optimizer.original_optimizer.zero_grad(set_to_none=True)
            functional.cross_entropy(run.module(x), y).backward()
            seen += _is_bare(run.plain, size)
            run.optimizer.step()
            seen += _is_bare(run.plain, size + 4 * 83)  # and the noisy gradient
    assert seen > 8  # parts of two batches


def _is_bare(module: nn.Module, size: int) -> bool:
    """Whether a file of the module is as small as one that never saw a batch, but for names and padding."""
    buffer = io.BytesIO()
    torch.save(module, buffer)
    found = [v for p in module.parameters() for v in vars(p).values() if isinstance(v, Tensor)]
    found += [v for m in module.modules() for v in vars(m).values() if isinstance(v, Tensor)]
    assert not found
    assert buffer.tell() < size + 2000
    return True


@C.row("interrupt a step by an error between its parts", "nothing without noise is kept")
def interrupted(mode: str) -> None:
    run = Private(mode)
    x, y = data().tensors
    run.optimizer.draws.drawn(range(59))
    functional.cross_entropy(run.module(x), y).backward()
    try:
        run.optimizer.step()
    except BatchMismatch:
        assert run.optimizer.sums is None
        assert run.optimizer.book.is_empty
        return
    raise AssertionError("60 rows passed as a batch of 59")


def _module_row(does: str, module: Any, match: str, **options: Any) -> None:
    @C.row(does, "refused in one line that says what to use instead", error=InvalidArgument, match=match)
    def attempt(mode: str) -> None:
        Private("auto" if mode == "bookkeeping" else mode, module(), **options).train()


def _compiled(module: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of parts of its own
        return torch.compile(module)


@C.row("make a compiled module private (`torch.compile`)", "works: with a warning, it is trained as it was written")
def compiled(mode: str) -> None:
    run = Private(mode, _compiled(mlp()))
    run.train()
    assert run.optimizer.steps_taken > 0


_module_row(
    "make a module private of which a part is compiled",
    lambda: nn.Sequential(_compiled(mlp()), nn.Linear(CLASSES, CLASSES)),
    "the whole module in torch.compile, or none of its parts",
)
_module_row("make a container private that has no forward", lambda: nn.ModuleDict({"a": mlp()}), "a forward of its own")


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(checkpoint(self.one, x.requires_grad_(), use_reentrant=True))


_module_row("checkpoint layers with `use_reentrant=True`", Checkpointed, "use_reentrant=False")


@C.row(
    "bring an optimizer that evaluates a closure many times (LBFGS)", "refused", error=InvalidArgument, match="LBFGS"
)
def closures(mode: str) -> None:
    module = mlp()
    optimizer = torch.optim.LBFGS(module.parameters())
    Private(mode).engine.make_private(module=module, optimizer=optimizer, data_loader=DataLoader(data()))


@C.row(
    "keep the checkpoint of a finished run with correlated noise and post-processing",
    "it holds no sums without noise",
    modes=ANY,
)
def finished_checkpoint(mode: str) -> None:
    from safetensors import safe_open

    from plrvo.accounting.correlated import CorrelatedLedger, Correlation, Participation, Tree

    module = mlp()
    work = plrvo.Workload(sample_rate=1.0, steps=6, clip=CLIP, dimension=83)
    correlation = Correlation(Tree(), Participation(steps_per_epoch=6))
    plan = plrvo.Plan.certify(plrvo.Laplace(1.0), work, 1e-4, correlation=correlation)
    engine = plrvo.PrivacyEngine(plan, postprocess="score")
    private, optimizer, loader = engine.make_private(
        module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1), data_loader=DataLoader(data())
    )
    with TemporaryDirectory() as folder:
        for step, (x, y) in enumerate(loader, start=1):
            optimizer.zero_grad()
            functional.cross_entropy(private(x), y).backward()
            optimizer.step()
            engine.save_checkpoint(path=Path(folder) / f"{step}", module=private, optimizer=optimizer)
        held = {}
        for step in (3, 6):
            with safe_open(Path(folder) / f"{step}", "pt") as file:
                held[step] = [name for name in file.keys() if name.startswith("stream.")]  # noqa: SIM118
    assert held[3]  # a run under way needs them, and its file is secret
    assert not held[6]
    assert isinstance(engine.accountant.ledger, CorrelatedLedger)


@C.row(
    "pickle or copy the optimizer, to draw its noise again",
    "refused",
    error=(TypeError, pickle.PicklingError, AttributeError),
)
def pickled(mode: str) -> None:
    copy.deepcopy(Private(mode).optimizer)


@C.row(
    "make two modules private under one engine, and save a checkpoint of one",
    "refused: the file would hold the other's sampler; an engine of its own for each keeps checkpoints",
    modes=ANY,
    error=InvalidArgument,
    match="an engine with 2 private modules",
)
def checkpoint_of_one_of_two(mode: str) -> None:
    engine, runs = PrivacyEngine(), []
    for _ in range(2):
        module = mlp()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        loader = DataLoader(data(), batch_size=10)
        made = engine.make_private(
            module=module, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
        )
        runs.append(made)
    engine.save_checkpoint(path="never-written", module=runs[0][0], optimizer=runs[0][1])
