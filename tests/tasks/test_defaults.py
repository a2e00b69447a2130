"""What tasks do by default, told before anything is loaded, is what they do."""

import subprocess
import sys

import pytest
import torch

from plrvo.tasks import catalog
from plrvo.tasks.catalog import Request
from plrvo.tasks.defaults import AMPLE, Defaults
from plrvo.tasks.tables.data import training_data
from plrvo.tasks.text.data import load_split
from plrvo.tasks.vision.data import load_images

NOT_HERE = ("qnli", "cifar-100")  # of which no copy is at hand


def test_from_an_ample_budget_on_other_values_hold():
    usual = Defaults(steps=10, ample={"steps": 20})
    assert [usual.at(epsilon).steps for epsilon in (None, AMPLE / 2, AMPLE)] == [10, 10, 20]


@pytest.mark.parametrize("name", catalog.NAMES)
def test_every_task_has_them(name):
    usual = catalog.usual(Request(name))
    assert usual.model
    assert usual.examples > 1000
    assert usual.defaults.delta < 1 / usual.examples
    assert 0 < usual.defaults.sample_rate < 1
    assert set(usual.parts) <= set(catalog.family_of(name).options)


@pytest.mark.parametrize(
    ("request_", "examples", "known"),
    [
        (Request("sst2", options={"limit": 500}), 500, True),
        (Request("sst2", options={"data": "hf:x"}), 67_349, False),
        (Request("qnli"), 104_743, False),
        (Request("e2e", options={"limit": 500}), 500, True),
        (Request("e2e", options={"references": 1}), 42_061, False),
    ],
)
def test_a_number_of_examples_is_known_where_no_other_can_come(request_, examples, known):
    usual = catalog.usual(request_)
    assert (usual.examples, usual.known) == (examples, known)


@pytest.mark.parametrize("model", [None, "logistic", "scattering"])
def test_they_are_those_of_the_preset(model):
    asked = Request("digits", model)
    preset, usual = catalog.prepare(asked, torch.Generator()), catalog.usual(asked)
    assert (preset.defaults, preset.task.size, preset.model) == (usual.defaults, usual.examples, usual.model)


@pytest.mark.data
@pytest.mark.parametrize("name", [name for name in catalog.NAMES if name not in NOT_HERE])
def test_the_data_has_so_many_examples(name, data_dir):
    family = catalog.family_of(name).name
    if family == "vision":
        found = len(load_images(name, data_dir).train_y)
    else:
        text = family == "text"
        found = len(load_split(name, "train", data_dir) if text else training_data(name, data_dir).train.pairs)
    assert found == catalog.usual(Request(name)).examples


def test_they_are_told_without_torch():
    told = "from plrvo.tasks.catalog import *; import sys; [usual(Request(name)) for name in NAMES]"
    script = f"{told}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
