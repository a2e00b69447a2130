"""The one-run audit of the real engine: honest runs survive with their certified epsilon, broken ones do not."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import plrvo
from plrvo.audit import Canary
from plrvo.audit.mechanism import simulator
from plrvo.audit.one_run import CanaryKind, Rule
from plrvo.audit.planted import Planted
from plrvo.noise import GammaPLRV, Gaussian, Laplace, Noise
from plrvo.tasks.audited import Planting, canary_seed, with_canaries
from plrvo.tasks.experiment import run_private
from plrvo.tasks.preset import InMemory, Task
from plrvo.tasks.settings import Settings, Streams
from plrvo.training import PrivacyEngine
from plrvo.training.loop import Interrupted
from plrvo.validate import InvalidArgument

DELTA, SIZE, CLASSES = 1e-5, 600, 3
SPREAD = torch.tensor([1.0] * 20 + [0.02] * 380)  # most features hardly vary
FEATURES = len(SPREAD)
WORK = plrvo.Workload(sample_rate=0.2, steps=40, clip=0.5, dimension=1)


def toy_task() -> tuple[Task, nn.Module]:
    """Linear classification."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SIZE, FEATURES, generator=generator) * SPREAD
    y = torch.randint(0, CLASSES, (SIZE,), generator=generator)
    x[torch.arange(SIZE), y] += 2
    task = Task(
        data=InMemory(x, y),
        size=SIZE,
        evaluate=lambda module: {"accuracy": float((module(x).argmax(dim=1) == y).float().mean())},
        description={"name": "toy", "examples": SIZE},
        loss=nn.CrossEntropyLoss(),
        public=torch.randn(SIZE, FEATURES, generator=generator) * SPREAD,
    )
    module = nn.Linear(FEATURES, CLASSES)
    nn.init.zeros_(module.weight)
    nn.init.zeros_(module.bias)
    return task, module


def planting(kind="gradient", canaries=300, coordinates=1, claim=None, seed=7) -> Planting:
    return Planting(Rule(canaries, 0.99, DELTA), CanaryKind(kind), seed, coordinates, claim)


def audit(folder, shape, epsilon=1.0, plant=None, broken=None, work=WORK, steps=None, clipping="flat", **settings):
    """(receipt, observer) of one run that claims `epsilon`; `broken` turns the honest noise into the one used."""
    task, module = toy_task()
    task, module, observer = with_canaries(task, module, plant or planting(), work.clip)
    dimension = sum(p.numel() for p in module.parameters())
    work = replace(work, dimension=dimension)
    noise = plrvo.calibrate(shape, work, epsilon, DELTA)
    plan = plrvo.Plan.certify(broken(noise) if broken else noise, work, DELTA, epsilon, clipping=clipping)
    how = {"learning_rate": 0.2, "evaluate_every": 40, "checkpoint_every": 40, **settings}
    receipt = run_private(task, module, plan, Settings(folder, **how), Streams.from_seed(5))
    return receipt, observer


# Honest runs. False alarm at most 0.01 in each case.


@pytest.mark.parametrize("kind", ["gradient", "example"])
@pytest.mark.parametrize(
    "shape", [Gaussian(1.0), Laplace(1.0), GammaPLRV(20.0, 1.0), GammaPLRV(20.0, 1.0, shared=True)]
)
def test_honest_runs_survive_with_their_certified_epsilon(tmp_path, kind, shape):
    receipt, _ = audit(tmp_path, shape, plant=planting(kind))
    assert receipt["audit"]["verdict"] == "consistent"
    assert receipt["audit"]["epsilon_claimed"] == receipt["epsilon"]["certified"]


MODES = [{"grad_sample_mode": mode} for mode in ("hooks", "ghost", "bookkeeping")]
MODES += [{"physical_batch": 32}, {"postprocess": "score"}, {"clipping": "per_layer"}, {"clipping": "automatic"}]


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_the_attack_is_not_blind_in_any_mode_of_the_engine(tmp_path, mode):
    receipt, _ = audit(tmp_path, Laplace(1.0), epsilon=8.0, plant=planting(canaries=500), **mode)
    assert 0.3 < receipt["audit"]["epsilon_audited"] < 8


def test_black_box_canaries_are_not_blind(tmp_path):
    receipt, _ = audit(tmp_path, Gaussian(1.0), epsilon=50.0, plant=planting("example", canaries=100))
    assert receipt["audit"]["epsilon_audited"] > 0.5


# Broken engines: the noise object says one thing and draws another, or the optimizer leaves a safeguard out.


class Drawn(Noise):
    """However the engine asks for noise, it comes from `sample`."""

    def add_to(self, buffers, generator):
        for buffer in buffers:
            buffer += self.sample(tuple(buffer.shape), generator, buffer.dtype)


class Silent(Drawn, Laplace):
    """Forgets the noise."""

    def sample(self, shape, generator, dtype=None):
        return 0 * super().sample(shape, generator, dtype)


class ThetaAsRate(Drawn, GammaPLRV):
    """Takes the scale of the seed for its rate."""

    def sample(self, shape, generator, dtype=None):
        return GammaPLRV(self.k, 1 / self.theta).sample(shape, generator, dtype)


class SizedForTheMean(Drawn, Laplace):
    """Noise for the mean of a batch, added to the sum."""

    def sample(self, shape, generator, dtype=None):
        return super().sample(shape, generator, dtype) / (WORK.sample_rate * SIZE)


BROKEN = {
    "no noise": (Laplace(1.0), lambda noise: Silent(noise.b)),
    "theta as rate": (GammaPLRV(20.0, 1.0), lambda noise: ThetaAsRate(noise.k, noise.theta)),
    "noise for the mean": (Laplace(1.0), lambda noise: SizedForTheMean(noise.b)),
}


@pytest.mark.parametrize("kind", ["gradient", "example"])
@pytest.mark.parametrize("how", BROKEN)
def test_broken_noise_is_refuted(tmp_path, how, kind):
    shape, broken = BROKEN[how]
    plant = planting(kind, canaries=300 if kind == "gradient" else 100)
    receipt, _ = audit(tmp_path, shape, epsilon=0.5, plant=plant, broken=broken)
    assert receipt["audit"]["verdict"] == "refuted"
    assert receipt["audit"]["epsilon_audited"] > 0.5


def unclipped(optimizer) -> None:
    optimizer.sums = [gradients.sum(dim=0) for gradients in optimizer.grad_samples]


def test_no_clipping_is_refuted(tmp_path, monkeypatch):
    honest = PrivacyEngine.make_private

    def forgetful(engine, **arguments):
        prepared = honest(engine, **arguments)
        prepared[1].clip_and_accumulate = lambda: unclipped(prepared[1])
        return prepared

    monkeypatch.setattr(PrivacyEngine, "make_private", forgetful)
    receipt, _ = audit(tmp_path, Laplace(1.0), grad_sample_mode="hooks")
    assert receipt["audit"]["verdict"] == "refuted"


# What the canaries are to the engine.


@pytest.mark.parametrize("coordinates", [1, 6])
@pytest.mark.parametrize("shape", [Gaussian(1.0), Laplace(1.0), GammaPLRV(5.0, 1.0)], ids=lambda noise: noise.kind)
def test_scores_of_the_engine_have_the_law_of_the_simulated_mechanism(tmp_path, coordinates, shape):
    """Kolmogorov-Smirnov in both worlds at level 1e-5 each; the simulator shares nothing with the engine.

    For more than four coordinates it draws a quantised loss, which is close but not equal: hence two moments' room.
    """
    plant = planting(canaries=600, coordinates=coordinates)
    receipt, observer = audit(tmp_path, shape, epsilon=6.0, plant=plant)
    noise, work = plrvo.noise.noise_from_dict(receipt["plan"]["noise"]), plrvo.Workload(**receipt["plan"]["workload"])
    play = simulator(noise, work, Canary.spread(work, coordinates))
    for world in (False, True):
        measured = observer.read.values[observer.included == world]
        simulated = play(world, 20_000, np.random.default_rng(11))
        assert stats.ks_2samp(measured, simulated).pvalue > 1e-5


def test_canaries_change_neither_the_divisor_nor_the_size(tmp_path):
    receipt, _ = audit(tmp_path, Laplace(1.0))
    assert receipt["run"]["expected_batch_size"] == WORK.sample_rate * SIZE
    assert receipt["task"]["examples"] == SIZE
    assert receipt["task"]["canaries"] == {
        "count": 300,
        "kind": "gradient",
        "coordinates": 1,
        "included": "by a fair coin each",
    }
    assert "seed" not in json.dumps(receipt["audit"])


def test_the_model_that_is_released_has_no_canaries(tmp_path):
    from safetensors.torch import load_file

    audit(tmp_path, Laplace(1.0))
    assert set(load_file(tmp_path / "model.safetensors")) == {"weight", "bias"}


def test_without_noise_gradient_canaries_leave_the_model_alone(tmp_path):
    """The other parameters move as they would without canaries: the canaries' gradient there is exactly zero."""
    weights = []
    for canaries in (100, 300):
        _, observer = audit(
            tmp_path / str(canaries),
            Laplace(1.0),
            plant=planting(canaries=canaries, claim=1.0),
            broken=lambda noise: Silent(noise.b),
            work=replace(WORK, sample_rate=1.0, steps=5),
            expected_batch_size=SIZE,
        )
        weights.append(observer.model.model.weight.detach().clone())
    assert torch.allclose(weights[0], weights[1], atol=1e-6)
    assert weights[0].abs().max() > 1e-3


def test_planted_examples_take_their_places_in_any_batch():
    data = InMemory(torch.arange(10.0)[:, None].repeat(1, 2), torch.arange(10))
    planted = Planted(data, torch.tensor([20, 21]), torch.tensor([[-1.0, -1.0], [-2.0, -2.0]]))
    assert len(planted) == 12
    x, y = planted.__getitems__([11, 3, 10])
    assert (x[:, 0].tolist(), y.tolist()) == ([-2.0, 3.0, -1.0], [21, 3, 20])
    x, y = planted.__getitems__([10])
    assert (x.tolist(), y.tolist()) == ([[-1.0, -1.0]], [20])
    assert planted.__getitems__([])[0].shape == (0, 2)
    assert data.tensors[0][0, 0] == 0  # what was overwritten was a copy
    ones, _ = Planted(data, torch.tensor([20])).__getitems__([4, 10])
    assert ones.tolist() == [[4.0, 4.0], [1.0, 1.0]]


class Named(InMemory):
    """Inputs by name, with lengths, as text has them."""

    def __init__(self, x, y):
        super().__init__(x, y)
        self.lengths = torch.full((len(y),), 5)

    def __getitems__(self, indices):
        x, y = super().__getitems__(indices)
        return {"features": x}, y


class ByName(nn.Module):
    """Takes its input by name."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(FEATURES, CLASSES)

    def forward(self, features):
        return self.linear(features)


def test_inputs_may_come_by_name(tmp_path):
    task, _ = toy_task()
    task = replace(task, data=Named(*task.data.tensors))
    task, module, _ = with_canaries(task, ByName(), planting(), WORK.clip)
    assert len(task.data.lengths) == len(task.data)
    work = replace(WORK, dimension=sum(p.numel() for p in module.parameters()))
    plan = plrvo.Plan.certify(Laplace(0.05), work, DELTA)
    task = replace(task, evaluate=lambda trained: {"accuracy": 0.0})
    receipt = run_private(task, module, plan, Settings(tmp_path, 0.1), Streams.from_seed(1))
    assert receipt["audit"]["epsilon_audited"] > 1


@pytest.mark.parametrize("kind", ["gradient", "example"])
def test_an_interrupted_audit_goes_on_where_it_stopped(tmp_path, kind):
    whole, _ = audit(tmp_path / "whole", Laplace(1.0), plant=planting(kind))

    for resume in (False, True):
        seed = canary_seed(None, tmp_path / "parts") if resume else 7
        task, module = toy_task()
        task, module, _ = with_canaries(task, module, planting(kind, seed=seed), WORK.clip)
        settings = Settings(tmp_path / "parts", 0.2, evaluate_every=40, checkpoint_every=17, resume=resume)
        streams = Streams.from_seed(5)
        arguments = (task, module, plrvo.Plan.from_dict(whole["plan"]), settings, streams)
        if resume:
            assert run_private(*arguments)["audit"] == whole["audit"]
        else:
            with pytest.raises(Interrupted):
                run_private(*arguments, _after(20, Interrupted))


def _after(step, error):
    def watch(done, steps, metrics):
        if done == step:
            raise error

    return watch


def test_a_run_that_stops_early_has_no_audit_yet(tmp_path):
    task, module = toy_task()
    task, module, observer = with_canaries(task, module, planting(), WORK.clip)
    work = replace(WORK, dimension=sum(p.numel() for p in module.parameters()))
    plan = plrvo.Plan.certify(Laplace(1.0), work, DELTA)
    settings = Settings(tmp_path, 0.2, checkpoint_every=10)
    with pytest.raises(Interrupted):
        run_private(task, module, plan, settings, Streams.from_seed(1), _after(10, Interrupted))
    assert observer.result is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda task: with_canaries(task, nn.Linear(FEATURES, 3), planting(canaries=601), 1.0), "at most the 600"),
        (
            lambda task: with_canaries(replace(task, public=None), nn.Linear(FEATURES, 3), planting("example"), 1.0),
            "no public inputs",
        ),
        (
            lambda task: with_canaries(
                task, nn.Sequential(nn.Linear(FEATURES, 4), nn.Unflatten(1, (2, 2))), planting(), 1.0
            ),
            "a logit for each class",
        ),
    ],
)
def test_tasks_that_cannot_be_audited_are_refused(change, named):
    with pytest.raises(InvalidArgument, match=named):
        change(toy_task()[0])
