"""Questions leave no trace in the run: neither in random streams nor, with workers, in the data set of this process."""

from __future__ import annotations

import os
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.misuse.setting import Private
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from plrvo.training.questions import Failed, ask, fetched

COUNT, WIDTH = 400, 32


class InAFile(Dataset[Any]):
    """Opened at the first item, as the usual advice is for workers; read in many small parts."""

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, None
        path.write_bytes(np.repeat(np.arange(COUNT, dtype=np.float32), WIDTH).tobytes())

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        self.file = self.file or self.path.open("rb", buffering=0)  # type: ignore[assignment]
        file: Any = self.file
        file.seek(i * WIDTH * 4)
        read = b"".join(file.read(8) for _ in range(WIDTH // 2))
        return torch.frombuffer(bytearray(read), dtype=torch.float32), i

    def __del__(self) -> None:
        if self.file is not None:
            self.file.close()


class InAZip(InAFile):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with zipfile.ZipFile(path, "w") as file:
            for i in range(COUNT):
                file.writestr(str(i), np.full(WIDTH, i, dtype=np.float32).tobytes())

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        self.file = self.file or zipfile.ZipFile(self.path)  # type: ignore[assignment]
        file: Any = self.file
        return torch.frombuffer(bytearray(file.read(str(i))), dtype=torch.float32), i


@pytest.mark.parametrize("kind", [InAFile, InAZip])
def test_a_file_that_is_opened_at_the_first_item_is_opened_in_workers_only(kind: Any, tmp_path: Path) -> None:
    """Sharing one, workers read most examples wrong."""
    data = kind(tmp_path / "examples")
    run = Private("hooks", torch.nn.Linear(WIDTH, 3), examples=data, workers=2, steps=6)
    for x, i in run.loader:
        assert torch.equal(x, i[:, None].expand_as(x).float())
        run.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(run.module(x), i % 3).backward()
        run.optimizer.step()
        assert data.file is None
    assert len(run.engine.accountant) == 6


@pytest.mark.parametrize("workers", [0, 2])
def test_empty_batches_have_the_form_of_others(workers: int, tmp_path: Path) -> None:
    examples = InAFile(tmp_path / "examples")
    run = Private("hooks", torch.nn.Linear(WIDTH, 3), examples=examples, workers=workers, sample_rate=1e-9, steps=3)
    for x, i in run.loader:
        assert (x.shape, i.shape, i.dtype) == ((0, WIDTH), (0,), torch.int64)
        run.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(run.module(x), i, reduction="sum").backward()
        run.optimizer.step()
    assert len(run.engine.accountant) == 3


class Drawn(Dataset[Any]):
    def __init__(self) -> None:
        self.own = np.random.default_rng(0)

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, i: int) -> float:
        if i == COUNT - 1:
            raise RuntimeError("no such example")
        return float(self.own.random() + torch.rand(()))


def _item(dataset: Any, collate: Any, i: int) -> tuple[Any, int]:
    return collate(fetched(dataset, [i])), os.getpid()


@pytest.mark.parametrize("workers", [0, 1])
def test_generators_are_left_alone_and_workers_are_asked(workers: int) -> None:
    loader = DataLoader(Drawn(), collate_fn=default_collate, num_workers=workers)
    before, own = torch.get_rng_state(), loader.dataset.own.bit_generator.state  # type: ignore[attr-defined]
    values, process = ask(loader, partial(_item, i=1))
    assert values.shape == (1,)
    assert (process == os.getpid()) == (not workers)
    assert torch.equal(torch.get_rng_state(), before)
    assert loader.dataset.own.bit_generator.state == own  # type: ignore[attr-defined]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_the_data_set_is_no_answer(workers: int) -> None:
    with pytest.raises(Failed, match="no such example") if workers else pytest.raises(RuntimeError):
        ask(DataLoader(Drawn(), num_workers=workers), partial(_item, i=COUNT - 1))


def _begun(_: int) -> None:
    info: Any = torch.utils.data.get_worker_info()
    info.dataset.own = None


def _own(dataset: Any, collate: Any) -> bool:
    return dataset.own is None


class Quiet(Drawn):
    def __getitem__(self, i: int) -> float:
        return 0.0


def test_a_worker_that_is_asked_begins_as_others_do() -> None:
    assert ask(DataLoader(Quiet(), num_workers=1, worker_init_fn=_begun), _own)
