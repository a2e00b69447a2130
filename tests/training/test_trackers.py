"""Both epsilons come to each library beside what the caller adds; read back with the library's own reader."""

import json
import sys
import time

import pytest
from tests.patience import HANGS
from tests.training.helpers import private

import plrvo
from plrvo.training import trackers
from plrvo.training.loop import Run, train
from plrvo.validate import InvalidArgument

NOISE = plrvo.Gaussian(2.0)


class Kept:
    """A tracker that remembers."""

    def __init__(self):
        self.rows, self.closed = [], False

    def log(self, step, values):
        self.rows.append((step, dict(values)))

    def close(self):
        self.closed = True


def spent(engine, steps):
    """What so many steps of it cost, by the account itself."""
    found = engine.plan.ledger(steps).epsilon(engine.plan.delta)
    return {"epsilon_certified": found.certified, "epsilon_lower": found.lower}


def tracked(tracker, steps=4, every=2, **options):
    """A loop of one's own, with a metric at its third step."""
    engine, model, optimizer, loss, loader = private(NOISE, sample_rate=1.0, steps=steps)
    with trackers.Tracking(engine, tracker, every=every, **options) as tracking:
        for x, y in loader:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
            tracking.step(**({"test_loss": 0.25} if optimizer.steps_taken == 3 else {}))
    return engine


def test_a_loop_of_ones_own_has_epsilons_at_every_second_step_and_metrics_when_given():
    tracker = Kept()
    engine = tracked(tracker)
    assert tracker.rows == [(2, spent(engine, 2)), (3, {"test_loss": 0.25}), (4, spent(engine, 4))]
    assert tracker.rows[0][1]["epsilon_lower"] > 0
    assert tracker.closed


def test_the_loop_of_the_package_has_them_too():
    tracker = Kept()
    engine, model, optimizer, loss, loader = private(NOISE, sample_rate=1.0, steps=4)
    tracking = trackers.Tracking(engine, tracker)
    train(
        Run(
            module=model,
            optimizer=optimizer,
            loader=loader,
            loss=loss,
            evaluate=lambda: {"test_loss": 0.5},
            epsilon=lambda: None,
            steps=4,
            evaluate_every=2,
            physical_batch=77,
            tracking=tracking,
        )
    )
    assert [step for step, _ in tracker.rows] == [1, 2, 3, 4]
    assert tracker.rows[1][1] == {**spent(engine, 2), "test_loss": 0.5}
    assert tracker.rows[2][1] == spent(engine, 3)


def test_without_a_plan_a_delta_is_needed():
    engine = plrvo.PrivacyEngine()
    with pytest.raises(InvalidArgument, match=r"^delta="):
        trackers.Tracking(engine, Kept())
    with pytest.raises(InvalidArgument, match=r"^every="):
        trackers.Tracking(engine, Kept(), delta=1e-5, every=0)


def test_an_absent_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InvalidArgument, match=r"pip install 'plrvo\[wandb\]', or"):
        trackers.WeightsAndBiases(".")


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    engine = tracked(trackers.TensorBoard(tmp_path))
    events = EventAccumulator(str(tmp_path)).Reload()
    for name in ("epsilon_certified", "epsilon_lower"):
        found = [(event.step, event.value) for event in events.Scalars(name)]
        assert found == [(step, pytest.approx(spent(engine, step)[name], rel=1e-6)) for step in (2, 4)]  # singles
    assert [(event.step, event.value) for event in events.Scalars("test_loss")] == [(3, 0.25)]


def test_mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a store without a database
    uri = (tmp_path / "store").as_uri()
    tracker = trackers.MLflow(uri)
    engine = tracked(tracker)
    client = mlflow.MlflowClient(tracking_uri=uri)
    for name in ("epsilon_certified", "epsilon_lower"):
        found = [(row.step, row.value) for row in client.get_metric_history(tracker.run_id, name)]
        assert found == [(step, spent(engine, step)[name]) for step in (2, 4)]
    assert client.get_run(tracker.run_id).info.status == "FINISHED"


def logged(content):
    """The records of a file of wandb's: LevelDB's log format after a header of seven bytes."""
    place, record = 7, b""
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:  # what is left of a block is padding
            place += 32768 - place % 32768
        size, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        record += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def test_weights_and_biases_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    monkeypatch.setenv("WANDB_SILENT", "true")
    tracker = trackers.WeightsAndBiases(tmp_path)
    engine = tracked(tracker)
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    from wandb.proto import wandb_internal_pb2

    until = time.monotonic() + HANGS
    while b"epsilon_certified" not in file.read_bytes() and time.monotonic() < until:
        time.sleep(0.1)  # its own process writes the file
    rows = []
    for data in logged(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items})
    found = [(row["_step"], row["epsilon_certified"]) for row in rows if "epsilon_certified" in row]
    assert found == [(step, spent(engine, step)["epsilon_certified"]) for step in (2, 4)]
