"""Help for a task that is named has the task's own defaults, at once."""

import subprocess
import sys

import pytest
from typer.main import get_command

from plrvo.cli.main import app, main
from plrvo.tasks import catalog
from plrvo.tasks.catalog import Request


def told(capsys, *words):
    assert main([*words, "--help"]) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", catalog.NAMES)
def test_it_shows_the_defaults_of_the_task_and_the_options_that_it_has(name, capsys):
    text, usual = told(capsys, "train", name), catalog.usual(Request(name))
    assert text.startswith(f"Usage: plrvo train {name} [OPTIONS]")
    assert f"{usual.examples:,} examples." in text
    assert f"[{usual.model}]" in text
    assert f"Number of noisy steps. [{usual.defaults.steps}" in text
    assert f"joins a batch. [{usual.defaults.sample_rate:.4g}, about" in text
    assert f"of the guarantee. [{usual.defaults.delta:.4g}]" in text
    assert "--epsilon NUMBER Privacy budget. It has no default" in text
    own = catalog.family_of(name).options
    for option in {option for family in catalog.FAMILIES for option in family.options}:
        assert (f" --{option.replace('_', '-')} " in text) == (option in own)
    assert "Images: " not in text
    assert "Tables: " not in text


def test_a_model_that_is_named_brings_its_defaults(capsys):
    assert "[300]" in told(capsys, "train", "mnist", "--model", "logistic")
    assert "[220; 439 from epsilon 2 on]" in told(capsys, "train", "mnist")


def test_a_word_of_an_option_is_no_task(capsys):
    assert "[TASK]" in told(capsys, "train", "--out", "digits")
    assert "plrvo train digits" in told(capsys, "train", "--json", "digits")


BESIDE = [
    ("sst2", "--trainable lora", {"trainable": "lora"}),
    ("sst2", "--trainable=lora", {"trainable": "lora"}),
    ("sst2", "--limit 50", {"limit": 50}),
    ("e2e", "--trainable all", {"trainable": "all"}),
    ("e2e", "--references 1 --bf16", {"references": 1, "bf16": True}),
    ("digits", "--model=scattering", {"model": "scattering"}),
    ("e2e", "--model stories15M", {"model": "stories15M"}),
]


@pytest.mark.parametrize(("name", "words", "given"), BESIDE)
def test_options_beside_the_task_bring_its_defaults_beside_them(name, words, given, capsys):
    text = told(capsys, "train", name, *words.split())
    options = {option: value for option, value in given.items() if option != "model"}
    defaults = catalog.usual(Request(name, given.get("model"), options=options)).defaults
    for option, value in (("--lr", defaults.learning_rate), ("--steps", defaults.steps), ("--delta", defaults.delta)):
        assert f"[{value:.4g}" in text.partition(f" {option} ")[2].partition(" --")[0]
    assert f"[{defaults.sample_rate:.4g}, about" in text
    assert (f"[{defaults.physical_batch}]" in text) == (defaults.physical_batch is not None)


FLAGS = [p.opts[0] for p in get_command(app).commands["train"].params if getattr(p, "is_flag", False)]


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_before_the_task_takes_no_word(flag, capsys):
    assert "plrvo train sst2 [OPTIONS]" in told(capsys, "train", flag, "sst2")


def test_a_budget_tells_which_of_two_defaults_holds(capsys):
    assert "[439]" in told(capsys, "train", "mnist", "--epsilon", "3")
    assert "[220]" in told(capsys, "train", "mnist", "--epsilon=1")


def test_what_a_plan_or_an_order_settles_has_no_default(capsys):
    assert "about 8,192 examples a step" not in told(capsys, "train", "mnist", "--plan", "plan.json")
    assert "about 8,192 examples a step" not in told(capsys, "train", "mnist", "--correlation", "tree")


@pytest.mark.parametrize("words", ["--trainable tail", "--limit 0", "--limit x", "--layers 2"])
def test_a_mistake_beside_the_task_leaves_its_own_defaults(words, capsys):
    assert main(["train", "sst2", "--help", *words.split()]) == 0
    assert "[0.02]" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["sst2", "e2e"])
def test_a_task_is_told_nothing_of_others(name, capsys):
    text = told(capsys, "train", name)
    assert text.count("digits") == 1  # among the names of all tasks
    assert "scattering" not in text
    assert "With sgd: its momentum; by default 0.9." in text  # which is not what adamw does
    assert "With sgd: its momentum. [0.9]" in told(capsys, "train", name, "--optimizer", "sgd")


SETTLED = ("lr", "optimizer", "schedule", "average", "clip", "clipping", "postprocess", "physical-batch", "noise")


@pytest.mark.parametrize("name", catalog.NAMES)
def test_every_choice_that_is_made_says_what_it_is_by_default(name, capsys):
    text = told(capsys, "train", name)
    own = catalog.family_of(name).options
    more = [option for option in ("views", "max_length", "limit", "references", "test_limit", "beams") if option in own]
    for option in (*SETTLED, *(option.replace("_", "-") for option in more)):
        assert text.partition(f" --{option} ")[2].partition(" --")[0].rstrip(": ABCDEFGHIJKLMNOPQRSTUVWXYZ").count("[")
    average = catalog.usual(Request(name)).defaults.average
    assert f"[{'none: the weights of the last step' if average is None else average}]" in text


def test_what_averages_and_views_are_by_default_is_told(capsys):
    text = told(capsys, "train", "mnist")
    assert "free of privacy cost. [0.97]" in text
    assert "averaged before the one clip. [1: the example itself]" in text
    assert "[none: the weights of the last step]" in told(capsys, "train", "sst2")
    assert "[0.97]" not in told(capsys, "train", "mnist", "--average", "0.5")


def test_without_a_task_it_is_general(capsys):
    text = told(capsys, "train")
    assert "[TASK]" in text
    assert "Images: scattering (the default)" in text


@pytest.mark.parametrize("command", ["tune", "audit one-run"])
def test_other_commands_that_train_do_the_same(command, capsys):
    text = told(capsys, *command.split(), "sst2")
    assert "sst2 has 67,349 examples." in text
    assert "[minilm]" in text
    assert f"Example: plrvo {command} sst2 --" in text
    assert "--model logistic" not in text


def test_it_waits_for_neither_torch_nor_data():
    script = "import sys; from plrvo.cli.main import main; main(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script, "train", "e2e", "--help"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
