import json

import numpy as np
import pytest
from tests.audit.toy import write_fashion

from plrvo.cli.main import main

CNN = ["--clip", "0.5", "--sample-rate", "0.01", "--steps", "300", "--dimension", "26010", "--delta", "1e-5"]
GAMMA = ["--noise", "gamma", "--k", "40000", "--theta", "1e-4"]
MECHANISM = ["audit", "mechanism", *GAMMA, *CNN, "--seed", "1"]
SMALL = [
    "audit",
    "mechanism",
    "--noise",
    "laplace",
    "--scale",
    "1",
    "--clip",
    "1",
    "--sample-rate",
    "1",
    "--steps",
    "2",
]


def run(capsys, expected: int, *arguments: str) -> dict:
    assert main([*arguments, "--json"]) == expected
    return json.loads(capsys.readouterr().out)


def test_the_published_claim_is_refuted_with_exit_code_1(capsys):
    result = run(capsys, 1, *MECHANISM, "--trials", "400000", "--claim", "published", "--jobs", "2")
    assert result["verdict"] == "refuted"
    assert result["epsilon_claimed"] == pytest.approx(2.901, abs=1e-3)
    assert result["epsilon_audited"] > result["epsilon_claimed"]
    assert result["confidence"] == 0.99
    assert result["canary"]["coordinates"] == 26_010


def test_the_certified_claim_is_consistent_with_exit_code_0(capsys):
    result = run(capsys, 0, *MECHANISM, "--trials", "20000", "--claim", "certified")
    assert result["verdict"] == "consistent"
    assert main([*MECHANISM, "--trials", "2000"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "could not have refuted this claim" in words
    assert "proved" in words


def test_a_number_is_a_claim_and_canaries_can_be_chosen(capsys, tmp_path):
    file = tmp_path / "gradient.npy"
    np.save(file, np.full(4, 0.5))
    small = [*SMALL, "--dimension", "50", "--trials", "4000", "--seed", "1", "--claim", "0.5"]
    for canary in (["--canary", "one-hot"], ["--coordinates", "9"], ["--canary-file", str(file)], []):
        result = run(capsys, 1, *small, *canary)
        assert result["epsilon_claimed"] == 0.5
    assert result["canary"]["coordinates"] == 50


def test_gaussian_noise_without_sampling_gets_its_own_fit(capsys):
    gaussian = ["audit", "mechanism", "--noise", "gaussian", "--noise-multiplier", "1", *SMALL[6:], "--dimension", "5"]
    result = run(capsys, 0, *gaussian, "--trials", "8000", "--seed", "1")
    assert result["epsilon_audited"] < result["epsilon_gaussian_dp"] < result["epsilon_claimed"]
    assert run(capsys, 0, *MECHANISM, "--trials", "4000")["epsilon_gaussian_dp"] is None


def test_shuffled_batches_break_the_claim_of_poisson_batches(capsys):
    work = ["--clip", "1", "--sample-rate", "0.01", "--steps", "100", "--dimension", "10"]
    gaussian = ["audit", "mechanism", "--noise", "gaussian", "--noise-multiplier", "1", *work, "--seed", "1"]
    result = run(capsys, 1, *gaussian, "--sampler", "shuffled", "--trials", "100000")
    assert result["epsilon_audited"] > 1


def test_an_audit_resumes_from_its_state_and_draws_its_figure(capsys, tmp_path):
    small = [*SMALL, "--dimension", "50", "--trials", "4000", "--seed", "1"]
    state, figure = tmp_path / "state.npz", tmp_path / "audit.png"
    first = run(capsys, 0, *small, "--state", str(state), "--plot", str(figure))
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert run(capsys, 0, *small, "--state", str(state)) == first
    assert main([*small[:-1], "2", "--state", str(state)]) == 2
    assert "the same seed" in capsys.readouterr().err


def test_clipbkd_sweeps_epsilons(capsys, tmp_path):
    write_fashion(tmp_path / "fashion-mnist")
    figure = tmp_path / "audit.svg"
    arguments = ["audit", "clipbkd", "--data-dir", str(tmp_path), "--models", "40", "--seed", "1"]
    sweep = ["--noise", "laplace", "--steps", "10", "--epsilon", "1", "--epsilon", "4", "--plot", str(figure)]
    result = run(capsys, 0, *arguments, *sweep)
    assert [row["epsilon_claimed"] for row in result["rows"]] == pytest.approx([1.0, 4.0], rel=1e-3)
    assert [row["runs"] for row in result["rows"]] == [40, 40]
    assert result["verdict"] == "consistent"
    assert b"<svg" in figure.read_bytes()
    broken = ["--noise", "laplace", "--epsilon", "0.1", "--without", "noise", "--steps", "50", "--sample-rate", "0.5"]
    assert run(capsys, 1, *arguments, *broken)["without"] == "noise"
    gamma = ["--noise", "gamma", "--k", "20", "--theta", "0.01", "--model", "fnn", "--steps", "10"]
    one = run(capsys, 0, *arguments, *gamma)
    assert {"epsilon_audited", "confidence", "epsilon_claimed", "verdict"} <= set(one)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([*MECHANISM, "--claim", "lots"], "--claim lots"),
        ([*MECHANISM, "--claim", "nan"], "--claim nan"),
        ([*MECHANISM, "--claim", "-1"], "--claim -1"),
        ([*MECHANISM, "--trials", "20"], "--trials 20: expected at least 32"),
        ([*MECHANISM, "--confidence", "1"], "--confidence 1.0"),
        ([*MECHANISM, "--coordinates", "30000"], "--coordinates 30000"),
        ([*MECHANISM, "--canary", "one-hot", "--coordinates", "3"], "--coordinates 3"),
        ([*MECHANISM, "--canary-file", "no-such-file.npy"], "--canary-file no-such-file.npy"),
        ([*MECHANISM, "--plot", "figure.txt"], "--plot figure.txt"),
        ([*SMALL, "--dimension", "5", "--sampler", "sorted"], "sorted"),
        (
            ["audit", "mechanism", "--noise", "gaussian", "--noise-multiplier", "1", *CNN, "--claim", "published"],
            "--claim published",
        ),
        (["audit", "clipbkd", "--data-dir", "no-such-folder", "--noise", "laplace", "--scale", "1"], "--data-dir"),
        (["audit", "clipbkd", "--data", "imagenet"], "imagenet"),
    ],
)
def test_bad_input_is_one_line_that_names_the_option(capsys, arguments, named):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.strip().count("\n") == 0
    assert named in captured.err


def test_widths_and_epsilons_do_not_mix(capsys, tmp_path):
    write_fashion(tmp_path / "fashion-mnist")
    data = ["audit", "clipbkd", "--data-dir", str(tmp_path)]
    for arguments, named in (
        (["--noise", "laplace", "--scale", "1", "--epsilon", "1"], "--scale 1.0"),
        (["--noise", "laplace", "--k", "3", "--epsilon", "1"], "--k 3.0"),
        (["--noise", "laplace", "--scale", "1", "--models", "8"], "--models 8"),
        (["--noise", "laplace", "--scale", "1", "--sample-rate", "3"], "--sample-rate 3.0"),
    ):
        assert main([*data, *arguments]) == 2
        assert named in capsys.readouterr().err


ONE_RUN = ["audit", "one-run", "digits", "--model", "logistic", "--steps", "30", "--sample-rate", "0.1", "--clip", "1"]


def test_one_run_tries_a_claim_in_one_training(capsys, tmp_path):
    small = [*ONE_RUN, "--canaries", "300", "--seed", "1", "--noise", "laplace"]
    figure = tmp_path / "audit.png"
    result = run(capsys, 0, *small, "--epsilon", "3", "--plot", str(figure))
    assert {"epsilon_audited", "confidence", "epsilon_claimed", "verdict"} <= set(result)
    assert result["canary"] == {
        "count": 300,
        "kind": "gradient",
        "coordinates": 1,
        "included": "by a fair coin each",
    }
    assert result["workload"]["dimension"] == 950  # 650 of the model and one for each canary
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert run(capsys, 0, *small, "--epsilon", "3") == result  # the seed repeats it
    too_little = run(capsys, 1, *small, "--scale", "0.05", "--claim", "2")
    assert (too_little["verdict"], too_little["claim"]) == ("refuted", "2")
    black = run(capsys, 0, *small, "--epsilon", "3", "--canary", "example", "--guesses", "50")
    assert (black["guesses"], black["workload"]["dimension"]) == (50, 650)
    assert main([*small, "--epsilon", "3"]) == 0
    assert "guesses about 300 canaries" in " ".join(capsys.readouterr().out.split())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run with its receipt, a large enough claim for the models of ClipBKD."""
    folder = tmp_path_factory.mktemp("trained")
    small = ["--model", "cnn", "--noise", "laplace", "--epsilon", "2", "--steps", "10", "--sample-rate", "0.1"]
    assert main(["train", "digits", *small, "--clip", "1", "--seed", "1", "--out", str(folder), "--json"]) == 0
    return folder / "receipt.json"


def test_every_audit_tries_the_claim_of_a_receipt(capsys, tmp_path, trained):
    write_fashion(tmp_path / "fashion-mnist")
    known = json.loads(trained.read_text())
    for command in (
        ["mechanism", "--trials", "4000"],
        ["clipbkd", "--data-dir", str(tmp_path), "--models", "40"],
        ["one-run", "--canaries", "200"],
        ["one-run", "--canaries", "100", "--canary", "example"],
    ):
        result = run(capsys, 0, "audit", *command, "--receipt", str(trained), "--seed", "1")
        assert result["claim"] == "receipt"
        assert result["epsilon_claimed"] == known["epsilon"]["certified"]
        assert result["noise"] == known["plan"]["noise"]
        assert result["workload"]["steps"] == 10
    assert result["workload"]["dimension"] == known["plan"]["workload"]["dimension"]


def test_a_run_that_was_charged_is_not_repeated_for_nothing_without_a_word(capsys, tmp_path):
    account, out = str(tmp_path / "digits.budget"), tmp_path / "run"
    assert main(["budget", "create", account, "--epsilon", "20", "--delta", "1e-3"]) == 0
    small = ["--model", "logistic", "--noise", "laplace", "--epsilon", "8", "--steps", "4", "--seed", "1"]
    assert main(["train", "digits", *small, "--budget", account, "--out", str(out), "--json"]) == 0
    again = ["audit", "one-run", "--canaries", "50", "--receipt", str(out / "receipt.json"), "--seed", "1", "--json"]
    capsys.readouterr()
    assert main(again) == 0
    assert "is charged to none without --budget" in capsys.readouterr().err
    assert main([*again, "--budget", account]) == 0
    assert "is charged to none" not in capsys.readouterr().err


def test_a_run_of_an_optimizer_without_momentum_is_repeated(capsys, tmp_path):
    small = ["--model", "logistic", "--noise", "laplace", "--epsilon", "8", "--steps", "4", "--optimizer", "adam"]
    assert main(["train", "digits", *small, "--seed", "1", "--out", str(tmp_path), "--json"]) == 0
    capsys.readouterr()
    receipt = str(tmp_path / "receipt.json")
    assert run(capsys, 0, "audit", "one-run", "--canaries", "50", "--receipt", receipt, "--seed", "1")["guesses"] <= 50


def test_receipts_that_cannot_be_tried_are_refused(capsys, tmp_path, trained):
    changed = json.loads(trained.read_text())
    changed["epsilon"]["certified"] *= 2
    (tmp_path / "receipt.json").write_text(json.dumps(changed))
    (tmp_path / "none.json").write_text("{}")
    whole = ["--receipt", str(trained)]
    for arguments, named in (
        (["mechanism", "--receipt", str(tmp_path / "receipt.json")], "a receipt that verifies"),
        (["clipbkd", "--receipt", str(tmp_path / "receipt.json")], "a receipt that verifies"),
        (["one-run", "--receipt", str(tmp_path / "receipt.json")], "a receipt that verifies"),
        (["mechanism", "--receipt", str(tmp_path / "none.json")], "--receipt"),
        (["mechanism", "--receipt", str(tmp_path / "absent.json")], "--receipt"),
        (["mechanism", *whole, "--claim", "1"], "--claim 1"),
        (["mechanism", *whole, "--clip", "1"], "--clip 1.0"),
        (["mechanism", *whole, "--delta", "1e-6"], "--delta 1e-06"),
        (["mechanism", *whole, "--shared"], "--shared True"),
        (["clipbkd", *whole, "--epsilon", "1"], "--epsilon [1.0]"),
        (["one-run", "digits", *whole], "TASK digits"),
        (["one-run", *whole, "--lr", "1"], "--lr 1.0"),
    ):
        assert main(["audit", *arguments]) == 2
        error = capsys.readouterr().err
        assert named in error
        assert error.strip().count("\n") == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--canaries", "5", "--noise", "laplace", "--scale", "1"], "--canaries 5: expected more of them"),
        (["--canaries", "2000", "--noise", "laplace", "--scale", "1"], "at most the 1442 examples"),
        (["--guesses", "5", "--noise", "laplace", "--scale", "1"], "--guesses 5"),
        (["--noise", "laplace", "--scale", "1", "--claim", "lots"], "--claim lots"),
        (["--noise", "laplace", "--scale", "1", "--coordinates", "0"], "--coordinates 0"),
        ([], "--epsilon (missing)"),
    ],
)
def test_bad_one_run_audits_are_refused_in_one_line(capsys, arguments, named):
    assert main([*ONE_RUN, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert named in captured.err.strip().splitlines()[-1]


def test_train_writes_its_audit_into_the_receipt(capsys, tmp_path):
    small = ["train", "digits", "--model", "logistic", "--noise", "laplace", "--epsilon", "3", "--steps", "30"]
    small += ["--sample-rate", "0.1", "--clip", "1", "--seed", "1"]
    assert main([*small, "--audit", "300", "--out", str(tmp_path / "a"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    receipt = json.loads((tmp_path / "a" / "receipt.json").read_text())
    assert result["audit"] == receipt["audit"]
    assert receipt["audit"]["canaries"] == receipt["task"]["canaries"]["count"] == 300
    assert receipt["audit"]["epsilon_claimed"] == receipt["epsilon"]["certified"]
    assert main(["verify", str(tmp_path / "a" / "receipt.json")]) == 0
    assert main([*small, "--audit", "300", "--canary", "example", "--out", str(tmp_path / "b")]) == 0
    assert "canaries were right" in capsys.readouterr().out
    for arguments, named in (
        (["--audit", "5"], "--audit 5: expected more of them"),
        (["--audit", "9999"], "--audit 9999: expected at most the 1442"),
    ):
        assert main([*small, *arguments, "--out", str(tmp_path / "c")]) == 2
        assert named in capsys.readouterr().err
    receipt_plan = json.loads((tmp_path / "b" / "receipt.json").read_text())["plan"]
    (tmp_path / "plan.json").write_text(json.dumps(receipt_plan))
    planned = ["train", "digits", "--model", "logistic", "--plan", str(tmp_path / "plan.json"), "--audit", "300"]
    assert main([*planned, "--out", str(tmp_path / "c")]) == 2
    assert "a plan of dimension 950" in capsys.readouterr().err
    plain = ["train", "digits", "--noise", "none", "--audit", "300", "--out", str(tmp_path / "d")]
    assert main(plain) == 2
    assert "without one nothing is claimed" in capsys.readouterr().err


def test_a_resumed_training_keeps_its_canaries(capsys, tmp_path):
    small = ["train", "digits", "--model", "logistic", "--noise", "laplace", "--epsilon", "3", "--steps", "12"]
    small += ["--sample-rate", "0.1", "--clip", "1", "--audit", "300", "--out", str(tmp_path), "--json"]
    assert main(small) == 0  # no seed: coins from the operating system
    first = json.loads(capsys.readouterr().out)
    assert main([*small, "--resume"]) == 0
    assert json.loads(capsys.readouterr().out)["audit"] == first["audit"]
    assert main([*small[:-5], "--audit", "299", "--out", str(tmp_path), "--resume"]) == 2
    capsys.readouterr()
    assert main(["train", "--resume", "--out", str(tmp_path), "--json"]) == 0  # the folder knows of them
    assert json.loads(capsys.readouterr().out)["audit"] == first["audit"]
