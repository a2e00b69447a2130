"""The engine: `opacus.PrivacyEngine` with any noise and a certified account."""

from __future__ import annotations

import math
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import opacus
import torch
from torch import nn
from torch.utils.data import DataLoader

from plrvo.accounting import Clipping, Epsilon, Plan, Workload
from plrvo.accounting.exact import on_grid
from plrvo.budget import Account, Charge
from plrvo.budget.address import Address
from plrvo.noise import Keystream, Noise
from plrvo.records import derived
from plrvo.records.choices import check_exact, check_mode
from plrvo.records.isolation import Isolation, by_mode, weakest
from plrvo.training import checkpoint, given
from plrvo.training import opacus_arguments as theirs
from plrvo.training.accountant import CertifiedAccountant
from plrvo.training.adaptive import asked_for
from plrvo.training.alone import ALONE, AloneModule, check_alone
from plrvo.training.averaging import WeightAverage
from plrvo.training.bound import refuse_private
from plrvo.training.clipping.mode import chosen_mode, wrapper_of
from plrvo.training.collated import Collated
from plrvo.training.compatible import compatible, mixing, refuse_mixing
from plrvo.training.draws import Draws
from plrvo.training.ftrl import setup as ftrl
from plrvo.training.ftrl.optimizer import correlated_class
from plrvo.training.loss_form import by_example
from plrvo.training.mechanism import Mechanism
from plrvo.training.optimizer import optimizer_class
from plrvo.training.private_loader import AnySampler, poisson_sampler, private_loader
from plrvo.training.randomness import generator_for, same_in_all_processes
from plrvo.training.sampler import size_of
from plrvo.training.sharded import shards_of
from plrvo.training.sharded_optimizer import check_layers, check_shards
from plrvo.training.together import check_together, is_distributed
from plrvo.training.unwrap import trained_parameters
from plrvo.validate import InvalidArgument, counted, positive, positive_integer, probability, rate, required


class PrivacyEngine(opacus.PrivacyEngine):
    """Makes a model, an optimizer and a loader private: as Opacus's engine does, or with the noise of a plan.

    Without a plan, `make_private` takes what Opacus's takes, and `get_epsilon` answers for the steps that were taken;
    `make_private_with_epsilon` makes a plan from a budget. Formal guarantees, for adding or removing one example:

    | what | where it comes from |
    |---|---|
    | sampling rate, clip | the plan; without one, 1 / the loader's length and `max_grad_norm` |
    | steps | the plan's, and no more; without one, as many as are taken, each of them counted |
    | noise | one object, added once to the clipped sum, before any division; from a cipher's keystream |
    | dimension | the number of trainable parameters; the plan's must be at least that, if its noise is not Gaussian |
    | sensitivity | rows are counted against the examples that were drawn; the module and the loss are tried out |
    | account | kept by the optimizer, step by step; a step without its batch is refused |
    | divisor | `expected_batch_size`, a public constant |

    The default divisor is the sampling rate times the size of the data set, which treats that size as public.

    A plan with a correlation visits the data in a checked order instead of sampling it, adds correlated noise, and has
    the adjacency zero-out (docs: correlated noise).

    Args:
        plan: noise, workload and budget, or the file of them; None to give `make_private` what Opacus's takes.
        postprocess: "score" or "clamp", free of privacy cost.
        average: the decay of an exponential average of the weights, which `averaged()` puts in their place for a while.
        exact: whether to work with integers from the clipped gradients on, and with integer noise from a keystream that
            nobody can predict. A plan whose noise is on a grid already is trained exactly without being told.
        grid: the unit of these integers; chosen by default.
        accountant: "plrvo", the only one.
        secure_mode: False; `exact` is in its place.
        budget: an account (`plrvo.budget.Account`, or its file or URL) that all of the plan is charged to in
            `make_private`; `settle` gives back the steps that were not taken.

    Raises:
        InvalidArgument: for what has no certificate; the message says what to do instead.
    """

    accountant: CertifiedAccountant

    def __init__(
        self,
        plan: Plan | Path | str | None = None,
        *,
        postprocess: str | None = None,
        average: float | None = None,
        exact: bool = False,
        grid: float | None = None,
        accountant: str = CertifiedAccountant.mechanism(),
        secure_mode: bool = False,
        budget: Account | Address | str | None = None,
    ) -> None:
        theirs.check_engine(accountant, secure_mode)
        if grid is not None and not exact:
            raise InvalidArgument("grid", grid, "no width unless exact=True")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice to use the secure mode that was just refused
            super().__init__(accountant=accountant)
        self._exact, self._grid = exact, grid
        plan = given.read_plan(plan)
        if plan is not None and plan.stages:
            raise InvalidArgument("plan", "stages", "a plan of one noise and clip; a schedule goes without a plan")
        if plan is not None and exact:
            plan = on_grid(plan, grid)
        self.budget = budget if isinstance(budget, Account | None) else Account(budget)
        self.charge: Charge | None = None  # what is reserved of it
        self.plan = plan
        self.postprocess = postprocess
        if average is not None:
            probability(average=average)
        self._decay = average
        self._average: WeightAverage | None = None
        self.mechanism: Mechanism | None = None  # what the steps of the last make_private release
        self.size: int | None = None  # of the data set of the last make_private
        self.times_made = 0  # how often make_private was called: steps of all of them are in one ledger
        self.sampler: AnySampler | None = None
        self.seeded = False  # whether noise or batches come from a generator that somebody may know
        self.isolation: Isolation | None = None  # why no example changes another's gradient, in all steps so far
        self.workers = 0  # of the loader, which draw batches before their step comes
        self._mode: str | None = None  # the one that make_private chose
        self._wrapped: Callable[[], Any] = lambda: None  # the last module that was made private, held by its owner
        if plan is not None:
            self.accountant.ledger = plan.ledger(0)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("plan", "accountant") and getattr(self, "sampler", None) is not None:
            raise InvalidArgument(name, type(value).__name__, "no change after make_private; make another engine")
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        """What each step releases and how many were taken; an epsilon takes an account, and is asked for by itself."""
        mechanism = self.mechanism or (Mechanism.of(self.plan) if self.plan else None)
        steps = len(self.accountant)
        taken = f"{steps} of {self.plan.workload.steps} steps" if self.plan else counted(steps, "step")
        if mechanism is None:
            return f"{type(self).__name__}(without a plan, {taken} taken)"
        return f"{type(self).__name__}({mechanism}, {taken} taken{given.told_budget(self.plan)})"

    def make_private(
        self,
        *,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        data_loader: DataLoader[Any],
        noise_multiplier: float | None = None,
        max_grad_norm: float | Sequence[float] | None = None,
        noise: Noise | str | None = None,
        criterion: Any = None,
        clipping: str | None = None,
        grad_sample_mode: str = "auto",
        loss_reduction: str = "mean",
        batch_first: bool = True,
        poisson_sampling: bool = True,
        noise_generator: torch.Generator | Keystream | None = None,
        sample_generator: torch.Generator | Keystream | None = None,
        expected_batch_size: int | None = None,
        steps_per_epoch: int | None = None,
        after_budget: str = "error",
        public_loss_weights: bool = False,
        wrap_model: bool = True,
        rand_on_empty: bool = False,
        **others: Any,
    ) -> tuple[Any, ...]:
        """(module, optimizer, loader), or (module, optimizer, criterion, loader) in ghost mode, as in Opacus.

        A pass over the loader is an epoch, of batches of its own (docs: coming from Opacus).

        Args:
            module: the model; layers that mix examples are refused. What torch.compile made of it is put aside.
            optimizer: any torch optimizer over parameters of the module.
            data_loader: says which data set and how to collate, and without a plan by its length the sampling rate;
                batches are drawn anew by Poisson sampling, and sorted by length where the data set has `lengths`. Its
                `num_workers` draw ahead: 0 for a run with checkpoints.
            noise_multiplier: the standard deviation of Gaussian noise, in clips. A plan has it already.
            max_grad_norm: the clip; for clipping "per_layer" also a list of equal clips. A plan has it already.
            noise: a noise in the place of the Gaussian, without `noise_multiplier`; or the name of a kind, which is as
                wide as that.
            criterion: the loss that ghost mode returns, by example (cross entropy by default); in mode "alone" a
                function (module, example) that gives the loss of one.
            clipping: "flat" by default, "automatic", "per_layer", "l1" (Laplace noise only) or "adaptive"; another than
                the plan's is refused (`plrvo.Clipping`).
            grad_sample_mode: how clipped sums are formed. "bookkeeping" takes one backward pass; "auto" is that where
                every layer has a rule for it, else Opacus's "hooks" (per-example gradients), with a warning that names
                the reason; "ghost" is book-keeping that returns a criterion, as Opacus's mode of that name does;
                "functorch" computes the whole module once more for each example, whatever its layers make of a batch;
                "alone" gives neither module nor loss more than one example, so that none can meet another, and
                takes as long as single passes do (`plrvo.training.alone`).
                `engine.grad_sample_mode` says which it is.
            loss_reduction: what the loss does over a batch, "mean" or "sum".
            batch_first: whether the first dimension of a batch is the example.
            poisson_sampling: True; there is no account of other batches.
            noise_generator: where noise comes from: a cipher's keystream, keyed by the operating system, by default. A
                seeded one makes a run repeatable, and not private against whoever knows the seed.
            sample_generator: where batches come from; likewise.
            expected_batch_size: the public divisor; the sampling rate times the size of the data set by default.
            steps_per_epoch: how many batches a pass over the loader has; 1 / the sampling rate by default.
            after_budget: what a pass does after the last step of a plan, an "error" or a "stop".
            public_loss_weights: whether you answer for it that nothing which weighs examples in the loss looks at the
                data: factors that change between steps (a schedule), and weights in a loss that cannot be carried out
                again (a backward function of its own). By default such losses are refused: the usual reason is a mean
                over tokens, or weights of the classes, of the batch.
            wrap_model: whichever; hooks are on the module itself, which may be called in the wrapper's place.
            rand_on_empty: False; an empty batch takes its step.
            others: arguments that Opacus hands to its optimizers: those of adaptive clipping
                (`plrvo.training.adaptive`), all of which it needs. Any other is refused.
        """
        module = given.without_compile(module)
        distributed = is_distributed(module)
        wanted_clipping = clipping or (self.plan.clipping if self.plan else Clipping.flat)
        adaptive = asked_for(wanted_clipping, distributed, others)
        theirs.check_making(poisson_sampling, rand_on_empty, others)
        if self.budget is not None and self.plan is None:
            raise InvalidArgument("budget", str(self.budget), "a plan beside it: all of it is reserved beforehand")
        check_mode(grad_sample_mode)
        if grad_sample_mode == ALONE:
            check_alone(criterion, distributed, batch_first)
        if self.plan is not None:
            theirs.refuse_beside_a_plan(noise_multiplier=noise_multiplier, max_grad_norm=max_grad_norm, noise=noise)
            self.plan.check_clipping(clipping)
        ftrl.refuse_what_is_not_covered(self.plan, data_loader, distributed)
        check_shards(module, grad_sample_mode, wanted_clipping, batch_first)
        shards = shards_of(module)
        dimension = self._checked_dimension(module, optimizer)
        self.size = size = size_of(data_loader)
        if self.plan is None:
            wanted = noise_multiplier, max_grad_norm, noise, wanted_clipping
            mechanism = theirs.counted(data_loader, module, dimension, *wanted, self._exact, self._grid)
            divisor, epoch = theirs.divisor_of(data_loader), len(data_loader)
        else:
            given.warn_of_delta(self.plan.delta, size)
            if self.times_made == 0 and (fitting := given.plan_for(self.plan, dimension)) is not self.plan:
                self.plan, self.accountant.ledger = fitting, fitting.ledger(0)
            mechanism = Mechanism.of(self.plan)
            divisor, epoch = derived.expected_batch_size(self.plan, size), mechanism.epoch
        divisor = divisor if expected_batch_size is None else expected_batch_size
        epoch = epoch if steps_per_epoch is None else steps_per_epoch
        positive_integer(expected_batch_size=divisor, steps_per_epoch=epoch)
        self.mechanism = mechanism
        mechanism.check_covers(dimension)
        exact, asked = mechanism.noise.cell > 0, grad_sample_mode
        if exact:
            grad_sample_mode = check_exact(distributed, grad_sample_mode)
        noise_source = generator_for(exact, noise_generator, "noise_generator")
        sample_source = generator_for(exact, sample_generator, "sample_generator")
        self.seeded |= _is_known(noise_source) or _is_known(sample_source)
        if shards.is_sharded:
            noise_source, asked = same_in_all_processes(noise_source), "bookkeeping"
        with shards.whole():
            check_layers(module, shards.is_sharded)
            self._mode = mode = chosen_mode(grad_sample_mode, module, mechanism.clipping, batch_first)
            wrapper: Any = AloneModule if mode == ALONE else wrapper_of(mode, module, asked)
        self.isolation = weakest(self.isolation, by_mode(mode, public_loss_weights))
        if distributed:
            agreed: dict[str, Any] = {"plan": mechanism.to_dict()}
            agreed |= {"grad_sample_mode": mode, "loss_reduction": loss_reduction}
            agreed |= {"expected_batch_size": divisor, "steps_per_epoch": epoch}
            agreed |= {"sample_generator": type(sample_source).__name__}
            # The receipt of one process speaks for all of them.
            agreed |= {"noise_generator": _is_known(noise_source), "public_loss_weights": public_loss_weights}
            agreed |= {"postprocess": self.postprocess, "average": self._decay, "batch_first": batch_first}
            check_together(module, optimizer, data_loader, size, **agreed)
        self._reserve(module, distributed)
        draws = Draws()
        self.workers = data_loader.num_workers
        self.sampler = sampler = self._sampler(data_loader, mechanism, sample_source, distributed, draws)
        sampler.in_passes(min(epoch, mechanism.steps or epoch), after_budget)
        loader = private_loader(data_loader, sampler, batch_first, alone=mode == ALONE, seeded=self.seeded)
        wrapped: Any
        if mode == ALONE:
            wrapped = wrapper(module, criterion=criterion, loss_reduction=loss_reduction, seeded=self.seeded)
        else:
            wrapped = wrapper(
                module, batch_first=batch_first, loss_reduction=loss_reduction, public_loss_weights=public_loss_weights
            )
            wrapped.watch.ask(Collated(loader, draws))
        self._wrapped = weakref.ref(wrapped)
        processes = torch.distributed.get_world_size() if distributed else 1
        noisy_class: Any = optimizer_class(distributed, mode, exact, adaptive is not None, shards.is_sharded)
        noisy = (correlated_class(noisy_class) if mechanism.correlation else noisy_class)(
            optimizer,
            noise=mechanism.noise,
            dimension=mechanism.clipping.coordinates(dimension),
            generator=noise_source,
            clipping=mechanism.clipping,
            clip=mechanism.step.clip,
            accountant=self.accountant,
            sample_rate=mechanism.step.sample_rate,
            draws=draws,
            watch=wrapped.watch,
            postprocess=self.postprocess,
            most_steps=mechanism.most_steps,
            has_plan=self.plan is not None,
            expected_batch_size=divisor / processes,
            loss_reduction=loss_reduction,
        )
        if mechanism.correlation:
            key = ftrl.noise_key(noise_source)
            noisy.correlate(mechanism.correlation, mechanism.steps, key, ftrl.handed_out(sampler))
        if adaptive is not None:
            noisy.adapt(adaptive)
        noisy.keep(wrapped.book)
        self.times_made += 1
        self._average = None if self._decay is None else WeightAverage(optimizer, self._decay, shards.rest)
        noisy.average = self._average
        if grad_sample_mode != "ghost":
            return wrapped, noisy, loader
        return wrapped, noisy, by_example(criterion or nn.CrossEntropyLoss(), loss_reduction), loader

    @property
    def grad_sample_mode(self) -> str | None:
        """The mode that make_private chose, or that "auto" has come to on the first batch."""
        return "functorch" if getattr(self._wrapped(), "has_fallen_back", False) else self._mode

    def make_private_with_epsilon(
        self,
        *,
        module: nn.Module,
        data_loader: DataLoader[Any],
        target_epsilon: float,
        target_delta: float,
        epochs: float,
        max_grad_norm: float | Sequence[float],
        noise: Noise | str | None = None,
        sample_rate: float | None = None,
        clipping: str = Clipping.flat,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """`make_private` with the smallest noise that certifies the budget over `epochs` passes.

        `noise` gives the shape, by an example or by its name (its width is fitted); Gaussian by default. `clipping` is
        "flat" (l2), "per_layer" (l2, the clip split equally), "l1" (Laplace noise only) or "adaptive" (l2, and the clip
        is the first one), and becomes the plan's. The sampling rate is one over the loader's length, or `sample_rate`.
        Every other argument is as in `make_private`.
        """
        if self.plan is not None:
            raise InvalidArgument("target_epsilon", target_epsilon, "an engine without a plan; this one has its budget")
        if len(self.accountant):
            raise InvalidArgument(
                "target_epsilon",
                target_epsilon,
                f"a new engine; this one has released {counted(len(self.accountant), 'step')}",
            )
        required(epochs=epochs, target_epsilon=target_epsilon, target_delta=target_delta)
        positive(epochs=epochs, target_epsilon=target_epsilon)
        size_of(data_loader)
        if sample_rate is None:
            sample_rate, epoch = theirs.rate_of(data_loader), len(data_loader)
            kwargs = {"expected_batch_size": theirs.divisor_of(data_loader), "steps_per_epoch": epoch, **kwargs}
            steps = math.ceil(epochs * epoch)
        else:
            rate(sample_rate=sample_rate)
            steps = math.ceil(epochs / sample_rate)
        clip = theirs.clip_of(max_grad_norm, clipping, module)
        work = Workload(sample_rate=sample_rate, steps=max(1, steps), clip=clip, dimension=trained_parameters(module))
        plan = Plan.fitted(theirs.shape_of(noise, clip), work, target_delta, target_epsilon, clipping=clipping)
        self.plan = on_grid(plan, self._grid) if self._exact else plan
        return self.make_private(module=module, data_loader=data_loader, **kwargs)

    def _reserve(self, module: nn.Module, distributed: bool) -> None:
        """All steps of the plan, before a batch can be drawn; once, and by the first of several processes."""
        if self.budget is None or self.plan is None or self.charge is not None:
            return
        if not distributed or torch.distributed.get_rank() == 0:
            self.charge = self.budget.reserve(self.plan, type(module).__name__, counted=False)

    def settle(self) -> None:
        """Tell the account how many steps were taken, and take no more: the rest of the reservation is free again.

        Without it all steps of the plan stay charged: the engine cannot know what a loop has shown.
        """
        self.accountant.ended = True
        if self.charge is not None:
            self.charge.settle(len(self.accountant))

    @classmethod
    def get_compatible_module(cls, module: nn.Module) -> nn.Module:
        """With group normalisation, and attention made of linear layers, in the place of layers that are refused."""
        return compatible(module)

    @classmethod
    def is_compatible(cls, *, module: nn.Module, optimizer: Any = None, data_loader: Any = None) -> bool:
        """Whether no layer is known to mix examples."""
        return module.training and not mixing(module)

    def epsilon(self, delta: float) -> Epsilon:
        """The bracket of all steps taken so far; `get_epsilon` gives its certified end."""
        self._warn_of(delta)
        return self.accountant.bracket(delta)

    def get_epsilon(self, delta: float) -> float:
        """The certified epsilon of all steps taken so far."""
        self._warn_of(delta)
        return float(self.accountant.get_epsilon(delta))

    def _warn_of(self, delta: float) -> None:
        if self.size is not None and (self.plan is None or delta != self.plan.delta):  # of which it has been said
            given.warn_of_delta(delta, self.size)

    def averaged(self) -> AbstractContextManager[None]:
        """Meanwhile the module has the average of its weights, where one is kept: to test, or to write it down."""
        return nullcontext() if self._average is None else self._average.in_place()

    def save_checkpoint(
        self,
        *,
        path: str | Path,
        module: nn.Module,
        optimizer: Any = None,
        noise_scheduler: Any = None,
        grad_clip_scheduler: Any = None,
        checkpoint_dict: dict[str, Any] | None = None,
        extra: Any = None,
        module_state_dict_kwargs: Mapping[str, Any] | None = None,
        torch_save_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Weights, optimizer state, ledger and random streams in one file, written whole or not at all.

        `checkpoint_dict`, or `extra`, is anything that JSON can hold, such as the epoch and a schedule's state.
        """
        schedulers = {"noise_scheduler": noise_scheduler, "grad_clip_scheduler": grad_clip_scheduler}
        options = {"module_state_dict_kwargs": module_state_dict_kwargs, "torch_save_kwargs": torch_save_kwargs}
        theirs.check_checkpoint(optimizer, schedulers, options)
        self._refuse_several("save_checkpoint")
        if self._average is not None:
            self._average.refuse_in_place("save_checkpoint")
        checkpoint.save(Path(path), self, module, optimizer, theirs.kept_dict(extra, checkpoint_dict))

    def load_checkpoint(
        self,
        *,
        path: str | Path,
        module: nn.Module,
        optimizer: Any = None,
        noise_scheduler: Any = None,
        grad_clip_scheduler: Any = None,
        module_load_dict_kwargs: Mapping[str, Any] | None = None,
        torch_load_kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Continue where `save_checkpoint` was called; returns its `checkpoint_dict`, or `extra`.

        In the middle of an epoch, the next pass over the loader is the rest of it.
        """
        schedulers = {"noise_scheduler": noise_scheduler, "grad_clip_scheduler": grad_clip_scheduler}
        options = {"module_load_dict_kwargs": module_load_dict_kwargs, "torch_load_kwargs": torch_load_kwargs}
        theirs.check_checkpoint(optimizer, schedulers, options)
        self._refuse_several("load_checkpoint")
        return checkpoint.load(Path(path), self, module, optimizer)

    def _refuse_several(self, what: str) -> None:
        """A file holds the account of the engine and the sampler of one module: two of them cannot both go on."""
        if self.times_made > 1:
            raise InvalidArgument(
                what,
                f"an engine with {self.times_made} private modules",
                "an engine of its own for each module that keeps checkpoints; a plrvo.Ledger adds their costs up",
            )

    def validate(self, *, module: nn.Module, optimizer: Any = None, data_loader: Any = None) -> None:
        """Refuse layers that mix examples, and name the fix."""
        if not module.training:
            raise InvalidArgument(
                "module", f"{type(module).__name__} in eval mode", "training mode: call module.train() first"
            )
        refuse_mixing(module)

    def _checked_dimension(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> int:
        refuse_private(module)
        given.refuse_wrapped(module, optimizer)
        self.validate(module=module)
        given.check_module(module)
        given.check_optimizer(optimizer, module)
        dimension = trained_parameters(module)
        if dimension == 0:
            raise InvalidArgument("module", type(module).__name__, "one with trainable parameters")
        return dimension

    def _sampler(
        self,
        loader: DataLoader[Any],
        mechanism: Mechanism,
        generator: torch.Generator | Keystream,
        distributed: bool,
        draws: Draws,
    ) -> AnySampler:
        if self.plan is not None and self.plan.correlation is not None:
            return ftrl.batches(self.plan, loader, generator, draws)
        given.check_whole(loader)
        return poisson_sampler(mechanism, loader, generator, distributed, draws)


def _is_known(generator: torch.Generator | Keystream) -> bool:
    """Whether somebody may know the seed: of a torch generator the caller does."""
    return not isinstance(generator, Keystream) or generator.fixed
