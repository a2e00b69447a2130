import pytest
import torch

from plrvo.tasks import catalog
from plrvo.tasks.vision.data import NAMES as IMAGE_NAMES
from plrvo.validate import InvalidArgument


def test_names_are_unique_and_the_families_agree_with_their_loaders():
    assert len(set(catalog.NAMES)) == len(catalog.NAMES)
    families = {family.name: family.tasks for family in catalog.FAMILIES}
    assert families["vision"] == IMAGE_NAMES


def test_a_preset_comes_from_its_family():
    preset = catalog.prepare(catalog.Request("digits", "logistic"), torch.Generator().manual_seed(1))
    inputs, targets = preset.task.data.__getitems__([0, 5])
    assert preset.module(inputs).shape == (2, 10)
    assert preset.task.loss(preset.module(inputs), targets).ndim == 0
    assert preset.task.evaluate(preset.module).keys() == {"loss", "accuracy"}


def test_unknown_tasks_are_refused_with_the_known_ones():
    with pytest.raises(InvalidArgument, match="digits"):
        catalog.prepare(catalog.Request("nothing"), torch.Generator())


def test_an_option_of_another_family_is_refused_and_not_ignored():
    request = catalog.Request("digits", options={"trainable": "lora"})
    with pytest.raises(InvalidArgument, match="trainable='lora'"):
        catalog.prepare(request, torch.Generator())
