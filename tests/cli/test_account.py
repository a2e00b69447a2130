import json
import subprocess
import sys

import pytest

from plrvo import Epsilon, Laplace, Workload
from plrvo.cli import show
from plrvo.cli.main import main
from plrvo.cli.show import rounded_down, rounded_up

CNN = ["--clip", "0.5", "--sample-rate", "0.01", "--steps", "300", "--dimension", "26010", "--delta", "1e-5"]
GAMMA = ["--noise", "gamma", "--k", "40000", "--theta", "6e-5"]


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_account_prints_the_bracket_that_the_readme_promises(capsys):
    result = run_json(capsys, "account", *GAMMA, *CNN)
    assert result["epsilon_published"] == pytest.approx(1.607, abs=5e-4)
    assert result["epsilon_certified"] == pytest.approx(1.821, abs=2e-3)
    assert result["epsilon_lower"] > result["epsilon_published"]
    assert {"order", "method", "sigma_effective", "distortion", "workload"} <= set(result)


def test_account_says_when_the_published_figure_is_refuted(capsys):
    assert main(["account", *GAMMA, *CNN]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "The published figure is refuted for this setting" in words


def test_account_is_silent_where_the_published_figure_is_not_refuted(capsys):
    assert (
        main(["account", "--noise", "gamma", "--k", "20000", "--theta", "8e-5", *CNN[:0], "--clip", "0.3", *CNN[2:]])
        == 0
    )
    assert "refuted" not in capsys.readouterr().out


def test_gaussian_has_no_published_figure(capsys):
    result = run_json(capsys, "account", "--noise", "gaussian", "--noise-multiplier", "1", *CNN)
    assert result["epsilon_published"] is None
    assert result["sigma_effective"] == pytest.approx(1.0)


@pytest.mark.parametrize("given", [["--delta", "0.5"], ["--steps", "3"], ["--noise", "laplace"], ["--k", "2"]])
def test_the_paper_table_refuses_what_it_does_not_use(capsys, given):
    assert main(["account", "--table", *given]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"plrvo: {given[0]} {given[1]}")
    assert told.err.endswith("expected no value beside --table, whose rows have their own\n")


def test_paper_table_has_nine_rows_and_one_refuted(capsys):
    rows = run_json(capsys, "account", "--table")["rows"]
    assert len(rows) == 9
    assert [row["verdict"] for row in rows].count("refuted") == 1
    for row in rows[1:]:  # the paper cuts its digits; row 1's 0.065 is its formula at another order
        assert 0 <= row["epsilon"]["published"] - row["printed_epsilon"] < 1.1e-3


def test_noise_file_describes_any_noise(capsys, tmp_path):
    file = tmp_path / "noise.json"
    file.write_text(
        json.dumps({"noise": "plrv", "seed": {"seed": "uniform", "low": 1.0, "high": 3.0}, "shared": False})
    )
    result = run_json(capsys, "account", "--noise-file", str(file), *CNN)
    assert result["epsilon_lower"] < result["epsilon_certified"]


def test_calibrate_prints_the_multiplier_that_account_takes(capsys):
    assert main(["calibrate", "--noise", "gaussian", "--epsilon", "1", *CNN]) == 0
    option, value = capsys.readouterr().out.splitlines()[-1].split()[:2]
    found = run_json(capsys, "account", "--noise", "gaussian", option, value, *CNN)
    assert 0.99 < found["epsilon_certified"] <= 1


def test_what_calibrate_prints_can_be_typed(capsys):
    work = ["--sample-rate", "0.01", "--steps", "300", "--clip", "1", "--dimension", "100000"]
    assert main(["calibrate", "--epsilon", "1", "--noise", "gamma", "--k", "1e4", "--shared", *work]) == 0
    typed = capsys.readouterr().out.splitlines()[-1].split()
    assert "--shared" in typed
    assert "True" not in typed
    assert main(["account", *typed, *work, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epsilon_certified"] <= 1


@pytest.mark.parametrize("kind", ["gaussian", "laplace", "gamma"])
def test_calibrate_meets_the_budget_and_account_agrees(capsys, kind):
    shape = ["--k", "50"] if kind == "gamma" else []
    fitted = run_json(capsys, "calibrate", "--noise", kind, *shape, "--epsilon", "1", *CNN)
    assert 0.999 < fitted["epsilon_certified"] <= 1.0
    parameters = {"gaussian": ("noise_multiplier",), "laplace": ("b",), "gamma": ("k", "theta")}[kind]
    option = {"b": "--scale", "noise_multiplier": "--noise-multiplier", "k": "--k", "theta": "--theta"}
    given = [word for name in parameters for word in (option[name], repr(fitted[name]))]
    again = run_json(capsys, "account", "--noise", kind, *given, *CNN)
    assert again["epsilon_certified"] == pytest.approx(fitted["epsilon_certified"], rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([*GAMMA, "--clip", "0.5", "--sample-rate", "1.5", *CNN[4:]], "--sample-rate 1.5"),
        ([*GAMMA, "--clip", "0.5", "--sample-rate", "0", *CNN[4:]], "--sample-rate 0.0"),
        ([*GAMMA, "--clip", "-1", *CNN[2:]], "--clip -1.0"),
        ([*GAMMA, *CNN[:4], "--steps", "0", *CNN[6:]], "--steps 0"),
        ([*GAMMA, *CNN[:4], "--steps", "3.5", *CNN[6:]], "--steps"),
        ([*GAMMA, *CNN[:6], "--dimension", "0"], "--dimension 0"),
        ([*GAMMA, *CNN[:8], "--delta", "1"], "--delta 1.0"),
        ([*GAMMA, *CNN[:8], "--delta", "nan"], "--delta nan"),
        (["--noise", "gamma", "--k", "-2", "--theta", "1", *CNN], "--k -2.0"),
        (["--noise", "gamma", "--k", "2", *CNN], "--theta (missing)"),
        (["--noise", "laplace", "--scale", "nan", *CNN], "--scale nan"),
        (["--noise", "gaussian", "--noise-multiplier", "0", *CNN], "--noise-multiplier 0.0"),
        (["--noise", "gaussian", "--scale", "3", *CNN], "--noise-multiplier (missing); no --scale 3.0"),
        ([*GAMMA, "--scale", "3", *CNN], "no --scale 3.0, which is for laplace"),
        (GAMMA, "--clip (missing): expected a value: it is required, and so are --sample-rate, --steps"),
        (["--noise", "cauchy", *CNN], "cauchy"),
        (["--noise-file", "no-such-file.json", *CNN], "no-such-file.json"),
        (CNN, "--noise (missing)"),
    ],
)
def test_bad_input_is_one_line_that_names_the_option(capsys, arguments, named):
    assert main(["account", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert named in captured.err


def test_an_infinite_epsilon_is_said_and_is_valid_json(capsys):
    no_noise = ["--noise", "gaussian", "--noise-multiplier", "1e-153", *CNN]
    assert run_json(capsys, "account", *no_noise)["epsilon_certified"] == "inf"
    assert main(["account", *no_noise]) == 0
    assert "nothing can be certified" in capsys.readouterr().out


def test_a_rate_may_be_a_fraction(capsys):
    words = ["account", "--noise-multiplier", "1.1", "--steps", "10", "--sample-rate"]
    as_fraction = run_json(capsys, *words, "256/60000")
    assert as_fraction == run_json(capsys, *words, repr(256 / 60000))
    assert as_fraction["workload"]["sample_rate"] == 256 / 60000


def test_certified_is_never_printed_smaller_and_lower_never_larger():
    assert rounded_up(2.38150628) == "2.382"
    assert rounded_up(0.5) == "0.5"
    assert rounded_down(1.77485) == "1.774"
    assert rounded_up(1e-9) == "1e-09"


def test_the_command_runs_as_a_process_and_exits_with_2_on_bad_input():
    done = subprocess.run(
        [sys.executable, "-m", "plrvo", "account", "--steps", "0"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("plrvo: ")


def test_importing_plrvo_needs_no_torch():
    code = "import sys, plrvo; assert not {'torch', 'dp_accounting', 'scipy.optimize', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_least_noise_is_gaussian_unless_another_is_named(capsys):
    words = ["calibrate", "--epsilon", "1", "--sample-rate", "0.01", "--steps", "300", "--json"]
    assert main(words) == 0
    plain = json.loads(capsys.readouterr().out)
    assert main([*words, "--noise", "gaussian"]) == 0
    assert plain == json.loads(capsys.readouterr().out)
    assert plain["noise_multiplier"] == plain["sigma"]


@pytest.mark.parametrize("method", ["rdp", "pure", "pld", "exact", "profile", "gdp", "gift"])
def test_no_row_of_the_table_is_wrapped_at_80_columns(method, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    bracket = Epsilon(1.2344e-5, 1.2342e-5, 1.1111e-5, 1e-5, method, 512 if method == "rdp" else None)
    show.bracket_table(Laplace(2.0), Workload(0.01, 300, 1.0, 26_010), bracket)
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert [row.split()[1] for row in rows] == ["certified", "lower", "published"]
    assert all(len(row) <= 80 and "…" not in row for row in rows)
    assert f"proved upper bound ({method}: " in rows[0]
