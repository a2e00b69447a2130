"""An average of the weights, as torch makes it of the private module: what a loop makes; saved, and never trained."""

import pytest
import torch
from safetensors.torch import load_model, save_model
from tests.training.helpers import private, small_data, small_model
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import plrvo
from plrvo.audit.receipt import verify
from plrvo.training.receipts import make_receipt
from plrvo.validate import InvalidArgument

DECAY = 0.7


def weights(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


@pytest.mark.parametrize("mode", ["bookkeeping", "hooks"])
def test_an_average_is_that_of_the_released_weights_and_has_a_receipt(tmp_path, mode):
    engine, model, optimizer, loss, loader = private(plrvo.Gaussian(1.0), mode=mode, sample_rate=1.0, steps=4)
    average, due = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY)), None
    for x, y in loader:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
        average.update_parameters(model)
        due = weights(model) if due is None else DECAY * due + (1 - DECAY) * weights(model)
    torch.testing.assert_close(weights(average), due)
    assert len(engine.accountant) == 4
    x, y = small_data()[:7]
    with torch.no_grad():
        outputs = average.eval()(x)
    save_model(average.module._module, tmp_path / "model.safetensors")
    again = small_model()
    load_model(again, tmp_path / "model.safetensors")
    assert torch.equal(again.eval()(x), outputs)
    task = {"model": "an average", "examples": 200}
    make_receipt(engine, optimizer, tmp_path / "model.safetensors", task, {}).write(tmp_path / "receipt.json")
    assert verify(tmp_path / "receipt.json") == []
    with pytest.raises(InvalidArgument, match="a copy of it is not private"):
        loss(average.train()(x), y).backward()
