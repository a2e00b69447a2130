"""The engine: `opacus.PrivacyEngine` with any noise and a certified account."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import opacus
import torch
from opacus.data_loader import DPDataLoader
from opacus.validators import ModuleValidator
from opacus.validators.errors import UnsupportedModuleError
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from plrvo.accounting import Clipping, Epsilon, Plan, Workload
from plrvo.accounting.exact import on_grid
from plrvo.noise import Keystream, Laplace, Noise
from plrvo.records import derived
from plrvo.training import accountant, checkpoint, given
from plrvo.training.attention import with_masks
from plrvo.training.clipping import BookkeepingModule, SamplesModule, unsupported_layers
from plrvo.training.draws import Draws, WorkersLoader
from plrvo.training.exact import check_exact
from plrvo.training.ftrl import setup as ftrl
from plrvo.training.ftrl.optimizer import correlated_class
from plrvo.training.ftrl.order import OrderedBatches
from plrvo.training.loss_form import by_example
from plrvo.training.optimizer import optimizer_class
from plrvo.training.randomness import generator_for, same_in_all_processes
from plrvo.training.sampler import CollateEmpty, PoissonSampler, lengths_of, no_examples
from plrvo.training.unwrap import trained_parameters
from plrvo.training.watch import refuse_private
from plrvo.validate import InvalidArgument, positive, positive_integer, rate

# Opacus's other modes fail on the empty batches of Poisson sampling.
_GRAD_SAMPLE_MODES = ("auto", "bookkeeping", "hooks", "ghost")


class PrivacyEngine(opacus.PrivacyEngine):
    """Makes a model, an optimizer and a loader private, with the noise of a plan.

    Formal guarantees, for adding or removing one example:

    | what | where it comes from |
    |---|---|
    | sampling rate, clip, number of steps | the plan; the loader's own batch size and length are not looked at |
    | noise | the plan's object, added once to the clipped sum, before any division; from a cipher's keystream |
    | dimension | the number of trainable parameters; the plan's must be at least that |
    | sensitivity | rows are counted against the examples that were drawn; the module and the loss are tried out |
    | steps | counted by the optimizer; one more than the plan's budget covers is refused, as is one without its batch |
    | divisor | `expected_batch_size`, a public constant |

    The default divisor is the sampling rate times the size of the data set, which treats that size as public.

    A plan with a correlation visits the data in a checked order instead of sampling it, adds correlated noise, and has
    the adjacency zero-out (docs: correlated noise).

    `exact=True` works with integers from the clipped gradients on, and draws integer noise from a keystream that nobody
    can predict; `grid` is their unit. A plan whose noise is on a grid already is trained exactly without being told.
    """

    accountant: accountant.CertifiedAccountant

    def __init__(
        self,
        plan: Plan | None = None,
        *,
        postprocess: str | None = None,
        exact: bool = False,
        grid: float | None = None,
        secure_mode: bool = False,
    ) -> None:
        if secure_mode:
            raise InvalidArgument(
                "secure_mode", True, "False: Opacus's secure mode covers Gaussian noise only; exact=True covers others"
            )
        if grid is not None and not exact:
            raise InvalidArgument("grid", grid, "no width unless exact=True")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice to use the secure mode that was just refused
            super().__init__(accountant=accountant.CertifiedAccountant.mechanism())
        self._exact, self._grid = exact, grid
        if plan is not None and exact:
            plan = on_grid(plan, grid)
        self.plan = plan
        self.postprocess = postprocess
        self.sampler: PoissonSampler | OrderedBatches | None = None
        self.seeded = False  # whether noise or batches come from a generator that somebody may know
        self.workers = 0  # of the loader, which draw batches before their step comes
        self.grad_sample_mode: str | None = None  # the one that make_private chose
        if plan is not None:
            self.accountant.ledger = plan.ledger(0)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("plan", "accountant") and getattr(self, "sampler", None) is not None:
            raise InvalidArgument(name, type(value).__name__, "no change after make_private; make another engine")
        super().__setattr__(name, value)

    def make_private(
        self,
        *,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        data_loader: DataLoader[Any],
        criterion: nn.Module | None = None,
        clipping: str | None = None,
        grad_sample_mode: str = "auto",
        loss_reduction: str = "mean",
        expected_batch_size: int | None = None,
        noise_generator: torch.Generator | Keystream | None = None,
        sample_generator: torch.Generator | Keystream | None = None,
        batch_first: bool = True,
        public_loss_weights: bool = False,
    ) -> tuple[Any, ...]:
        """(module, optimizer, loader), or (module, optimizer, criterion, loader) in ghost mode, as in Opacus.

        Args:
            module: the model; layers that mix examples are refused.
            optimizer: any torch optimizer over parameters of the module.
            data_loader: says which data set and how to collate; batches are drawn anew by Poisson sampling, and sorted
                by length where the data set has `lengths`. Its `num_workers` draw ahead: 0 for a run with checkpoints.
            criterion: the loss that ghost mode returns, by example (cross entropy by default).
            clipping: the plan's, which need not be repeated; another one is refused (`plrvo.Clipping`).
            grad_sample_mode: how clipped sums are formed. "bookkeeping" takes one backward pass; "auto" is that where
                every layer has a rule for it, else Opacus's "hooks" (per-example gradients), with a warning that names
                the reason; "ghost" is book-keeping that returns a criterion, as Opacus's mode of that name does.
                `engine.grad_sample_mode` says which it is.
            loss_reduction: what the loss does over a batch, "mean" or "sum".
            expected_batch_size: the public divisor; round(sampling rate * size of the data set) by default.
            noise_generator: where noise comes from: a cipher's keystream, keyed by the operating system, by default. A
                seeded one makes a run repeatable, and not private against whoever knows the seed.
            sample_generator: where batches come from; likewise.
            batch_first: whether the first dimension of a batch is the example.
            public_loss_weights: whether you answer for it that nothing which weighs examples in the loss looks at the
                data: factors that change between steps (a schedule), and weights in a loss that cannot be carried out
                again (a backward function of its own). By default such losses are refused: the usual reason is a mean
                over tokens, or weights of the classes, of the batch.
        """
        plan = self._require_plan()
        plan.check_clipping(clipping)
        if grad_sample_mode not in _GRAD_SAMPLE_MODES:
            raise InvalidArgument("grad_sample_mode", grad_sample_mode, "one of " + ", ".join(_GRAD_SAMPLE_MODES))
        distributed = isinstance(
            module, (opacus.distributed.DifferentiallyPrivateDistributedDataParallel, DistributedDataParallel)
        )
        if not distributed and torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
            warnings.warn(
                "several processes, and a module that is not wrapped for them: each trains a model of its own and "
                "spends a budget of its own (opacus.distributed.DifferentiallyPrivateDistributedDataParallel)",
                stacklevel=2,
            )
        ftrl.refuse_what_is_not_covered(plan, data_loader, distributed)
        exact = plan.noise.cell > 0
        if exact:
            grad_sample_mode = check_exact(distributed, grad_sample_mode)
        noise_source = generator_for(exact, noise_generator, "noise_generator")
        sample_source = generator_for(exact, sample_generator, "sample_generator")
        self.seeded |= _is_known(noise_source) or _is_known(sample_source)
        dimension = self._checked_dimension(module, optimizer)
        self.grad_sample_mode = mode = _chosen_mode(grad_sample_mode, module, plan.clipping, batch_first)
        size = self._size_of(data_loader)
        batch_size = derived.expected_batch_size(plan, size) if expected_batch_size is None else expected_batch_size
        positive_integer(expected_batch_size=batch_size)
        draws = Draws()
        loader = self._private_loader(data_loader, size, sample_source, distributed, batch_first, draws)
        kind: Any = BookkeepingModule if mode == "bookkeeping" else SamplesModule
        wrapped = kind(
            module, batch_first=batch_first, loss_reduction=loss_reduction, public_loss_weights=public_loss_weights
        )
        processes = torch.distributed.get_world_size() if distributed else 1
        noisy_class: Any = optimizer_class(distributed, mode, exact)
        noisy = (correlated_class(noisy_class) if plan.correlation else noisy_class)(
            optimizer,
            noise=plan.noise,
            dimension=plan.clipping.coordinates(dimension),
            generator=noise_source,
            clipping=plan.clipping,
            clip=plan.workload.clip,
            accountant=self.accountant,
            sample_rate=plan.workload.sample_rate,
            draws=draws,
            watch=wrapped.watch,
            postprocess=self.postprocess,
            most_steps=plan.workload.steps if plan.epsilon is not None or plan.correlation else None,
            expected_batch_size=batch_size / processes,
            loss_reduction=loss_reduction,
        )
        if plan.correlation:
            key = ftrl.noise_key(noise_source)
            noisy.correlate(plan.correlation, plan.workload.steps, key, ftrl.handed_out(self.sampler))
        noisy.keep(wrapped.book)
        if grad_sample_mode != "ghost":
            return wrapped, noisy, loader
        return wrapped, noisy, by_example(criterion or nn.CrossEntropyLoss(), loss_reduction), loader

    def make_private_with_epsilon(
        self,
        *,
        module: nn.Module,
        target_epsilon: float,
        target_delta: float,
        epochs: float,
        max_grad_norm: float,
        sample_rate: float,
        noise: Noise | None = None,
        clipping: str = Clipping.flat,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """`make_private` with the smallest noise that certifies the budget over `epochs` passes.

        `noise` gives the shape (its width is fitted); Laplace by default. `clipping` is "flat" (l2), "per_layer" (l2,
        the clip split equally) or "l1" (Laplace noise only), and becomes the plan's. Unlike Opacus, the sampling rate
        is an argument: it is part of the guarantee and is not guessed from a loader.
        """
        if self.plan is not None:
            raise InvalidArgument("target_epsilon", target_epsilon, "an engine without a plan; this one has its budget")
        positive(epochs=epochs)
        rate(sample_rate=sample_rate)
        steps = max(1, math.ceil(epochs / sample_rate))
        dimension = trained_parameters(module)
        work = Workload(sample_rate=sample_rate, steps=steps, clip=max_grad_norm, dimension=dimension)
        shape = noise or Laplace(max_grad_norm)
        plan = Plan.fitted(shape, work, target_delta, target_epsilon, clipping=clipping)
        self.plan = on_grid(plan, self._grid) if self._exact else plan
        return self.make_private(module=module, **kwargs)

    @classmethod
    def get_compatible_module(cls, module: nn.Module) -> nn.Module:
        """With group normalisation, and attention made of linear layers, in the place of layers that are refused."""
        return with_masks(super().get_compatible_module(module))

    def epsilon(self, delta: float) -> Epsilon:
        """The bracket of all steps taken so far; `get_epsilon` gives its certified end."""
        return self.accountant.bracket(delta)

    def save_checkpoint(self, *, path: str | Path, module: nn.Module, optimizer: Any, extra: Any = None) -> None:
        """Weights, optimizer state, ledger and random streams in one file, written whole or not at all."""
        checkpoint.save(Path(path), self, module, optimizer, extra)

    def load_checkpoint(self, *, path: str | Path, module: nn.Module, optimizer: Any) -> Any:
        """Continue where `save_checkpoint` was called; returns its `extra`."""
        return checkpoint.load(Path(path), self, module, optimizer)

    def validate(self, *, module: nn.Module, optimizer: Any = None, data_loader: Any = None) -> None:
        """Refuse layers that mix examples, and name the fix."""
        if not module.training:
            raise InvalidArgument(
                "module", f"{type(module).__name__} in eval mode", "training mode: call module.train() first"
            )
        try:
            ModuleValidator.validate(module, strict=True)
        except UnsupportedModuleError as error:
            raise InvalidArgument(
                "module",
                type(module).__name__,
                f"layers that keep examples apart; PrivacyEngine.get_compatible_module"
                f"(module) replaces them where it can ({' '.join(str(error).split())})",
            ) from None

    def _require_plan(self) -> Plan:
        if self.plan is None:
            raise InvalidArgument("plan", None, "PrivacyEngine(plan), or make_private_with_epsilon")
        return self.plan

    def _checked_dimension(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> int:
        plan = self._require_plan()
        refuse_private(module)
        self.validate(module=module)
        given.check_module(module)
        given.check_optimizer(optimizer, module)
        dimension = trained_parameters(module)
        if dimension == 0:
            raise InvalidArgument("module", type(module).__name__, "one with trainable parameters")
        if not plan.covers(dimension):
            raise InvalidArgument(
                "dimension", plan.workload.dimension, f"at least {dimension}, the module's trainable parameters"
            )
        return dimension

    def _size_of(self, data_loader: DataLoader[Any]) -> int:
        try:
            return len(data_loader.dataset)  # type: ignore[arg-type]
        except TypeError:
            raise InvalidArgument(
                "data_loader", type(data_loader.dataset).__name__, "a data set that has a length"
            ) from None

    def _private_loader(
        self,
        loader: DataLoader[Any],
        size: int,
        generator: torch.Generator | Keystream,
        distributed: bool,
        batch_first: bool,
        draws: Draws,
    ) -> DataLoader[Any]:
        if self._require_plan().correlation is None:
            given.check_whole(loader)
        if isinstance(loader, DPDataLoader):
            raise InvalidArgument(
                "data_loader", "DPDataLoader", "a plain DataLoader; Poisson sampling is the engine's part"
            )
        self.workers = loader.num_workers
        plan, lengths = self._require_plan(), lengths_of(loader.dataset, size)
        if plan.correlation:
            self.sampler = ftrl.batches(plan, loader, size, generator, lengths, draws)
        else:
            if distributed:
                generator = same_in_all_processes(generator)
            self.sampler = PoissonSampler(
                size=size,
                sample_rate=plan.workload.sample_rate,
                steps=plan.workload.steps,
                generator=generator,
                rank=torch.distributed.get_rank() if distributed else 0,
                processes=torch.distributed.get_world_size() if distributed else 1,
                lengths=lengths,
                draws=draws,
            )
        # Collated once here, so that an empty batch has the form of a full one from the first step on.
        fetch = getattr(loader.dataset, "__getitems__", lambda indices: [loader.dataset[i] for i in indices])
        one = loader.collate_fn(fetch([0]))
        collate = CollateEmpty(loader.collate_fn, no_examples(one, dimension=0 if batch_first else 1))
        if not self.workers:
            return DataLoader(
                loader.dataset,
                batch_sampler=self.sampler,
                collate_fn=collate,
                pin_memory=loader.pin_memory,
                # A loader draws a seed for its workers; where it has none, not from the stream that dropout draws
                # from: a resumed run starts its loader once more, and must repeat its steps all the same.
                generator=torch.Generator(),
            )
        return WorkersLoader(
            loader.dataset,
            batch_sampler=self.sampler,
            collate_fn=collate,
            num_workers=loader.num_workers,
            generator=loader.generator,
            pin_memory=loader.pin_memory,
            worker_init_fn=loader.worker_init_fn,
            persistent_workers=loader.persistent_workers,
        )


def _chosen_mode(mode: str, module: nn.Module, clipping: Clipping, batch_first: bool) -> str:
    """Book-keeping where it can work; what prevents it is an error if it was asked for, else a warning."""
    if mode == "hooks":
        return mode
    unsupported = unsupported_layers(module)
    reason = (
        f"no rule for {', '.join(unsupported[:3])}{' and others' if len(unsupported) > 3 else ''}"
        if unsupported
        else "l1 norms need the gradients themselves"
        if clipping is Clipping.l1
        else "the example is not the first dimension"
        if not batch_first
        else None
    )
    if reason is None:
        return "bookkeeping"
    if mode != "auto":
        raise InvalidArgument("grad_sample_mode", mode, f"hooks, or auto: {reason}")
    warnings.warn(f"grad_sample_mode: hooks instead of bookkeeping, which is faster: {reason}", stacklevel=3)
    return "hooks"


def _is_known(generator: torch.Generator | Keystream) -> bool:
    """Whether somebody may know the seed: of a torch generator the caller does."""
    return not isinstance(generator, Keystream) or generator.fixed
