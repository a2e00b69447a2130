"""A run that is resumed repeats what it has shown, or is refused; it never shows two results with the same noise."""

import json

import pytest
import torch
from torch import nn

import plrvo
from plrvo.audit.receipt import verify
from plrvo.records.folder import CHECKPOINT, JOURNAL, RECEIPT, WEIGHTS
from plrvo.records.journal import Journal
from plrvo.tasks import catalog
from plrvo.tasks.experiment import run_private
from plrvo.tasks.settings import Settings, Streams
from plrvo.validate import InvalidArgument

WORK = plrvo.Workload(sample_rate=0.05, steps=12, clip=1.0, dimension=650)
PLAN = plrvo.Plan.certify(plrvo.Laplace(2.0), WORK, 1e-5)


class Killed(BaseException):
    """Ends a run where a signal would, without a chance to save."""


def run(folder, resume=False, kill_at=None, seed=None, shown=None, dropout=False, **how):
    """One life of a run; `shown` collects what its progress bar is given."""
    streams = Streams.from_seed(seed)
    preset = catalog.prepare(catalog.Request("digits", "logistic", None, {}), streams.weights)
    module = nn.Sequential(nn.Dropout(0.3), preset.module) if dropout else preset.module

    def watch(step, steps, metrics):
        if shown is not None:
            shown.append((step, dict(metrics)))
        if step == kill_at:
            raise Killed

    settings = Settings(folder, 0.3, resume=resume, seed=seed, **{"evaluate_every": 2, "checkpoint_every": 5, **how})
    return run_private(preset.task, module, PLAN, settings, streams, watch)


@pytest.mark.parametrize("dropout", [False, True])
def test_what_a_killed_run_had_shown_is_shown_again_and_nothing_else(tmp_path, dropout):
    """With a seed, killed at step 9 with its last checkpoint at 5; metrics of steps 6 and 8 had been seen."""
    first, second = [], []
    with pytest.raises(Killed):
        run(tmp_path, kill_at=9, shown=first, dropout=dropout, seed=3)
    receipt = tmp_path / RECEIPT
    assert json.loads(receipt.read_text())["steps"] == 5
    assert "8 steps have been released; the receipt counts 5" in verify(receipt)[0]
    result = run(tmp_path, resume=True, shown=second, dropout=dropout, seed=3)
    rows = {metrics["step"]: metrics for _, metrics in first if metrics}
    again = {metrics["step"]: metrics for _, metrics in second if metrics}
    assert rows[6] == again[6]
    assert rows[8] == again[8]
    assert verify(receipt) == []
    assert result["journal"]["steps"] == result["steps"] == 12


def test_an_unseeded_run_goes_on_from_what_it_had_shown_with_noise_of_its_own(tmp_path):
    """The key is in no file, so that steps cannot be taken again: the state is written before anything is shown."""
    first, second = [], []
    with pytest.raises(Killed):
        run(tmp_path, kill_at=9, shown=first)
    result = run(tmp_path, resume=True, shown=second)
    assert min(step for step, _ in second) == 9  # step 8 had been shown; 9 had not, and is taken anew
    assert verify(tmp_path / RECEIPT) == []
    assert result["journal"]["steps"] == result["steps"] == 12
    assert result["run"]["seeded"] is False


def test_a_run_killed_before_its_first_checkpoint_has_its_random_streams_already(tmp_path):
    first, second = [], []
    with pytest.raises(Killed):
        run(tmp_path, kill_at=4, shown=first, checkpoint_every=100, seed=3)
    assert not (tmp_path / RECEIPT).exists()
    run(tmp_path, resume=True, shown=second, checkpoint_every=100, seed=3)
    assert first[3] == second[3]
    assert first[3][1]["step"] == 4


def test_other_weights_under_the_same_noise_are_refused_before_they_are_shown(tmp_path):
    with pytest.raises(Killed):
        run(tmp_path, kill_at=9, seed=3)
    path = tmp_path / JOURNAL
    journal = Journal.open(path)
    path.unlink()
    other = Journal.open(path)  # as if step 8 had been released with other weights
    for step, weights in journal.weights_at.items():
        other.permits(step, True, lambda weights=weights, step=step: weights if step < 8 else "0" * 64)
    before, shown = (tmp_path / WEIGHTS).read_bytes(), []
    with pytest.raises(InvalidArgument, match="step 8 has been released with other weights"):
        run(tmp_path, resume=True, shown=shown, seed=3)
    assert max(step for step, _ in shown) == 7
    assert (tmp_path / WEIGHTS).read_bytes() == before


def test_other_release_steps_wait_until_the_repetition_is_proved(tmp_path):
    with pytest.raises(Killed):
        run(tmp_path, kill_at=9, seed=3)
    shown = []
    run(tmp_path, resume=True, shown=shown, evaluate_every=1, checkpoint_every=100, seed=3)
    # Of the steps from 6 to 8, the ones that had been shown before; from then on, every one.
    assert sorted({metrics["step"] for _, metrics in shown if metrics}) == [6, 8, 9, 10, 11, 12]


def test_a_run_goes_on_with_the_seed_it_was_started_with(tmp_path):
    with pytest.raises(Killed):
        run(tmp_path, kill_at=6, seed=3)
    with pytest.raises(InvalidArgument, match="seed=None: expected 3"):
        run(tmp_path, resume=True)


def test_a_journal_without_its_checkpoint_is_no_place_for_another_run(tmp_path):
    with pytest.raises(Killed):
        run(tmp_path, kill_at=6)
    (tmp_path / CHECKPOINT).unlink()
    for resume in (False, True):
        with pytest.raises(InvalidArgument):
            run(tmp_path, resume=resume)


def test_a_run_that_lost_its_journal_is_refused(tmp_path):
    with pytest.raises(Killed):
        run(tmp_path, kill_at=6)
    (tmp_path / JOURNAL).unlink()
    with pytest.raises(InvalidArgument, match="journal"):
        run(tmp_path, resume=True)


def test_a_loader_with_workers_keeps_no_checkpoint(tmp_path):
    engine = plrvo.training.PrivacyEngine(PLAN)
    module = nn.Linear(4, 2)
    data = torch.utils.data.TensorDataset(torch.zeros(40, 4), torch.zeros(40, dtype=torch.long))
    model, optimizer, _ = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, num_workers=2),
    )
    with pytest.raises(InvalidArgument, match="num_workers=2"):
        engine.save_checkpoint(path=tmp_path / "checkpoint", module=model, optimizer=optimizer)


@pytest.mark.parametrize("seed", [3, None])
def test_unsafe_diagnostics_of_a_resumed_run_have_every_step(tmp_path, seed):
    """Killed at step 9, in a run that evaluates every 2 steps and saves every 5."""
    with pytest.raises(Killed):
        run(tmp_path, kill_at=9, seed=seed, unsafe_diagnostics=True)
    run(tmp_path, resume=True, seed=seed, unsafe_diagnostics=True)
    rows = [json.loads(line) for line in (tmp_path / "unsafe-diagnostics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "step" in row] == list(range(1, 13))
    assert len(rows) == 13


@pytest.mark.parametrize("rate", [1e40, 0.0, float("nan")])
def test_a_learning_rate_that_no_float32_can_hold_is_refused_before_the_run(tmp_path, rate):
    with pytest.raises(InvalidArgument, match="learning_rate"):
        Settings(tmp_path / "new", rate).check()
