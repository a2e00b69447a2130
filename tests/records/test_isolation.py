"""What a receipt says of the premise of its proof, through modes, checkpoints and seeds."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_model
from tests.records.receipts import KINDS
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import plrvo
from plrvo.audit.receipt import examine
from plrvo.files import json_digest, write_json
from plrvo.noise import Keystream
from plrvo.records.isolation import NOT_SAID, Isolation, isolation_of, weakest
from plrvo.training import PrivacyEngine
from plrvo.training.receipts import make_receipt
from plrvo.validate import InvalidArgument

SIZE, STEPS = 24, 4


def by_example(module: nn.Module, example: Any) -> Tensor:
    return cross_entropy(module(example[0]), example[1])


class Run:
    """A small loop of one's own, in any mode."""

    def __init__(self, mode: str, *, clipping: str = "flat", exact: bool = False, key: int | None = None, **options):
        torch.manual_seed(0)
        self.model, self.mode = nn.Linear(3, 2), mode
        work = plrvo.Workload(sample_rate=0.5, steps=STEPS, clip=1.0, dimension=8)
        plan = plrvo.Plan.certify(plrvo.Laplace(2.0), work, 1e-4, clipping=clipping)
        self.engine = PrivacyEngine(plan, exact=exact)
        streams = {} if key is None else {"noise_generator": Keystream(bytes([key] * 32))}
        if key is not None:
            streams["sample_generator"] = Keystream(bytes([key + 1] * 32))
        self.private, self.optimizer, self.loader = self.engine.make_private(
            module=self.model,
            optimizer=torch.optim.SGD(self.model.parameters(), lr=0.1),
            data_loader=DataLoader(TensorDataset(torch.randn(SIZE, 3), torch.randint(2, (SIZE,))), batch_size=12),
            grad_sample_mode=mode,
            criterion=by_example if mode == "alone" else None,
            **streams,
            **options,
        )

    def step(self, count: int) -> None:
        taken = 0
        while taken < count:
            for batch in self.loader:
                self.optimizer.zero_grad()
                if self.mode == "alone":
                    self.private.backward(batch)
                else:
                    cross_entropy(self.private(batch[0]), batch[1]).backward()
                self.optimizer.step()
                taken += 1
                if taken == count:
                    break

    def receipt(self, folder: Path, said: dict[str, Any] | None = None) -> Path:
        folder.mkdir(exist_ok=True)
        save_model(self.model, str(folder / "model.safetensors"))
        task = {"name": "small", "examples": SIZE}
        made = make_receipt(self.engine, self.optimizer, folder / "model.safetensors", task, said)
        made.write(folder / "receipt.json")
        return folder / "receipt.json"


@pytest.mark.parametrize(
    ("mode", "clipping", "exact", "kind"),
    [
        ("hooks", "flat", False, Isolation.tried),
        ("bookkeeping", "flat", False, Isolation.tried),
        ("functorch", "flat", False, Isolation.tried),
        ("hooks", "l1", False, Isolation.tried),
        ("alone", "flat", False, Isolation.construction),
        ("alone", "l1", False, Isolation.construction),
        ("alone", "flat", True, Isolation.construction),
    ],
)
def test_every_receipt_says_it_and_verifies(mode: str, clipping: str, exact: bool, kind: str, tmp_path: Path) -> None:
    run = Run(mode, clipping=clipping, exact=exact)
    run.step(STEPS)
    found = examine(run.receipt(tmp_path))
    assert found.differences == ()
    assert found.run["isolation"] == kind
    assert found.isolation == Isolation(kind).sentence


def test_a_word_for_the_loss_is_the_callers(tmp_path: Path) -> None:
    run = Run("hooks", public_loss_weights=True)
    run.step(1)
    assert examine(run.receipt(tmp_path)).run["isolation"] == Isolation.vouched


@pytest.mark.parametrize(("first", "then"), [("hooks", "alone"), ("alone", "hooks")])
def test_steps_before_a_checkpoint_stand_as_they_were_taken(first: str, then: str, tmp_path: Path) -> None:
    before, after = Run(first), Run(then)
    before.step(2)
    before.engine.save_checkpoint(path=tmp_path / "c", module=before.private, optimizer=before.optimizer)
    after.engine.load_checkpoint(path=tmp_path / "c", module=after.private, optimizer=after.optimizer)
    after.step(2)
    found = examine(after.receipt(tmp_path / "run"))
    assert found.differences == ()
    assert found.run["isolation"] == Isolation.tried


def test_a_seed_of_earlier_steps_is_not_forgotten(tmp_path: Path) -> None:
    before, after = Run("hooks", key=1), Run("hooks")
    before.step(2)
    before.engine.save_checkpoint(path=tmp_path / "c", module=before.private, optimizer=before.optimizer)
    after.engine.load_checkpoint(path=tmp_path / "c", module=after.private, optimizer=after.optimizer)
    after.step(2)
    found = examine(after.receipt(tmp_path / "run"))
    assert found.differences == ()
    assert found.seeded
    assert found.warning is not None


@pytest.mark.parametrize("key", [None, 1])
@pytest.mark.parametrize(
    "said", [{}, {"seeded": True}, {"seeded": False}, {"randomness": "the operating system"}], ids=str
)
def test_a_caller_may_know_of_a_seed_and_not_deny_one(said: dict[str, Any], key: int | None, tmp_path: Path) -> None:
    run = Run("hooks", key=key)
    run.step(1)
    found = examine(run.receipt(tmp_path, said))
    assert found.differences == ()
    assert found.seeded is (key is not None or said.get("seeded", False))


@pytest.mark.parametrize("said", ["construction", "proved", 3])
def test_a_receipt_may_not_say_what_its_mode_does_not_give(said: Any, tmp_path: Path) -> None:
    run = Run("hooks")
    run.step(1)
    path = run.receipt(tmp_path)
    document = dict(plrvo.records.Receipt.read(path).document)
    document["run"] = {**document["run"], "isolation": said}
    document.pop("digest")
    write_json(path, {**document, "digest": json_digest(document)})
    assert any("construction" in text for text in examine(path).differences)


JOBS = {
    "alone": ({"grad_sample_mode": "alone"}, {}, "a loop of one's own"),
    "by construction": ({"grad_sample_mode": "alone", "isolation": "construction"}, {}, "that of a job is tried"),
    "the caller's word": ({"isolation": "vouched"}, {}, "that of a job is tried"),
    "asked for alone": ({"grad_sample_mode": "alone"}, {"grad_sample_mode": "alone"}, "a loop of one's own"),
    "another mode": ({}, {"grad_sample_mode": "functorch"}, "job.grad_sample_mode is 'functorch'"),
    "no mode": ({}, {"grad_sample_mode": "magic"}, "job.grad_sample_mode is 'magic'"),
}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = KINDS["asked"](tmp_path_factory.mktemp("asked"))
    path.with_name("checkpoint.safetensors").unlink()  # which has the job as well
    return path


@pytest.mark.parametrize("name", JOBS)
def test_a_job_trains_on_batches_and_tries_them(name: str, asked: Path) -> None:
    """`plrvo train` refuses to take examples one at a time, so no receipt of it can have done so."""
    run, job, said = JOBS[name]
    receipt = plrvo.records.Receipt.read(asked).document
    for other in ("auto", receipt["run"]["grad_sample_mode"]):
        assert not _forged(asked, {}, {"grad_sample_mode": other})
    assert any(said in text for text in _forged(asked, run, job))


def _forged(path: Path, run: dict[str, Any], job: dict[str, Any]) -> tuple[str, ...]:
    """The differences of the receipt with these changes, signed again."""
    document = dict(plrvo.records.Receipt.read(path).document)
    document |= {"run": document["run"] | run, "job": document["job"] | job}
    document.pop("digest")
    write_json(path.with_name("forged.json"), {**document, "digest": json_digest(document)})
    return examine(path.with_name("forged.json")).differences


def test_one_example_at_a_time_takes_one_process(tmp_path: Path) -> None:
    run = Run("alone")
    run.step(1)
    path = run.receipt(tmp_path)
    document = dict(plrvo.records.Receipt.read(path).document)
    document["run"] = {**document["run"], "processes": 4}
    document.pop("digest")
    write_json(path, {**document, "digest": json_digest(document)})
    assert any("it ran in 4 processes" in text for text in examine(path).differences)


def test_older_receipts_say_it_by_their_mode() -> None:
    assert isolation_of({}) is None
    assert "not said" in NOT_SAID
    assert isolation_of({"grad_sample_mode": "ghost"}) is Isolation.tried
    assert isolation_of({"grad_sample_mode": "alone"}) is Isolation.construction


def test_the_weakest_of_all_steps() -> None:
    for one in Isolation:
        assert weakest(None, one) is one
        assert weakest(one, Isolation.vouched) is Isolation.vouched
    assert weakest(Isolation.construction, Isolation.tried) is Isolation.tried


def test_steps_of_another_engine_or_a_ledger_by_hand_get_no_receipt(tmp_path: Path) -> None:
    first, second = Run("hooks"), Run("alone")
    first.step(1)
    second.step(1)
    save_model(first.model, str(tmp_path / "model.safetensors"))
    with pytest.raises(InvalidArgument, match="this engine's make_private"):
        make_receipt(second.engine, first.optimizer, tmp_path / "model.safetensors", {})
    third = Run("alone")
    third.engine.accountant.load_state_dict(first.engine.accountant.state_dict())
    third.step(1)
    with pytest.raises(InvalidArgument, match="loaded by hand"):
        third.receipt(tmp_path)
