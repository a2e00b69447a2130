"""Schedules of noise and clip: Opacus's values, steps entered as they were taken, and a receipt that verifies."""

import json
import math

import opacus.schedulers as theirs
import pytest
import torch
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from opacus.optimizers import DPOptimizer
from safetensors.torch import save_model
from tests.training.helpers import GAMMA, dimension_of, given, private, released, seeded, small_data, small_model
from torch import nn
from torch.utils.data import DataLoader

import plrvo
from plrvo.audit.receipt import verify
from plrvo.records.compared import same
from plrvo.training import PrivacyEngine, schedulers
from plrvo.training.receipts import make_receipt
from plrvo.validate import InvalidArgument

SIGMA, CLIP, LENGTH = 1.5, 0.8, 10
SCHEDULES = {
    "ExponentialNoise": {"gamma": 0.9},
    "StepNoise": {"step_size": 2, "gamma": 0.5},
    "LambdaNoise": {"noise_lambda": lambda epoch: 1 + epoch / 3},
    "ExponentialGradClip": {"gamma": 0.9},
    "StepGradClip": {"step_size": 2, "gamma": 0.5},
    "LambdaGradClip": {"scheduler_function": lambda epoch: 1 + epoch / 3},
}


class Loop:
    """A run without a plan, without sampling unless told: then the account is a formula."""

    def __init__(self, *, noise=None, exact=False, seed=1, length=1, **options):
        self.module = small_model()
        self.engine = PrivacyEngine(exact=exact)
        width = {"noise_multiplier": SIGMA} if noise is None else {"noise": noise}
        generators = {} if exact else {"noise_generator": seeded(seed), "sample_generator": seeded(seed + 1)}
        self.model, self.optimizer, self.loader = self.engine.make_private(
            module=self.module,
            optimizer=torch.optim.SGD(self.module.parameters(), lr=0.1),
            data_loader=DataLoader(small_data(), batch_size=200 // length),
            max_grad_norm=CLIP,
            steps_per_epoch=LENGTH,
            grad_sample_mode="hooks",
            **width,
            **generators,
            **options,
        )
        self.schedules = []

    def scheduled(self, *names):
        self.schedules = [getattr(schedulers, name)(self.optimizer, **SCHEDULES[name]) for name in names]
        return self

    def train(self, steps=LENGTH):
        used = []
        for _, (x, y) in zip(range(steps), self.loader, strict=False):
            used.append((self.optimizer.noise, self.optimizer.clip))
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()
            for schedule in self.schedules:
                schedule.step()
        return used

    def receipt(self, folder):
        save_model(self.module, folder / "model.safetensors")
        task = {"model": "small", "examples": 200}
        made = make_receipt(self.engine, self.optimizer, folder / "model.safetensors", task, {}, delta=1e-4)
        made.write(folder / "receipt.json")
        return made


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_widths_are_those_of_opacus(name):
    ours = Loop()
    parameters = [nn.Parameter(torch.zeros(3))]
    other = DPOptimizer(
        torch.optim.SGD(parameters, lr=0.1), noise_multiplier=SIGMA, max_grad_norm=CLIP, expected_batch_size=5
    )
    ours.scheduled(name)
    reference = getattr(theirs, name)(other, **SCHEDULES[name])
    for _ in range(6):
        assert ours.optimizer.noise_multiplier == pytest.approx(other.noise_multiplier, rel=1e-12)
        assert ours.optimizer.clip == pytest.approx(other.max_grad_norm, rel=1e-12)
        ours.schedules[0].step()
        reference.step()


def test_the_ledger_has_every_step_as_it_was_taken_and_dp_accounting_agrees():
    loop = Loop(length=LENGTH).scheduled("StepNoise", "ExponentialGradClip")
    used = loop.train(3)
    due = plrvo.Ledger()
    composed = dp_event.ComposedDpEvent(
        [dp_event.PoissonSampledDpEvent(1 / LENGTH, dp_event.GaussianDpEvent(n.sigma / clip)) for n, clip in used]
    )
    for noise, clip in used:
        due = due.plus(noise, plrvo.Workload(1 / LENGTH, 1, clip, dimension_of(loop.module)))
    assert loop.engine.accountant.ledger == due
    assert len(due.entries) == 3
    bracket = loop.engine.epsilon(1e-4)
    reference = PLDAccountant().compose(composed).get_epsilon(1e-4)
    assert reference >= bracket.lower
    assert bracket.certified == pytest.approx(reference, rel=0.01)
    constant = Loop(length=LENGTH)
    constant.train(3)
    assert bracket.certified > constant.engine.get_epsilon(1e-4)  # less noise later on costs more


@pytest.mark.parametrize("noise", [plrvo.Laplace(0.9), GAMMA], ids=str)
def test_any_noise_has_a_schedule(noise):
    loop = Loop(noise=noise).scheduled("ExponentialNoise")
    loop.train(3)
    widths = [entry.variance for entry, _ in loop.engine.accountant.ledger.entries]
    assert [math.sqrt(w / noise.variance) for w in widths] == pytest.approx([1, 0.9, 0.81])


@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
def test_what_is_released_has_the_clip_and_the_noise_of_the_step(clipping):
    loop = Loop(clipping=clipping)
    x, y = small_data()[:1]
    loss = nn.CrossEntropyLoss()
    schedulers.LambdaGradClip(loop.optimizer, scheduler_function=lambda epoch: 1e-3**epoch).step()
    schedulers.LambdaNoise(loop.optimizer, noise_lambda=lambda epoch: 1e-6)
    norm = float(released(loop.model, loop.optimizer, loss, 100 * x, y).norm())
    assert norm == pytest.approx(CLIP * 1e-3, rel=1e-2)
    assert loop.optimizer.noise.sigma == pytest.approx(SIGMA * CLIP * 1e-9)
    schedulers_noise = loop.optimizer.schedules["noise"]
    schedulers_noise.noise_lambda = lambda epoch: 1e6
    schedulers_noise.step()
    spread = released(loop.model, loop.optimizer, loss, x, y).std()
    assert float(spread) == pytest.approx(SIGMA * CLIP * 1e3, rel=0.2)  # 630 coordinates: seven standard errors


@pytest.mark.parametrize("exact", [False, True])
def test_a_receipt_of_a_schedule_verifies_and_an_edited_one_does_not(tmp_path, exact):
    loop = Loop(exact=exact).scheduled("ExponentialNoise", "StepGradClip")
    loop.train(4)
    receipt = loop.receipt(tmp_path)
    assert verify(tmp_path / "receipt.json") == []
    assert len(receipt["plan"]["stages"]) == len(receipt["ledger"]) == 4
    assert same(receipt["epsilon"]["certified"], loop.engine.get_epsilon(1e-4))
    assert receipt.plan == plrvo.Plan.from_dict(receipt["plan"])
    for change in (
        lambda d: d["ledger"][0]["workload"].update(steps=2),
        lambda d: d["plan"]["stages"][3]["workload"].update(clip=1e-3),
        lambda d: d["plan"].pop("stages"),
    ):
        document = json.loads((tmp_path / "receipt.json").read_text())
        change(document)
        (tmp_path / "edited.json").write_text(json.dumps(document))
        assert len(verify(tmp_path / "edited.json")) > 1  # more than its digest


def test_a_run_with_a_schedule_is_resumed_where_it_was(tmp_path):
    names = ("ExponentialNoise", "LambdaGradClip")
    first, second = Loop().scheduled(*names), Loop(seed=8).scheduled(*names)
    first.train(3)
    noise, clip = first.schedules
    whole = {"path": tmp_path / "c", "noise_scheduler": noise, "grad_clip_scheduler": clip}
    first.engine.save_checkpoint(module=first.model, optimizer=first.optimizer, **whole)
    second.engine.load_checkpoint(path=tmp_path / "c", module=second.model, optimizer=second.optimizer)
    assert second.train(2) == first.train(2)
    assert second.engine.accountant.ledger == first.engine.accountant.ledger
    for p, q in zip(first.module.parameters(), second.module.parameters(), strict=True):
        assert torch.equal(p, q)
    for other in (Loop(), Loop().scheduled("StepNoise", "LambdaGradClip")):
        with pytest.raises(InvalidArgument, match="schedule"):
            other.engine.load_checkpoint(path=tmp_path / "c", module=other.model, optimizer=other.optimizer)


def test_what_is_no_schedule_of_this_run_is_refused(tmp_path):
    _, _, planned, _, _ = private()
    with pytest.raises(InvalidArgument, match="without a plan"):
        schedulers.ExponentialNoise(planned, gamma=0.9)
    loop = Loop().scheduled("ExponentialNoise")
    with pytest.raises(InvalidArgument, match="one schedule of the noise"):
        schedulers.StepNoise(loop.optimizer, step_size=2, gamma=0.9)
    with pytest.raises(InvalidArgument, match=r"plrvo\.training\.schedulers"):
        loop.optimizer.rescale(clip=100.0)
    with pytest.raises(InvalidArgument, match=r"^noise_multiplier=.*plrvo\.training\.schedulers"):
        theirs.ExponentialNoise(Loop().optimizer, gamma=0.9).step()
    with pytest.raises(InvalidArgument, match=r"^noise_factor=0"):
        schedulers.LambdaNoise(Loop().optimizer, noise_lambda=lambda epoch: 0.0)
    with pytest.raises(InvalidArgument, match=r"^gamma="):
        schedulers.ExponentialGradClip(Loop().optimizer, gamma=-1.0)
    with pytest.raises(InvalidArgument, match="that make_private returned"):
        schedulers.ExponentialNoise(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1), gamma=0.9)
    loop.train(2)
    with pytest.raises(InvalidArgument, match="stages"):
        PrivacyEngine(loop.receipt(tmp_path).plan)


def test_a_schedule_does_not_move_between_the_parts_of_a_batch():
    loop = Loop().scheduled("ExponentialGradClip")
    x, y = small_data()[:6]
    given(loop.optimizer, 6)
    loop.optimizer.signal_skip_step(True)
    nn.functional.cross_entropy(loop.model(x[:3]), y[:3]).backward()
    loop.optimizer.step()
    with pytest.raises(InvalidArgument, match="parts"):
        loop.schedules[0].step()
