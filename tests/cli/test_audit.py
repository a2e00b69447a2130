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
    arguments = ["audit", "clipbkd", "--data-dir", str(tmp_path), "--steps", "10", "--models", "40", "--seed", "1"]
    result = run(capsys, 0, *arguments, "--noise", "laplace", "--epsilon", "1", "--epsilon", "4", "--plot", str(figure))
    assert [row["epsilon_claimed"] for row in result["rows"]] == pytest.approx([1.0, 4.0], rel=1e-3)
    assert [row["runs"] for row in result["rows"]] == [40, 40]
    assert result["verdict"] == "consistent"
    assert b"<svg" in figure.read_bytes()
    broken = ["--noise", "laplace", "--epsilon", "0.1", "--without", "noise", "--steps", "50", "--sample-rate", "0.5"]
    assert run(capsys, 1, *arguments, *broken)["without"] == "noise"
    one = run(capsys, 0, *arguments, "--noise", "gamma", "--k", "20", "--theta", "0.01", "--model", "fnn")
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
        (["--noise", "gamma", "--epsilon", "1"], "--k (missing)"),
        (["--noise", "laplace", "--scale", "1", "--models", "8"], "--models 8"),
        (["--noise", "laplace", "--scale", "1", "--sample-rate", "3"], "--sample-rate 3.0"),
    ):
        assert main([*data, *arguments]) == 2
        assert named in capsys.readouterr().err
