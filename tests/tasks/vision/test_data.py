import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.tasks.vision.test_formats import tar_gz

from plrvo.tasks.sources import DataFile, Layout, data_folder
from plrvo.tasks.vision.catalog import IMAGE_SETS, scaling_of
from plrvo.tasks.vision.data import NAMES, ImageData, load_images
from plrvo.validate import InvalidArgument

# SHA-256 of the files inside the binary version of CIFAR-10, as other projects publish them.
CIFAR_10_BATCHES = {
    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}


def pixels(data: ImageData, x: torch.Tensor, top: int = 255) -> torch.Tensor:
    mean, std = (torch.tensor(values)[:, None, None] for values in (data.scaling.mean, data.scaling.std))
    return (x * std + mean) * top


def check(data: ImageData, train: int, test: int, classes: int, shape: tuple[int, int, int]) -> None:
    assert data.train_x.shape == (train, *shape)
    assert data.test_x.shape == (test, *shape)
    assert data.shape == shape
    assert data.train_x.dtype == data.test_x.dtype == torch.float32
    assert data.train_y.dtype == data.test_y.dtype == torch.int64
    assert data.train_y.unique().tolist() == data.test_y.unique().tolist() == list(range(classes))
    assert data.classes == classes
    assert data.scaling == scaling_of(shape)
    assert len(bytes.fromhex(data.fingerprint)) == 32


def test_digits_needs_no_file_and_splits_each_class_four_to_one():
    data = load_images("digits")
    check(data, 1442, 355, 10, (1, 8, 8))
    share = data.test_y.bincount() / (data.test_y.bincount() + data.train_y.bincount())
    assert ((share > 0.19) & (share < 0.21)).all()
    assert data.train_x.min() == -1
    assert data.train_x.max() == 1
    assert data.source.startswith("scikit-learn ")
    assert not data_folder().exists()


def test_digits_is_the_same_every_time_and_its_halves_share_no_row():
    data, again = load_images("digits"), load_images("digits")
    assert data.fingerprint == again.fingerprint
    assert torch.equal(data.train_x, again.train_x)
    rows = torch.cat([data.train_x, data.test_x]).flatten(1)
    assert len(rows) == 1797
    assert pixels(data, rows[:, None, None], 16).frac().abs().max() < 1e-5


@pytest.mark.data
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_sets_have_sixty_thousand_and_ten_thousand_images(name, data_dir):
    data = load_images(name, data_dir)
    check(data, 60_000, 10_000, 10, (1, 28, 28))
    assert data.source == f"{name} from --data-dir"
    values = pixels(data, data.test_x)
    assert values.round().max() == 255
    assert (values - values.round()).abs().max() < 1e-3
    if name == "mnist":
        assert data.train_y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
        assert data.train_x.mean() == pytest.approx(0, abs=1e-3)
        assert data.train_x.std() == pytest.approx(1, abs=1e-3)
    else:
        assert (data.train_y.bincount() == 6000).all()


@pytest.mark.data
def test_the_folder_of_the_data_set_itself_will_do(data_dir):
    assert len(load_images("mnist", data_dir / "mnist").train_y) == 60_000


@pytest.mark.data
def test_one_data_set_in_the_place_of_another_fails_its_checksum(data_dir):
    with pytest.raises(InvalidArgument, match="checksum"):
        load_images("mnist", data_dir / "fashion-mnist")


def binary_batches(data: ImageData) -> dict[str, bytes]:
    """The files of the binary version, from the scaled tensors."""
    images = [*data.train_x.chunk(5), data.test_x]
    labels = [*data.train_y.chunk(5), data.test_y]
    return {
        name: torch.cat([y[:, None], pixels(data, x).round().flatten(1)], dim=1).to(torch.uint8).numpy().tobytes()
        for name, x, y in zip(CIFAR_10_BATCHES, images, labels, strict=True)
    }


@pytest.mark.slow
@pytest.mark.data
def test_cifar_10_mosaics_hold_every_pixel_and_label_of_the_binary_version(data_dir):
    data = load_images("cifar-10", data_dir)
    check(data, 50_000, 10_000, 10, (3, 32, 32))
    assert data.train_y[:5].tolist() == [6, 9, 9, 4, 1]
    assert data.train_x.mean((0, 2, 3)).abs().max() < 1e-3
    batches = binary_batches(data)
    assert {name: hashlib.sha256(content).hexdigest() for name, content in batches.items()} == CIFAR_10_BATCHES


@pytest.mark.slow
@pytest.mark.data
def test_cifar_10_has_one_fingerprint_in_both_layouts(data_dir, tmp_path, monkeypatch):
    data = load_images("cifar-10", data_dir)
    archive = tar_gz({f"cifar-10-batches-bin/{name}.bin": batch for name, batch in binary_batches(data).items()})
    file = DataFile("cifar-10-binary.tar.gz", len(archive), hashlib.sha256(archive).hexdigest())
    put_in_place_of("cifar-10", file, monkeypatch)
    (tmp_path / file.name).write_bytes(archive)
    again = load_images("cifar-10", tmp_path)
    assert again.fingerprint == data.fingerprint
    assert torch.equal(again.test_x, data.test_x)


def put_in_place_of(name: str, archive: DataFile, monkeypatch: pytest.MonkeyPatch) -> None:
    image_set = IMAGE_SETS[name]
    files = replace(image_set.files, layouts=(Layout("binary", (archive,)),))
    monkeypatch.setitem(IMAGE_SETS, name, replace(image_set, files=files))


def test_cifar_100_in_its_binary_version(tmp_path, monkeypatch):
    monkeypatch.setattr("plrvo.tasks.vision.formats.BATCH", 100)
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (600, 3074), np.uint8)
    rows[:, 1] = np.arange(600) % 100
    archive = tar_gz(
        {"cifar-100-binary/train.bin": rows[:500].tobytes(), "cifar-100-binary/test.bin": rows[500:].tobytes()}
    )
    file = DataFile("cifar-100-binary.tar.gz", len(archive), hashlib.sha256(archive).hexdigest())
    put_in_place_of("cifar-100", file, monkeypatch)
    (tmp_path / file.name).write_bytes(archive)
    check(load_images("cifar-100", tmp_path), 500, 100, 100, (3, 32, 32))


@pytest.mark.parametrize("name", sorted(IMAGE_SETS))
def test_a_missing_data_set_is_an_error_that_names_the_places(name, tmp_path):
    with pytest.raises(InvalidArgument) as caught:
        load_images(name, tmp_path)
    assert caught.value.argument == "data_dir"
    for place in (tmp_path / name, "PLRVO_DATA", data_folder() / name):
        assert str(place) in str(caught.value)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(InvalidArgument, match="digits, mnist, fashion-mnist, cifar-10, cifar-100"):
        load_images("imagenet")
    assert NAMES[0] == "digits"


def test_every_home_is_reached_over_https():
    homes = [home for s in IMAGE_SETS.values() for layout in s.files.layouts for home in layout.homes]
    assert len(homes) >= 4
    assert all(home.startswith("https://") and home.endswith("/") for home in homes)
