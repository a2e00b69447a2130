"""Scattering features in the place of images, and the task that is trained on them."""

import copy
from dataclasses import replace

import pytest
import torch
from tests.training.helpers import private
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from plrvo import Gaussian
from plrvo.cli.main import main
from plrvo.records.folder import WEIGHTS
from plrvo.tasks.catalog import Request, prepare
from plrvo.tasks.job import Job
from plrvo.tasks.preset import InMemory
from plrvo.tasks.vision import extracted, scattered
from plrvo.tasks.vision.catalog import IMAGE_SETS
from plrvo.tasks.vision.data import load_images
from plrvo.tasks.vision.recipes import (
    AMPLE_EPOCHS,
    AT_ONCE,
    BATCH,
    CHOSEN,
    COLOUR,
    ELSEWHERE,
    EPOCHS,
    GROUPS,
    groups_of,
    scattering_defaults,
    usual_model,
)
from plrvo.tasks.vision.scattered import coefficients, features_of, scattering_data
from plrvo.tasks.vision.scattering import normalised, normalised_by_order, scatter
from plrvo.tasks.vision.views import view_of
from plrvo.validate import InvalidArgument


@pytest.fixture
def few():
    data = load_images("digits")
    return replace(data, train_x=data.train_x[:6], train_y=data.train_y[:6], test_x=data.test_x[:2])


@pytest.fixture
def counted(monkeypatch) -> list[int]:
    """How many images each computation has seen."""
    seen: list[int] = []

    def counting(images: torch.Tensor) -> torch.Tensor:
        seen.append(len(images))
        return scatter(images)

    monkeypatch.setattr(scattered, "scatter", counting)
    monkeypatch.setattr(extracted, "CHUNK", 4)
    return seen


def test_features_are_those_of_the_pixels_and_computed_once(few, counted, tmp_path):
    found = scattering_data(few, GROUPS, cache_dir=tmp_path)
    assert found.shape == (81, 2, 2)
    assert sum(counted) == 8
    again = scattering_data(few, GROUPS, cache_dir=tmp_path)
    other = scattering_data(few, 9, cache_dir=tmp_path)
    assert sum(counted) == 8  # another normalisation needs no new coefficients
    assert torch.equal(again.train_x, found.train_x)
    assert not torch.equal(other.train_x, found.train_x)
    pixels = ((few.train_x + 1) / 2 * 255).round() / 255  # as bytes are
    expected = normalised(scatter(pixels).half().float(), GROUPS)
    assert torch.allclose(found.train_x.float(), expected, atol=2e-3)
    assert found.fingerprint == few.fingerprint
    assert found.source.endswith(f"as scattering features, normalised in {GROUPS} groups")


def test_features_of_ones_own_images_are_those_that_train_has(few, counted, tmp_path):
    pixels = (torch.cat([few.train_x, few.test_x]) + 1) / 2
    own = features_of(pixels, tmp_path, progress=False)
    assert own.dtype == torch.float32
    train = scattering_data(few, GROUPS, cache_dir=tmp_path)
    assert torch.equal(own, torch.cat([train.train_x, train.test_x]).float())
    assert sum(counted) == len(own)  # one cache for both
    colour = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    expected = normalised_by_order(scatter((colour * 255).round() / 255).half().float())
    assert torch.allclose(features_of(colour), expected, atol=2e-3)
    for wrong in (torch.zeros(2, 8, 8), torch.zeros(2, 2, 8, 8), torch.full((2, 1, 8, 8), 255.0)):
        with pytest.raises(InvalidArgument, match="images"):
            features_of(wrong, progress=False)


def test_features_of_images_are_shown_while_they_are_made(capfd, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    images = torch.zeros(2, 1, 8, 8)
    features_of(images, progress=False)
    assert not capfd.readouterr().err
    features_of(images)
    assert "scattering features" in capfd.readouterr().err


def test_own_images_begin_with_the_settings_of_the_presets():
    assert scattering_defaults(1, 60_000) == scattering_defaults("mnist", 60_000)
    colour = scattering_defaults(3, 50_000).at(3.0)
    assert (colour.clip, colour.learning_rate) == (COLOUR.clip, COLOUR.ample_rate)


def test_work_that_was_stopped_goes_on_where_it_was(few, counted, tmp_path, monkeypatch):
    whole = scattered.coefficients

    def stops_at_the_second_chunk(pixels: torch.Tensor) -> torch.Tensor:
        if counted:
            raise KeyboardInterrupt
        return whole(pixels)

    monkeypatch.setattr(scattered, "coefficients", stops_at_the_second_chunk)
    with pytest.raises(KeyboardInterrupt):
        scattering_data(few, GROUPS, cache_dir=tmp_path)
    monkeypatch.setattr(scattered, "coefficients", whole)
    scattering_data(few, GROUPS, cache_dir=tmp_path)
    assert counted == [4, 4]


def test_each_view_has_its_features(few, tmp_path):
    found = scattering_data(few, GROUPS, views=3, cache_dir=tmp_path)
    assert found.train_x.shape == (6, 3, 81, 2, 2)
    assert found.test_x.shape == (2, 81, 2, 2)
    shifted = replace(few, train_x=view_of(few.train_x, 2, "digits"))
    assert torch.equal(found.train_x[:, 2], scattering_data(shifted, GROUPS, cache_dir=tmp_path).train_x)


def test_coefficients_do_not_depend_on_how_many_are_computed_at_once(monkeypatch):
    pixels = torch.randint(256, (7, 3, 8, 8), generator=torch.Generator().manual_seed(0)).float()
    together = coefficients(pixels)
    monkeypatch.setattr(scattered, "BATCH_CHANNELS", 3)
    assert torch.allclose(coefficients(pixels).float(), together.float(), atol=1e-3)


def test_what_is_kept_in_half_precision_is_trained_in_single():
    data = InMemory(torch.ones(3, 2, dtype=torch.float16), torch.tensor([0, 1, 2]))
    x, y = data.__getitems__([0, 2])
    assert (x.dtype, y.dtype, data[1][0].dtype) == (torch.float32, torch.int64, torch.float32)


def test_settings_follow_from_the_number_of_examples():
    usual = scattering_defaults("mnist", 60_000)
    assert usual.sample_rate * 60_000 == pytest.approx(BATCH)
    assert usual.steps * usual.sample_rate == pytest.approx(EPOCHS, rel=0.01)
    assert scattering_defaults("digits", 1437).sample_rate == pytest.approx(0.25)
    assert usual.at(1.0) == usual.at(None) == usual
    assert usual.at(3.0).steps * usual.sample_rate == pytest.approx(AMPLE_EPOCHS, rel=0.01)


def test_a_run_has_the_settings_of_its_budget(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    few, many = (Job("digits", model="scattering", epsilon=e).resolve(tmp_path / str(e)) for e in (1.0, 3.0))
    assert (few.plan.workload.steps, many.plan.workload.steps) == (4 * EPOCHS, 4 * AMPLE_EPOCHS)
    assert many.settings.learning_rate == 2 * few.settings.learning_rate
    planned = Job("digits", model="scattering", plan=many.plan).resolve(tmp_path / "planned")
    assert planned.settings.learning_rate == many.settings.learning_rate
    assert Job("digits", model="scattering", epsilon=3.0, steps=7).resolve(tmp_path / "seven").plan.workload.steps == 7


def test_the_task_begins_at_zero_and_its_settings_are_the_recipe(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    preset = prepare(Request("digits", "scattering"), torch.Generator().manual_seed(0))
    assert all(not p.any() for p in preset.module.parameters())
    assert preset.defaults == scattering_defaults("digits", 1437)
    x, _ = preset.task.data.__getitems__([0, 1])
    assert preset.module(x).shape == (2, 10)
    assert "views" not in preset.task.description


def test_a_run_with_views_and_an_average_is_verified_and_goes_on_to_the_same_end(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    asked = {"noise": "gaussian", "epsilon": 3.0, "steps": 5, "views": 2, "average": 0.5, "seed": 3}
    job = Job("digits", "scattering", checkpoint_every=2, evaluate_every=2, **asked)
    kept: dict = {}

    def stop(step: int, steps: int, metrics: dict) -> None:
        if step == 3:
            raise RuntimeError("stopped")

    whole, part = tmp_path / "whole", tmp_path / "part"
    trained = job.resolve(whole, kept=kept).train()
    assert trained.accuracy > 50
    assert trained.receipt["run"]["average"] == 0.5
    assert trained.receipt["task"]["views"] == 2
    assert main(["verify", str(whole / "receipt.json")]) == 0
    with pytest.raises(RuntimeError, match="stopped"):
        job.resolve(part, kept=kept).train(stop)
    job.resolve(part, resume=True, kept=kept).train()
    assert (part / WEIGHTS).read_bytes() == (whole / WEIGHTS).read_bytes()
    assert main(["verify", str(part / "receipt.json")]) == 0
    other = Job("digits", "scattering", **{**asked, "average": None})
    with pytest.raises(InvalidArgument, match=r"average=0\.97: expected 0\.5, as in the run that is resumed"):
        other.resolve(part, resume=True, kept=kept).train()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"views": 10}, "views=10: expected at most 9"),
        ({"views": 2, "model": "efficientnet-lite0-head"}, "views=2: expected no value beside the model"),
    ],
)
def test_views_that_there_are_not_are_refused(options, message):
    request = Request("digits", options.pop("model", "scattering"), options=options)
    with pytest.raises(InvalidArgument, match=message):
        prepare(request, torch.Generator().manual_seed(0))


def test_images_become_scattering_features_where_no_model_is_named_and_the_digits_do_not():
    assert [usual_model(name) for name in IMAGE_SETS] == ["scattering"] * len(IMAGE_SETS)
    assert usual_model("digits") == "cnn-norm"


def test_settings_for_a_data_set_were_chosen_on_another_one():
    for name in (*IMAGE_SETS, "digits"):
        assert CHOSEN.get(name, ELSEWHERE).on != name


def test_cifar_has_the_published_settings_where_the_budget_is_ample():
    """Tramer and Boneh (2021): batches of 8192, 60 epochs, a rate of 4 for gradients of norm 0.1."""
    usual = scattering_defaults("cifar-10", 50_000).at(3.0)
    assert usual.sample_rate * 50_000 == pytest.approx(8192)
    assert usual.steps == round(60 * 50_000 / 8192)
    assert (usual.clip, usual.learning_rate / usual.clip) == (0.1, pytest.approx(4))
    assert [name for name, chosen in CHOSEN.items() if chosen.published] == ["cifar-10", "cifar-100"]
    assert scattering_defaults("mnist", 60_000).at(3.0).clip == 1.0


def test_features_of_cifar_are_normalised_by_order(few, tmp_path):
    assert [groups_of(name) for name in ("mnist", "fashion-mnist", "cifar-10")] == [GROUPS, GROUPS, None]
    found = scattering_data(few, None, cache_dir=tmp_path)
    pixels = ((few.train_x + 1) / 2 * 255).round() / 255  # as bytes are
    assert torch.allclose(found.train_x.float(), normalised_by_order(scatter(pixels).half().float()), atol=2e-3)
    assert found.source.endswith("as scattering features, normalised by order")


def test_a_network_on_the_features_is_trained_in_parts_and_verified(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    job = Job("digits", "scattering-cnn", noise="gaussian", epsilon=3.0, steps=3, seed=1)
    resolved = job.resolve(tmp_path / "run")
    assert resolved.settings.physical_batch == AT_ONCE
    assert resolved.plan.workload.dimension == sum(p.numel() for p in resolved.module.parameters())
    resolved.train()
    assert main(["verify", str(tmp_path / "run" / "receipt.json")]) == 0


def test_an_example_with_views_moves_the_sum_of_the_network_by_one_clip(tmp_path, monkeypatch):
    """The released sum is that of a loop: the mean gradient of an example's views, clipped once."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    clip, views = 0.1, 3
    preset = prepare(Request("digits", "scattering-cnn", options={"views": views}), torch.Generator().manual_seed(0))
    data = TensorDataset(*preset.task.data.__getitems__(list(range(12))))
    alone = copy.deepcopy(preset.module.module)  # without the engine's hooks
    before = [p.detach().clone() for p in alone.parameters()]
    _, module, optimizer, _, loader = private(
        Gaussian(1e-7), mode="auto", clip=clip, data=data, module=preset.module, steps=1, sample_rate=0.5
    )
    x, y = next(iter(loader))
    assert x.shape[1:] == (views, 81, 2, 2)
    optimizer.zero_grad()
    preset.task.loss(module(x), y).backward()
    optimizer.step()
    expected = torch.zeros(sum(p.numel() for p in alone.parameters()))
    for example, label in zip(x, y, strict=True):
        loss = torch.stack([cross_entropy(alone(view[None]), label[None]) for view in example]).mean()
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(alone.parameters()))])
        assert gradient.norm() > clip
        expected += gradient * clip / gradient.norm()
    moved = torch.cat([(b - p.detach()).flatten() for b, p in zip(before, preset.module.parameters(), strict=True)])
    released = moved / 0.1 * optimizer.expected_batch_size
    assert len(x) > 2
    assert torch.allclose(released, expected, atol=1e-4 * float(expected.norm()))


def test_pixels_in_bytes_are_refused():
    """Multiplied by 255 they would wrap, and give features of other images."""
    with pytest.raises(InvalidArgument, match=r"images.float\(\) / 255"):
        features_of(torch.full((2, 1, 28, 28), 200, dtype=torch.uint8), progress=False)
