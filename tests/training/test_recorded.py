"""Metrics of a loop of one's own: refused where a receipt would differ, else covered by it and drawn."""

import math

import pytest
import torch
from safetensors.torch import save_model
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import plrvo
from plrvo.records.metrics import write_metrics
from plrvo.report.figures import metric_charts
from plrvo.report.loading import read_run
from plrvo.training.receipts import make_receipt
from plrvo.training.recorded import Recorded
from plrvo.validate import InvalidArgument


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([{"accuracy": 0.5}], "step=None"),
        ([{"step": 0, "accuracy": 0.5}], "step=0"),
        ([{"step": 2, "loss": 0.5}, {"step": 2, "loss": 0.4}], "step=2: expected a whole number above 2"),
        ([{"step": 1, "accuracy": 50.0}], "accuracy=50.0: expected a finite number from 0 to 1"),
        ([{"step": 1, "loss": math.nan}], "loss=nan"),
        ([{"step": 1, "loss": "0.5"}], "loss='0.5'"),
        ([{"step": 1, "epsilon_certified": 1.0}, {"step": 2}], "epsilon_certified=None"),
    ],
)
def test_rows_that_would_not_verify_are_not_written(rows, named, tmp_path):
    with pytest.raises(InvalidArgument) as refused:
        write_metrics(tmp_path, rows)
    assert str(refused.value).startswith(named)
    assert not list(tmp_path.iterdir())


def test_a_loop_of_its_own_has_curves(tmp_path):
    torch.manual_seed(0)
    work = plrvo.Workload(sample_rate=0.5, steps=4, clip=1.0, dimension=8)
    engine = plrvo.PrivacyEngine(plrvo.Plan.certify(plrvo.Gaussian(4.0), work, delta=1e-3))
    module = nn.Linear(3, 2)
    data = TensorDataset(torch.randn(40, 3), torch.randint(0, 2, (40,)))
    model, optimizer, loader = engine.make_private(
        module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1), data_loader=DataLoader(data)
    )
    recorded = Recorded(tmp_path, model, optimizer)
    with pytest.raises(InvalidArgument, match="step=0"):
        recorded.log(accuracy=0.5)
    while optimizer.steps_taken < work.steps:
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            if optimizer.steps_taken != work.steps:  # the last weights are released as well, tested or not
                recorded.log(accuracy=0.1 * optimizer.steps_taken)
    with pytest.raises(InvalidArgument, match="a finite number from 0 to 1"):
        recorded.log(accuracy=50.0)
    save_model(model._module, tmp_path / "model.safetensors")
    task = {"name": "coins", "model": "linear"}
    receipt = make_receipt(engine, optimizer, tmp_path / "model.safetensors", task, **recorded.parts())
    receipt.write(tmp_path / "receipt.json")
    assert [row["step"] for row in recorded.rows] == [1, 2, 3]
    with pytest.raises(InvalidArgument, match="a new one"):
        Recorded(tmp_path, model, optimizer)
    assert plrvo.verify(tmp_path) == []
    (chart,) = metric_charts([read_run(tmp_path)])
    assert chart.y_label == "test accuracy, %"
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "accuracy": 1.0}\n')
    assert any("metrics" in difference for difference in plrvo.verify(tmp_path))
