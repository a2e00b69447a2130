"""A receipt says what ran, and verification finds every change to it."""

import json

import pytest
import torch
from safetensors.torch import save_file
from tests.training.helpers import private, take_steps

import plrvo
from plrvo.audit.receipt import examine, verify
from plrvo.records import Receipt
from plrvo.training.receipts import make_receipt
from plrvo.validate import InvalidArgument


@pytest.fixture
def run(tmp_path):
    engine, model, optimizer, loss, loader = private(plrvo.Laplace(2.0), steps=5, epsilon=50.0)
    take_steps(model, optimizer, loss, loader)
    weights = tmp_path / "model.safetensors"
    save_file({name: t.contiguous() for name, t in model._module.state_dict().items()}, weights)
    receipt = make_receipt(engine, optimizer, weights, {"name": "test"}, {"clipping": "flat"})
    path = tmp_path / "receipt.json"
    receipt.write(path)
    return engine, optimizer, path, receipt


def test_an_untouched_receipt_verifies(run):
    engine, optimizer, path, receipt = run
    assert verify(path) == verify(path.parent) == verify(str(path)) == []
    by_name = make_receipt(engine, optimizer, str(path.with_name("model.safetensors")), {"name": "test"})
    by_name.write(str(path))
    assert verify(path) == []
    assert Receipt.read(str(path))["weights"] == receipt["weights"]
    with pytest.raises(InvalidArgument, match="receipt=3: expected the path of a file"):
        verify(3)


@pytest.mark.parametrize(("part", "name"), [("task", "data_source"), ("task", "examples"), ("run", "randomness")])
def test_what_a_report_could_not_read_differs(run, part, name):
    _, _, path, _ = run
    document = json.loads(path.read_text())
    document[part][name] = [1]
    del document["digest"]
    Receipt.signed({key: value for key, value in document.items() if key != "receipt"}).write(path)
    assert verify(path)


def test_weights_are_a_safetensors_file(run):
    engine, optimizer, path, _ = run
    pickled = path.with_name("model.pt")
    torch.save({"weight": torch.zeros(3)}, pickled)
    for weights in (pickled, path.with_name("absent.safetensors")):
        with pytest.raises(InvalidArgument, match=f"weights.*{weights.name}.*safetensors file"):
            make_receipt(engine, optimizer, weights, {}, {})


def test_a_receipt_states_what_ran(run):
    engine, _, _, receipt = run
    assert receipt["steps"] == 5
    assert receipt["complete"] is True
    assert receipt["epsilon"]["certified"] == engine.get_epsilon(1e-4)
    assert receipt["ledger"] == engine.accountant.history
    assert {"python", "torch", "opacus", "plrvo"} <= set(receipt["versions"])


CHANGES = {
    "more steps": lambda r: r.update(steps=6),
    "fewer steps in the ledger": lambda r: r["ledger"][0]["workload"].update(steps=3),
    "smaller epsilon": lambda r: r["epsilon"].update(certified=r["epsilon"]["certified"] * 0.9),
    "another noise in the plan": lambda r: r["plan"]["noise"].update(b=3.0),
    "another noise in the ledger": lambda r: r["ledger"][0]["noise"].update(b=3.0),
    "larger clip": lambda r: r["ledger"][0]["workload"].update(clip=2.0),
    "another rate": lambda r: r["ledger"][0]["workload"].update(sample_rate=0.2),
    "plan claims less": lambda r: r["plan"].update(epsilon_certified=0.1),
    "other words": lambda r: r.update(sampler="shuffle"),
    "missing part": lambda r: r.pop("ledger"),
    "broken noise": lambda r: r["plan"]["noise"].update(noise="nothing"),
    "a number of 400 digits": lambda r: r["epsilon"].update(certified=10**400),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_to_a_receipt_is_found(run, change):
    path = run[2]
    receipt = json.loads(path.read_text())
    CHANGES[change](receipt)
    path.write_text(json.dumps(receipt))
    assert verify(path)


def test_other_weights_are_found(run):
    path = run[2]
    weights = path.with_name("model.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    assert any("weights" in line for line in verify(path))
    weights.rename(weights.with_name("another.safetensors"))
    assert any("weights" in line for line in verify(path))


def test_a_receipt_may_travel_without_its_weights(run, tmp_path):
    """Its account is verified, and it is said what is not here; not so if the weights are, under another name."""
    path = tmp_path / "alone" / "receipt.json"
    path.parent.mkdir()
    path.write_bytes(run[2].read_bytes())
    examined = examine(path)
    assert examined.differences == ()
    assert examined.away == ("model.safetensors",)
    run[2].with_name("model.safetensors").rename(path.with_name("other.safetensors"))
    assert any("weights" in line for line in verify(path))


@pytest.mark.parametrize("content", ["", "[]", "{}", "not json", '{"receipt": 99}'])
def test_a_file_that_is_no_receipt_is_refused(tmp_path, content):
    path = tmp_path / "receipt.json"
    path.write_text(content)
    with pytest.raises(InvalidArgument, match="receipt"):
        verify(path)


def test_a_plan_in_the_place_of_a_receipt_is_called_one(tmp_path):
    path = tmp_path / "plan.json"
    work = plrvo.Workload(sample_rate=0.1, steps=6, clip=1.0, dimension=650)
    plrvo.Plan.certify(plrvo.Laplace(2.0), work, 1e-5).save(path)
    with pytest.raises(InvalidArgument, match="this is a plan"):
        verify(path)


def test_a_receipt_cannot_claim_steps_that_were_not_taken(run):
    _, optimizer, _, _ = run
    with pytest.raises(AttributeError):
        optimizer.steps_taken = 4
