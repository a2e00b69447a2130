"""A correlated receipt proves its visits and its epsilon, and verification finds every change."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import save_file
from tests.training.ftrl.correlated import correlated
from tests.training.helpers import take_steps

import plrvo
from plrvo.accounting.correlated import Participation, Tree, fit_banded
from plrvo.audit.receipt import verify
from plrvo.files import json_digest
from plrvo.training.receipts import make_receipt


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a run of each kind, trained once."""
    kinds = ("fixed", "separated", "unfinished", "caller's")
    return {kind: train(kind, tmp_path_factory.mktemp("run")) for kind in kinds}


@pytest.fixture(params=["fixed", "separated", "unfinished", "caller's"])
def path(made, tmp_path, request):
    return Path(shutil.copytree(made[request.param], tmp_path / "run")) / "receipt.json"


def train(kind, folder):
    participation = Participation(5, 2, 3 if kind == "separated" else 5)
    own = [[i, i + 5] for i in range(5)] * 2 if kind == "caller's" else None
    engine, model, optimizer, loss, loader = correlated(
        fit_banded(3, 10), plrvo.Laplace(20.0), participation=participation, epsilon=50.0, batch_sampler=own
    )
    if kind == "unfinished":
        for _, (x, y) in zip(range(7), loader, strict=False):
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
    else:
        take_steps(model, optimizer, loss, loader)
    weights = folder / "model.safetensors"
    save_file({name: t.contiguous() for name, t in model._module.state_dict().items()}, weights)
    make_receipt(engine, optimizer, weights, {"name": "test"}, {}).write(folder / "receipt.json")
    return folder


def test_an_untouched_receipt_verifies_and_says_what_ran(path):
    assert verify(path) == []
    receipt = json.loads(path.read_text())
    assert "zero out" in receipt["adjacency"]
    assert receipt["visits"]["steps"] == receipt["steps"]
    assert receipt["visits"]["largest_count"] == 2
    assert receipt["visits"]["smallest_separation"] >= 3
    assert receipt["plan"]["correlation"]["strategy"]["strategy"] == "banded"
    assert (receipt["epsilon"]["certified"] == receipt["plan"]["epsilon_certified"]) == receipt["complete"]


def without_digest(receipt):
    """As a forger would, with a digest that fits: the change itself has to be found."""

    receipt.pop("digest")
    return {**receipt, "digest": json_digest(receipt)}


CHANGES = {
    "fewer visits": lambda r: r["visits"].update(steps=r["steps"] - 1),
    "more often": lambda r: r["visits"].update(largest_count=3),
    "closer": lambda r: r["visits"].update(smallest_separation=1),
    "another adjacency": lambda r: r.update(adjacency="add or remove one example"),
    "another strategy in the ledger": lambda r: r["ledger"][0]["correlation"]["strategy"].update(values=[1.0]),
    "fewer steps in the ledger": lambda r: r["ledger"][0].update(taken=3),
    "smaller epsilon": lambda r: r["epsilon"].update(certified=r["epsilon"]["certified"] * 0.9),
    "more epochs": lambda r: r["plan"]["correlation"]["participation"].update(epochs=3),
    "less restarted": lambda r: r["plan"]["correlation"].update(restart_every=2),
    "a plan without correlation": lambda r: r["plan"].pop("correlation"),
    "a ledger without correlation": lambda r: r["ledger"][0].pop("correlation"),
    "no visits": lambda r: r.pop("visits"),
}


def test_every_change_is_found_even_with_a_digest_that_fits(path):
    untouched = path.read_text()
    for name, change in CHANGES.items():
        receipt = json.loads(untouched)
        change(receipt)
        path.write_text(json.dumps(without_digest(receipt)))
        assert verify(path), name


@pytest.mark.parametrize("path", ["fixed", "separated", "unfinished"], indirect=True)
def test_another_order_of_visits_is_found(path):
    for key, value in (("digest", "0" * 64), ("seed", "5"), ("size", 61)):
        changed = json.loads(path.read_text())
        changed["visits"][key] = value
        path.with_name("changed.json").write_text(json.dumps(without_digest(changed)))
        assert any("order of visits" in line for line in verify(path.with_name("changed.json")))


def test_a_poisson_receipt_with_a_correlated_ledger_is_found(tmp_path):
    from tests.training.helpers import private

    engine, model, optimizer, loss, loader = private(plrvo.Laplace(2.0), steps=5, epsilon=50.0)
    take_steps(model, optimizer, loss, loader)
    weights = tmp_path / "model.safetensors"
    save_file({name: t.contiguous() for name, t in model._module.state_dict().items()}, weights)
    receipt = dict(make_receipt(engine, optimizer, weights, {}, {}))
    other, model, optimizer, loss, loader = correlated(Tree())
    take_steps(model, optimizer, loss, loader)
    receipt["ledger"] = other.accountant.history
    (tmp_path / "receipt.json").write_text(json.dumps(without_digest(receipt)))
    assert any("correlated" in line for line in verify(tmp_path / "receipt.json"))
