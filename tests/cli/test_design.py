import io
import json
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from plrvo import GammaPLRV, Gaussian, Laplace, Plan, Workload
from plrvo.cli import design as command
from plrvo.cli import design_result
from plrvo.cli.main import main
from plrvo.designer.comparison import compare

CNN = ["--sample-rate", "0.04", "--steps", "1250", "--dimension", "26010", "--clip-min", "0.1", "--clip-max", "0.2"]
BUDGET = ["--epsilon", "1", "--delta", "1e-5"]


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert main([*arguments, "--json"]) == 0
    captured = capsys.readouterr()
    return json.loads(captured.out)


@pytest.mark.parametrize("accountant", ["certified", "published"])
def test_design_meets_the_budget_with_the_accountant_that_was_asked_for(capsys, accountant):
    result = run_json(capsys, "design", *BUDGET, *CNN, "--accountant", accountant)
    assert 0.98 < result[f"epsilon_{accountant}"] <= 1
    assert {"k", "theta", "clip", "snr", "distortion", "epsilon_lower", "alternatives", "recommended"} <= set(result)
    assert [row["name"] for row in result["constraints"]] == ["c0", "c1", "c2", "c3", "c4", "mgf", "k_max"]
    assert all(row["satisfied"] for row in result["constraints"])
    assert result["recommended"]["noise"] == "gaussian"
    account = run_json(
        capsys,
        *["account", "--noise", "gamma", "--k", repr(result["k"]), "--theta", repr(result["theta"])],
        *["--clip", repr(result["clip"]), *CNN[:6], "--delta", "1e-5"],
    )
    for name in ("epsilon_certified", "epsilon_lower", "epsilon_published", "distortion"):
        assert account[name] == pytest.approx(result[name], rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "more", "clips"),
    [
        ("3", [], "1 to 2"),
        ("0.02", [], "0.01 to 0.02"),
        ("3", ["--clip-max", "0.5"], "0.25 to 0.5"),
        ("1", ["--clip-max", "100"], "1 to 100"),
    ],
)
def test_without_clips_it_takes_some_and_says_which(capsys, epsilon, more, clips):
    asked = ["design", "--epsilon", epsilon, *CNN[:6], *more]
    assert main(asked) == 0
    told = capsys.readouterr().out
    assert told.startswith("Use gaussian noise")
    assert f"Clips from {clips}, for want of --clip-min" in told
    low = float(clips.split()[0])
    given = run_json(capsys, *asked, "--clip-min", str(low))
    assert run_json(capsys, *asked) == given


def test_a_warning_is_told_once_however_many_clips_are_tried(capsys):
    asked = ["design", "--epsilon", "0.01", "--delta", "0.01", "--dataset-size", "1000", *CNN[:6]]
    assert main(asked) == 0
    assert capsys.readouterr().err.count("warning") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--epsilon", "1", "--clip-max", "1e160"], "--clip-max 1e+160: expected from 1e-50 to 1e+50"),
        (["--epsilon", "1", "--clip-min", "1e160"], "--clip-min 1e+160: expected from 1e-50 to 1e+50"),
        (["--epsilon", "1", "--clip-min", "50"], "or --clip-min at most 1.62: at --clip-min 50"),
        (["--epsilon", "1e-9"], "--epsilon 1e-09: expected at least 1e-06 to compare noises; `plrvo calibrate"),
    ],
)
def test_a_search_is_refused_in_the_name_of_what_was_given(capsys, words, said):
    assert main(["design", *words, *CNN[:6]]) == 2
    assert said in capsys.readouterr().err


def test_where_no_clip_will_do_none_is_blamed_that_nobody_gave(capsys, monkeypatch):
    monkeypatch.setattr(command, "_CLIPS", (1.0, 0.5))
    assert main(["design", "--epsilon", "0.001", "--clip-max", "8", *CNN[:6]]) == 2
    told = capsys.readouterr().err
    assert "(no clip from 4 down to 0.5 does); `plrvo calibrate --noise gaussian`" in told
    assert "clip-min" not in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--minutes", "1e-9"], "--minutes 1e-09: expected more: 6e-05 examples pass in that time"),
        (["--minutes", "1e308"], "--minutes 1e+308: expected fewer, at --speed 1000"),
        (["--minutes", "1", "--steps", "3"], "--steps 3: expected no value beside --minutes, which"),
        (
            ["--minutes", "1", "--save", "unused", "--clip-max", "1e300"],
            "--clip-max 1e+300: expected from 1e-50 to 1e+50",
        ),
        (["--minutes", "1", "--epsilon", "1e-9"], "--epsilon 1e-09: expected at least 1e-06"),
    ],
)
def test_what_is_wrong_with_a_time_is_told_by_its_option(capsys, words, said):
    given = ["--epsilon", "1", "--speed", "1000", "--dataset-size", "1000", "--dimension", "10"]
    assert main(["design", *given, *words]) == 2
    assert said in capsys.readouterr().err


def test_design_explains_itself_in_words(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["design", *BUDGET, *CNN]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert words.startswith("Use gaussian noise (sigma")
    assert "Why: Gaussian noise has the least error" in words
    assert "k_max" not in words
    assert main(["design", *BUDGET, *CNN, "-v"]) == 0
    told = capsys.readouterr().out
    assert "\u2026" not in told  # no cell is cut
    words = " ".join(told.split())
    for part in ("certified", "c0", "k_max", "Fisher information counts"):
        assert part in words


@pytest.mark.parametrize("noise", [Laplace(1.0), Gaussian(2.0), GammaPLRV(50.0, 0.02, shared=True)])
def test_any_saved_plan_gets_a_verdict(capsys, tmp_path, noise):
    file = tmp_path / "[bold]plan[nothing].json"  # no markup
    plan = Plan.certify(noise, Workload(1.0, 1, 1.0, 1), 1e-5)
    plan.save(file)
    for share, code, word in ((1.01, 0, "keeps"), (0.99, 1, "misses")):
        budget = share * plan.bracket.certified
        assert main(["design", "--plan", str(file), "--epsilon", str(budget)]) == code
        assert f"{file}: {word} the budget of" in " ".join(capsys.readouterr().out.split())
    assert main(["design", "--plan", str(file)]) == 2
    assert "--epsilon (missing)" in capsys.readouterr().err


@pytest.mark.parametrize("noise", [Gaussian(2.0), GammaPLRV(50.0, 0.02)])
@pytest.mark.parametrize(
    "option",
    ["delta", "steps", "sample-rate", "dataset-size", "dimension", "clip-min", "clip-max", "k-max"],
)
def test_what_a_saved_plan_brings_is_refused_beside_it(capsys, tmp_path, noise, option):
    file = tmp_path / "plan.json"
    Plan.certify(noise, Workload(1.0, 1, 1.0, 1), 1e-5).save(file)
    assert main(["design", "--plan", str(file), "--epsilon", "9", f"--{option}", "1"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"plrvo: --{option} 1")
    assert told.err.endswith("expected no value beside --plan, which brings its own\n")


def test_an_accountant_is_refused_beside_a_plan_that_it_does_not_search(capsys, tmp_path):
    file = tmp_path / "plan.json"
    Plan.certify(Gaussian(2.0), Workload(1.0, 1, 1.0, 1), 1e-5).save(file)
    assert main(["design", "--plan", str(file), "--epsilon", "9", "--accountant", "published"]) == 2
    assert "--accountant published: expected no value beside a plan with gaussian" in capsys.readouterr().err


def test_design_warns_where_only_the_published_figure_meets_the_budget(capsys):
    loud = ["--sample-rate", "0.01", "--steps", "300", "--dimension", "26010", "--clip-min", "0.5"]
    assert main(["design", "--epsilon", "2", *loud, "--accountant", "published"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "The published figure meets the budget of 2; what is certified is" in words


def test_a_saved_plan_passes_its_own_check_and_a_picture_is_drawn(capsys, tmp_path):
    plan, picture = tmp_path / "plan.json", tmp_path / "space.png"
    made = run_json(capsys, "design", *BUDGET, *CNN, "--noise", "gamma", "--save", str(plan), "--plot", str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")
    checked = run_json(capsys, "design", "--plan", str(plan))
    assert checked["epsilon_certified"] == made["epsilon_certified"]
    assert main(["design", "--plan", str(plan), "--epsilon", "0.9"]) == 1
    assert "violated" in capsys.readouterr().out


def test_the_recommended_noise_is_saved(capsys, tmp_path):
    run_json(capsys, "design", *BUDGET, *CNN, "--save", str(tmp_path / "plan.json"))
    plan = Plan.load(tmp_path / "plan.json")
    assert isinstance(plan.noise, Gaussian)
    assert plan.bracket.certified <= 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (
            [*BUDGET, *CNN[:6], "--clip-min", "0.3", "--clip-max", "0.2"],
            "--clip-max 0.2: expected at least --clip-min, 0.3",
        ),
        (["--epsilon", "0.01", *CNN], "--epsilon 0.01: expected at least"),
        (["--epsilon", "-1", *CNN], "--epsilon -1.0"),
        (["--epsilon", "nan", *CNN], "--epsilon nan"),
        (CNN, "--epsilon (missing)"),
        ([*BUDGET, *CNN[:4]], "--dimension (missing)"),
        (CNN[:6], "--epsilon (missing)"),
        ([*BUDGET, *CNN[:6], "--clip-max", "-1"], "--clip-max -1.0"),
        ([*BUDGET, *CNN[:6], "--clip-min", "0"], "--clip-min 0.0"),
        (["--epsilon", "1", "--delta", "1", *CNN], "--delta 1.0"),
        ([*BUDGET, *CNN[2:]], "--sample-rate (missing)"),
        ([*BUDGET, *CNN, "--accountant", "pld"], "pld"),
        ([*BUDGET, *CNN, "--k-max", "1"], "--k-max 1.0"),
        ([*BUDGET, *CNN, "--dataset-size", "0"], "--dataset-size 0"),
        ([*BUDGET, *CNN, "--plot", "space.gif"], "--plot space.gif"),
        ([*BUDGET, *CNN, "--noise", "cauchy"], "cauchy"),
        (["--plan", "no-such-plan.json"], "--plan no-such-plan.json"),
    ],
)
def test_bad_input_is_one_line_that_names_the_option(capsys, arguments, named):
    assert main(["design", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert named in captured.err


@pytest.mark.parametrize("content", ["", "{", "[]", '{"plan": 1}', '{"plan": 2, "noise": {}}', '"plan"'])
def test_an_unreadable_plan_is_one_line(capsys, tmp_path, content):
    file = tmp_path / "plan.json"
    file.write_text(content)
    assert main(["design", "--plan", str(file)]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "--plan" in captured.err
    assert captured.out == ""


def test_a_delta_that_is_too_large_is_warned_of_in_one_line(capsys):
    assert main(["design", *BUDGET, *CNN, "--dataset-size", "60000", "--json"]) == 0
    quiet = capsys.readouterr()
    assert quiet.err == ""
    assert main(["design", *BUDGET, *CNN, "--dataset-size", "200000", "--json"]) == 0
    warned = capsys.readouterr()
    assert warned.err.startswith("plrvo: warning: delta 1e-05 is not below 1/200000")
    assert warned.err.count("\n") == 1
    assert json.loads(warned.out)["epsilon_certified"] <= 1


def test_a_bar_shows_only_on_a_terminal_and_when_it_takes_long(monkeypatch):
    def shown(terminal):
        screen = io.StringIO()
        console = Console(file=screen, force_terminal=terminal)
        with command._patient_bar("searching", console) as progress:
            progress(0.5)
        return screen.getvalue()

    assert shown(terminal=True) == ""
    monkeypatch.setattr(command, "_PATIENCE", -1.0)
    assert "searching" in shown(terminal=True)
    assert shown(terminal=False) == ""


def test_stdout_holds_one_json_object_and_nothing_else():
    done = subprocess.run(
        [sys.executable, "-m", "plrvo", "design", *BUDGET, *CNN, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stdout.count("\n") == 1
    assert json.loads(done.stdout)["k"] == 1e6


BATCHES = ["design", "--epsilon", "3", "--dataset-size", "1000", "--dimension", "650"]


def test_batches_that_fit_in_the_time_are_compared(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    command_line = [*BATCHES, "--minutes", "0.5", "--speed", "80"]
    result = run_json(capsys, *command_line)
    assert result["proposed"] in result["alternatives"]
    assert all(row["batch"] * row["steps"] <= 2400 for row in result["alternatives"])
    assert main(command_line) == 0
    told = capsys.readouterr().out
    assert f"--sample-rate {result['proposed']['sample_rate']:.4g} --steps {result['proposed']['steps']}" in told
    assert "\u2026" not in told  # no cell is cut


def test_the_plan_of_the_proposed_batches_is_saved(capsys, tmp_path):
    file = tmp_path / "plan.json"
    command_line = [*BATCHES, "--minutes", "0.5", "--speed", "80", "--save", str(file)]
    for clip, more in ((1.0, []), (0.1, ["--clip-max", "0.1"])):
        chosen = run_json(capsys, *command_line, *more)["proposed"]
        plan = Plan.load(file)
        assert plan.workload == Workload(chosen["sample_rate"], chosen["steps"], clip, 650)
        assert plan.noise.sigma == pytest.approx(chosen["noise_multiplier"] * clip, rel=1e-6)
        assert (plan.epsilon, plan.bracket.certified <= 3) == (3, True)
    assert main(command_line) == 0
    assert f"plan with gaussian noise and clip 1: {file}" in capsys.readouterr().out
    assert main(["design", "--plan", str(file)]) == 0


def test_a_delta_that_is_large_for_so_few_examples_is_warned_of(capsys):
    command_line = [*BATCHES, "--minutes", "0.5", "--speed", "5"]
    for delta, is_large in (("0.001", True), ("1e-5", False)):
        assert main([*command_line, "--delta", delta]) == 0
        assert ("is not below 1/1000, the size of the data" in capsys.readouterr().err) == is_large


def test_few_steps_are_warned_of(capsys):
    assert main([*BATCHES, "--minutes", "0.5", "--speed", "5"]) == 0
    assert "an optimizer seldom gets far in fewer than" in capsys.readouterr().out
    assert main([*BATCHES, "--minutes", "60", "--speed", "80"]) == 0
    assert "an optimizer seldom" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--minutes", "1"], "--speed"),
        (["--minutes", "1", "--speed", "10", "--clip-max", "1"], "--clip-max"),
        (["--minutes", "1", "--speed", "10", "--save", "."], "--save"),
        (["--speed", "10"], "--minutes"),
        (["--minutes", "1", "--speed", "10", "--steps", "5"], "--steps"),
        (["--minutes", "-1", "--speed", "10"], "--minutes"),
    ],
)
def test_what_does_not_belong_to_a_time_limit_is_refused(capsys, options, named):
    assert main([*BATCHES, *options]) == 2
    assert named in capsys.readouterr().err


def test_all_that_a_time_limit_needs_is_named_at_once(capsys):
    assert main(["design", "--epsilon", "1", "--minutes", "1"]) == 2
    said = capsys.readouterr().err
    for option in ("--dataset-size", "--dimension", "--speed", "for example: plrvo design"):
        assert option in said


def test_what_noises_certify_is_never_told_smaller():
    found = compare(Workload(sample_rate=0.1, steps=10, clip=1.0, dimension=10), 2.0, 1e-5)
    out = io.StringIO()
    design_result._print_alternatives(Console(file=out), replace(found, epsilon=2.000000001), False)
    assert "certify epsilon 2.001 at" in out.getvalue()
