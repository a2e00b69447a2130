"""Help for a task that is named has the task's own defaults, at once."""

import subprocess
import sys

import pytest

from plrvo.cli.main import main
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


def test_without_a_task_it_is_general(capsys):
    text = told(capsys, "train")
    assert "[TASK]" in text
    assert "Images: scattering (the default)" in text


@pytest.mark.parametrize("command", ["tune", "audit one-run"])
def test_other_commands_that_train_do_the_same(command, capsys):
    text = told(capsys, *command.split(), "sst2")
    assert "sst2 has 67,349 examples." in text
    assert "[minilm]" in text


def test_it_waits_for_neither_torch_nor_data():
    script = "import sys; from plrvo.cli.main import main; main(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script, "train", "e2e", "--help"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
