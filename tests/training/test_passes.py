"""A pass over the loader is an epoch, whatever happens in it: no step is lost, none is counted twice."""

import itertools
import math
import statistics

import pytest
import torch
from opacus.utils.batch_memory_manager import BatchMemoryManager
from tests.misuse.setting import data, mlp
from tests.training.helpers import seeded
from torch import nn
from torch.utils.data import DataLoader

import plrvo
from plrvo.training import BudgetExhausted, PoissonSampler
from plrvo.training.draws import BatchMismatch
from plrvo.validate import InvalidArgument

SIZE, BATCH, EPOCH = 60, 12, 5


class Loop:
    """The user's own loop around an engine."""

    def __init__(self, plan=None, workers=0, **options):
        module = mlp()
        self.engine = plrvo.PrivacyEngine(plan)
        if plan is None:
            options = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, **options}
        self.model, self.optimizer, self.loader = self.engine.make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=DataLoader(data(SIZE), batch_size=BATCH, num_workers=workers),
            noise_generator=seeded(1),
            sample_generator=seeded(2),
            **options,
        )

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def epoch(self, until=None, loader=None):
        """Losses of one pass, left after so many steps."""
        losses = []
        for x, y in loader or self.loader:
            losses.append(self.step(x, y))
            if len(losses) == until:
                break
        return losses

    @property
    def taken(self):
        return len(self.engine.accountant)

    @property
    def weights(self):
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])


def plan(steps, epsilon=None):
    work = plrvo.Workload(sample_rate=BATCH / SIZE, steps=steps, clip=1.0, dimension=83)
    if epsilon is None:
        return plrvo.Plan.certify(plrvo.Gaussian(1.0), work, 1e-4)
    return plrvo.Plan.fitted(plrvo.Gaussian(1.0), work, 1e-4, epsilon)


@pytest.mark.parametrize("workers", [0, 2])
def test_every_pass_is_an_epoch_of_batches_of_its_own(workers):
    loop = Loop(workers=workers)
    assert len(loop.loader) == EPOCH
    seen = [[x.clone() for x, y in _with_steps(loop)] for _ in range(3)]
    assert [len(batches) for batches in seen] == [EPOCH] * 3
    assert loop.taken == 3 * EPOCH
    sizes = [[len(x) for x in batches] for batches in seen]
    assert sizes[0] != sizes[1] != sizes[2]


def _with_steps(loop):
    for x, y in loop.loader:
        loop.step(x, y)
        yield x, y


@pytest.mark.parametrize("epsilon", [None, 3.0])
def test_a_plan_has_epochs_until_its_steps_are_used_up(epsilon):
    loop = Loop(plan(12, epsilon))
    assert [len(loop.epoch()) for _ in range(3)] == [EPOCH, EPOCH, 2]
    for _ in range(2):
        with pytest.raises(BudgetExhausted, match="after the last step"):
            loop.epoch()
    assert loop.taken == 12


def test_asked_for_passes_after_the_last_step_are_empty():
    loop = Loop(plan(EPOCH, 3.0), after_budget="stop")
    assert [len(loop.epoch()) for _ in range(3)] == [EPOCH, 0, 0]


def test_the_second_epoch_of_a_budget_has_losses_and_moves_schedules():
    loop = Loop(plan(2 * EPOCH, 3.0))
    schedule = torch.optim.lr_scheduler.LinearLR(loop.optimizer, 1.0, 0.1, total_iters=2 * len(loop.loader))
    rates = []
    for _ in range(2):
        losses = []
        for x, y in loop.loader:
            losses.append(loop.step(x, y))
            schedule.step()
            rates.append(loop.optimizer.param_groups[0]["lr"])
        assert math.isfinite(statistics.mean(loss for loss in losses if not math.isnan(loss)))
    assert rates == sorted(set(rates), reverse=True)
    assert len(rates) == 2 * EPOCH


@pytest.mark.parametrize("workers", [0, 2])
def test_whoever_breaks_out_of_an_epoch_begins_another_and_loses_no_batch(workers):
    broken, whole = Loop(plan(12), workers), Loop(plan(12))
    assert len(broken.epoch(until=3)) == 3
    next(iter(broken.loader))  # a look, which is free
    assert [len(broken.epoch()) for _ in range(2)] == [EPOCH, 4]
    assert broken.taken == 12
    for _ in range(3):
        whole.epoch()
    torch.testing.assert_close(broken.weights, whole.weights)


def test_parts_of_batches_in_memory_count_once():
    parts, whole = Loop(), Loop()
    for epoch in range(2):
        manager = BatchMemoryManager(data_loader=parts.loader, max_physical_batch_size=5, optimizer=parts.optimizer)
        with manager as split:
            parts.epoch(loader=split)
        whole.epoch()
        assert parts.taken == whole.taken == (epoch + 1) * EPOCH
    torch.testing.assert_close(parts.weights, whole.weights)


def test_gradients_of_two_batches_are_not_accumulated():
    loop = Loop()
    (x, y), (other, _) = itertools.islice(loop.loader, 2)
    nn.functional.cross_entropy(loop.model(x), y).backward()
    with pytest.raises(InvalidArgument, match=r"gradients of two batches must not mix.*batch_size.*BatchMemoryManager"):
        loop.model(other)
    loop.optimizer.zero_grad()
    with pytest.raises(BatchMismatch, match="no step was taken for it"):
        loop.step(x, y)
    assert loop.taken == 0


@pytest.mark.parametrize(("at", "with_plan"), [(EPOCH - 2, False), (EPOCH + 2, True)])
def test_a_run_resumed_in_the_middle_of_an_epoch_ends_as_if_it_had_not_stopped(tmp_path, at, with_plan):
    def made():
        return Loop(plan(3 * EPOCH) if with_plan else None)

    whole, first, second = made(), made(), made()
    for _ in range(3):
        whole.epoch()
    if at > EPOCH:
        first.epoch()
    first.epoch(until=at if at <= EPOCH else at - EPOCH)
    kept = {"epoch": at // EPOCH, "note": [1, 2]}
    first.engine.save_checkpoint(
        path=tmp_path / "c", module=first.model, optimizer=first.optimizer, checkpoint_dict=kept
    )
    found = second.engine.load_checkpoint(path=tmp_path / "c", module=second.model, optimizer=second.optimizer)
    assert found == kept
    lengths = [len(second.epoch()) for _ in range(found["epoch"], 3)]
    assert lengths == [EPOCH - at % EPOCH] + [EPOCH] * (len(lengths) - 1)
    assert second.taken == 3 * EPOCH
    assert torch.equal(second.weights, whole.weights)
    assert second.engine.get_epsilon(1e-4) == whole.engine.get_epsilon(1e-4)


def test_a_counted_run_resumes_under_the_same_mechanism_only(tmp_path):
    first = Loop()
    first.epoch()
    first.engine.save_checkpoint(path=tmp_path / "c", module=first.model, optimizer=first.optimizer)
    for other in (Loop(plan(10)), Loop(noise_multiplier=2.0)):
        with pytest.raises(InvalidArgument, match="written by another"):
            other.engine.load_checkpoint(path=tmp_path / "c", module=other.model, optimizer=other.optimizer)


def test_a_checkpoint_of_opacus_is_known_as_one(tmp_path):
    import opacus

    loop = Loop()
    with pytest.warns(UserWarning, match="Secure RNG"):
        theirs = opacus.PrivacyEngine()
    theirs.save_checkpoint(path=tmp_path / "theirs.pt", module=mlp())
    with pytest.raises(InvalidArgument, match=r"this one is Opacus's.*module_state_dict"):
        loop.engine.load_checkpoint(path=tmp_path / "theirs.pt", module=loop.model, optimizer=loop.optimizer)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"optimizer": None}, "optimizer=None: expected the private optimizer"),
        ({"noise_scheduler": object()}, "noise_scheduler"),
        ({"grad_clip_scheduler": object()}, "grad_clip_scheduler"),
        ({"torch_save_kwargs": {"pickle_protocol": 2}}, "never a pickle"),
        ({"checkpoint_dict": {"a": 1}, "extra": 2}, "none beside `extra`"),
    ],
)
def test_what_a_checkpoint_cannot_be_told(tmp_path, arguments, expected):
    loop = Loop()
    with pytest.raises(InvalidArgument, match=expected):
        loop.engine.save_checkpoint(
            **{"path": tmp_path / "c", "module": loop.model, "optimizer": loop.optimizer, **arguments}
        )


def test_a_sampler_without_a_limit_has_an_epoch_for_its_length():
    sampler = PoissonSampler(size=10, sample_rate=0.5, steps=None, generator=seeded(0))
    with pytest.raises(TypeError, match="no length"):
        len(sampler)
    sampler.in_passes(3, "error")
    assert [len(list(sampler)) for _ in range(2)] == [3, 3]
    assert len(sampler) == 3
