"""What kind of run a path holds; bad input is one line."""

import json

import pytest
from tests.report.samples import CLIPBKD, MECHANISM, ONE_RUN, POISSON, changed_receipt, copied, page_of, reproduction

from plrvo import GammaPLRV, Laplace, Workload, epsilon
from plrvo.report.loading import read_run
from plrvo.report.runs import Audits, Reproduction, Training
from plrvo.validate import InvalidArgument


def test_a_training_folder_and_its_receipt_are_the_same_run(gamma_run):
    run = read_run(gamma_run)
    assert isinstance(run, Training)
    assert run == read_run(gamma_run / "receipt.json")
    written = json.loads((gamma_run / "receipt.json").read_text())
    assert run.receipt is not None
    assert run.receipt.bracket.certified == written["epsilon"]["certified"]
    assert run.receipt.seeded
    assert run.verified
    assert [row["step"] for row in run.history] == [3, 6, 9, 12]


def test_a_run_without_noise_claims_nothing(plain_run):
    run = read_run(plain_run)
    assert isinstance(run, Training)
    assert run.receipt is None
    assert run.verified is None


def test_an_unfinished_run_counts_the_steps_that_it_took(unfinished_run):
    run = read_run(unfinished_run)
    assert isinstance(run, Training)
    assert run.receipt is not None
    assert (run.receipt.steps, run.receipt.planned) == (6, 40)
    assert run.verified


def test_a_reproduction_brings_the_receipts_of_its_runs(table, gamma_run, tmp_path):
    assert isinstance(read_run(table), Reproduction)
    assert read_run(table).verified is None  # nothing in it can be recomputed
    folder = reproduction(tmp_path / "table")
    copied(gamma_run, folder / "runs" / "epsilon-0.065" / "gamma")
    assert read_run(folder).verified
    changed_receipt(folder / "runs" / "epsilon-0.065" / "gamma", lambda receipt: receipt.update(delta=1e-9))
    assert not read_run(folder).verified


def test_an_edited_reproduction_is_refused_and_a_reworded_one_is_not(tmp_path):
    """The page reads what `plrvo reproduce` reads, and no more."""
    folder = reproduction(tmp_path / "table")
    found = json.loads((folder / "reproduction.json").read_text())
    (folder / "reproduction.json").write_text(json.dumps({**found, "findings": ["said better"]}))
    assert read_run(folder).findings == ["said better"]
    found["rows"][0]["measured"]["gamma"] += 10
    (folder / "reproduction.json").write_text(json.dumps(found))
    for path in (folder, folder / "reproduction.json"):
        with pytest.raises(InvalidArgument, match="as it was written") as refused:
            read_run(path)
        assert refused.value.argument == "runs"


def test_audits_are_recomputed_from_their_counts(tmp_path):
    run = read_run(MECHANISM)
    assert isinstance(run, Audits)
    assert run.results[0].refuted
    assert run.verified
    assert [result.verdict for result in read_run(CLIPBKD).results] == ["consistent"] * 4
    claimed = json.loads(MECHANISM.read_text()) | {"epsilon_audited": 0.5, "verdict": "consistent"}
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(claimed))
    assert any("recomputed, it is 3.48" in difference for difference in read_run(path).differences)
    path.write_text(json.dumps(json.loads(MECHANISM.read_text()) | {"verdict": "consistent"}))
    assert read_run(path).differences == ["its verdict is 'consistent'; recomputed, it is refuted"]


@pytest.mark.parametrize(
    ("source", "changes", "said"),
    [
        (POISSON, {"epsilon_claimed": 0.5}, "its claim (certified) is epsilon 0.5; recomputed, it is 0.718"),
        (POISSON, {"epsilon_certifiable": 12.0}, "could show epsilon 12.0; recomputed, it is 9.8"),
        (POISSON, {"delta": 0}, "a number in (0, 1)"),
        (POISSON, {"delta": 1}, "a number in (0, 1)"),
        (MECHANISM, {"epsilon_claimed": 2.95}, "its claim (published) is epsilon 2.95; recomputed, it is 2.90"),
        (POISSON, {"claim": "0.5"}, "its claim (0.5) is epsilon 0.718"),
        (ONE_RUN, {"epsilon_claimed": 1.0}, "its claim (certified) is epsilon 1.0; recomputed, it is 1.9999"),
    ],
)
def test_a_claim_is_recomputed_from_the_noise_and_the_steps(tmp_path, source, changes, said):
    content = json.loads(source.read_text())
    content = content["rows"][0] if "rows" in content else content
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(content))
    assert read_run(path).verified
    path.write_text(json.dumps(content | changes))
    run = read_run(path)
    assert run.verified is False
    assert any(said in difference for difference in run.differences)


def test_metrics_that_cannot_be_read_are_named_by_their_file(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("[1]\n")
    with pytest.raises(InvalidArgument, match=r"metrics\.jsonl") as refused:
        read_run(tmp_path)
    assert refused.value.argument == "runs"


def test_a_claim_by_a_clipping_of_the_l1_norm_is_for_one_coordinate(tmp_path):
    noise, path = Laplace(0.5), tmp_path / "audit.json"
    one = epsilon(noise, Workload(0.01, 100, 1.0, 1), 1e-5).certified
    content = json.loads(POISSON.read_text()) | {"epsilon_claimed": one, "noise": noise.to_dict()}
    path.write_text(json.dumps(content | {"clipping": "l1"}))
    assert read_run(path).verified
    path.write_text(json.dumps(content))
    assert read_run(path).verified is False


def test_a_claim_by_a_clipping_of_the_l1_norm_is_verified_where_one_coordinate_is_the_worst(tmp_path):
    """Gamma noise shows more of a gradient that is spread: its largest loss is m log(1 + x/m), which adds up."""
    noise, path = GammaPLRV(1.0, 1.0), tmp_path / "audit.json"
    one = epsilon(noise, Workload(0.01, 100, 1.0, 1), 1e-5).certified
    content = json.loads(POISSON.read_text()) | {"epsilon_claimed": one, "noise": noise.to_dict(), "clipping": "l1"}
    path.write_text(json.dumps(content))
    assert read_run(path).verified is None


@pytest.mark.parametrize(
    "changes",
    [{"noise": None}, {"noise": {"noise": "unheard"}}, {"workload": {}}, {"workload": 3}, {"claim": "receipt"}],
)
def test_a_claim_that_cannot_be_recomputed_is_not_called_verified(tmp_path, changes):
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(json.loads(POISSON.read_text()) | changes))
    run = read_run(path)
    assert run.differences == []
    assert run.verified is None
    assert "The claim was not verified" in page_of(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda receipt: receipt["epsilon"].update(certified=0.1),
        lambda receipt: receipt["epsilon"].update(lower=0.0),
        lambda receipt: receipt.update(steps=3),
        lambda receipt: receipt["task"].update(name="another"),
        lambda receipt: receipt["audit"].update(verdict="refuted"),
    ],
)
def test_a_changed_receipt_does_not_verify_and_its_plan_is_not_used(gamma_run, tmp_path, change):
    folder = copied(gamma_run, tmp_path / "run")
    changed_receipt(folder, change)
    run = read_run(folder)
    assert run.verified is False
    assert run.receipt.differences


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda receipt: receipt["epsilon"].pop("certified"), "a number in epsilon.certified"),
        (lambda receipt: receipt["epsilon"].update(certified=-1), "zero or above in epsilon.certified"),
        (lambda receipt: receipt["epsilon"].update(certified=10**400), "a number in epsilon.certified"),
        (lambda receipt: receipt["epsilon"].update(certified=True), "a number in epsilon.certified"),
        (lambda receipt: receipt.update(task="digits"), "an object in task"),
        (lambda receipt: receipt.update(adjacency=None), "a text in adjacency"),
        (lambda receipt: receipt.update(receipt=9), "a receipt of format 1"),
    ],
)
def test_a_receipt_without_what_the_page_needs_is_refused(gamma_run, tmp_path, change, said):
    folder = copied(gamma_run, tmp_path / "run")
    changed_receipt(folder, change)
    with pytest.raises(InvalidArgument, match=said):
        read_run(folder)


def test_places_without_a_run_are_refused(tmp_path, gamma_run):
    with pytest.raises(InvalidArgument, match=r"neither receipt\.json nor reproduction\.json"):
        read_run(tmp_path)
    with pytest.raises(InvalidArgument, match="No such file"):
        read_run(tmp_path / "missing")
    folder = copied(gamma_run, tmp_path / "run")
    (folder / "receipt.json").unlink()
    with pytest.raises(InvalidArgument, match=r"a private run with its receipt\.json"):
        read_run(folder)
    for content in ("", "not json", "[]", "{}", '{"rows": []}', '{"receipt": 1}', '{"rows": 1, "scale": 2}'):
        path = tmp_path / "file.json"
        path.write_text(content)
        with pytest.raises(InvalidArgument) as refused:
            read_run(path)
        assert refused.value.argument == "runs"


def test_metrics_without_steps_are_refused(plain_run, tmp_path):
    folder = copied(plain_run, tmp_path / "run")
    (folder / "metrics.jsonl").write_text('{"accuracy": 0.5}\n')
    with pytest.raises(InvalidArgument, match="step"):
        read_run(folder)
