"""What data sets and collate functions may give: an empty batch has the form of a full one."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.misuse.setting import CLASSES, FEATURES, Private, data
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from plrvo.noise import Keystream
from plrvo.training.private_loader import private_loader
from plrvo.training.sampler import PoissonSampler, lengths_of, no_examples
from plrvo.validate import InvalidArgument


def test_containers_stay_and_examples_go():
    transformers = pytest.importorskip("transformers")
    x = torch.ones(1, 3)
    batch = transformers.BatchEncoding({"x": x, "names": ["a.png"], "t": torch.tensor(0.5), "none": None, "n": 2})
    empty = no_examples(batch, 0)
    assert type(empty) is transformers.BatchEncoding
    assert empty["x"].shape == (0, 3)
    assert (empty["names"], empty["none"], empty["n"]) == ([], None, 2)
    assert empty["t"] == 0.5
    assert batch["x"].shape == (1, 3)


def test_the_dimension_of_examples_is_the_one_that_is_emptied():
    x, y, array = no_examples((torch.ones(4, 1), torch.ones(1), np.ones((4, 1))), 1)
    assert (x.shape, y.shape, array.shape) == ((4, 0), (0,), (4, 0))


def test_objects_that_may_hold_examples_are_refused():
    with pytest.raises(InvalidArgument, match="SimpleNamespace"):
        no_examples([SimpleNamespace(x=torch.ones(1))], 0)


class Shifted(TensorDataset):
    def __getitem__(self, index):
        return tuple(t + 1 for t in super().__getitem__(index))


@pytest.mark.parametrize("kind", [TensorDataset, Shifted])
def test_batches_by_index_are_those_of_single_examples(kind):
    """Tensors in memory are not collated example by example; what a data set changes in its examples stays changed."""
    dataset = kind(torch.arange(24.0).view(8, 3), torch.arange(8))
    batches = []
    for collate in (None, lambda examples: default_collate(examples)):
        sampler = PoissonSampler(size=8, sample_rate=0.2, steps=40, generator=Keystream(bytes(32)))
        loader = private_loader(DataLoader(dataset, collate_fn=collate), sampler, batch_first=True)
        batches.append(list(loader))
        assert loader.by_index == (kind is TensorDataset and collate is None)
    assert {0, 1, 2} <= {len(y) for _, y in batches[0]}
    for one, other in zip(*batches, strict=True):
        assert type(one) is type(other)
        assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("lengths", [[3, 1, 2], (3, 1, 2), np.array([3, 1, 2]), torch.tensor([3, 1, 2])])
def test_lengths_come_in_any_form(lengths):
    assert lengths_of(SimpleNamespace(lengths=lengths), 3).tolist() == [3, 1, 2]


def test_lengths_that_are_none():
    assert lengths_of(SimpleNamespace(), 3) is None
    assert lengths_of(SimpleNamespace(lengths=lambda: [3, 1, 2]), 3) is None
    with pytest.raises(InvalidArgument, match="one for each example"):
        lengths_of(SimpleNamespace(lengths=["a"]), 1)


class _Files(Dataset):
    lengths = [5] * 60

    def __init__(self):
        self.x, self.y = data().tensors

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i], f"{i}.png"


@dataclasses.dataclass
class _Output:
    logits: torch.Tensor


class _Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)

    def forward(self, x):
        return _Output(self.layer(x))


@pytest.mark.parametrize("mode", ["bookkeeping", "hooks"])
def test_file_names_lengths_in_a_list_and_outputs_in_a_dataclass_train(mode):
    run = Private(mode, _Model(), examples=_Files(), sample_rate=0.02, steps=6)
    assert isinstance(run.loader, DataLoader)
    for x, y, names in run.loader:
        assert len(names) == len(x)
        run.optimizer.zero_grad()
        nn.functional.cross_entropy(run.module(x).logits, y).backward()
        run.optimizer.step()
    assert run.optimizer.steps_taken == 6


@pytest.mark.parametrize("mode", ["bookkeeping", "hooks"])
def test_a_layer_may_freeze_in_mid_run_with_a_clip_for_each_layer(mode):
    run = Private(mode, clipping="per_layer", steps=4)
    run.train(2)
    run.plain[0].requires_grad_(False)
    shares = [run.optimizer.clips[p] for p in run.optimizer.params]
    assert shares == [pytest.approx(run.optimizer.clip / 2)] * 2  # of four, as before
    run.train(2)
    assert run.optimizer.steps_taken == 4
