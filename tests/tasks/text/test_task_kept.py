"""Many runs on the same texts: read, cut into tokens and encoded once, and the models still new each time."""

import pytest
import torch
from tests.tasks.text.tiny import save_checkpoint, texts, write_sst2

from plrvo.tasks.catalog import Request, prepare


@pytest.fixture
def folder(tmp_path, monkeypatch):
    from dataclasses import replace

    from plrvo.tasks.text import catalog

    write_sst2(tmp_path / "sst2", texts(40), texts(12))
    known = catalog.TEXT_SETS["sst2"]
    splits = {
        name: replace(split, file=replace(split.file, sha256=None, size=10_000)) for name, split in known.splits.items()
    }
    monkeypatch.setitem(catalog.TEXT_SETS, "sst2", replace(known, splits=splits))
    save_checkpoint(tmp_path / "tiny")
    return tmp_path


def request(folder, kept, **options):
    return Request("sst2", str(folder / "tiny"), folder, options, kept)


@pytest.mark.parametrize("options", [{"trainable": "head"}, {"trainable": "all"}, {"trainable": "all", "layers": 1}])
def test_kept_data_are_those_that_would_be_loaded(folder, options):
    kept = {}
    first, again = (prepare(request(folder, kept, **options), torch.Generator().manual_seed(3)) for _ in "ab")
    alone = prepare(request(folder, None, **options), torch.Generator().manual_seed(3))
    assert again.task.data is first.task.data is not alone.task.data
    assert again.task.description == alone.task.description
    for mine, theirs in zip(again.module.parameters(), alone.module.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert {id(p) for p in again.module.parameters()}.isdisjoint(id(p) for p in first.module.parameters())
    with torch.no_grad():  # what is done to one model is not seen by the next
        for parameter in first.module.parameters():
            parameter.zero_()
    assert again.task.evaluate(again.module) == alone.task.evaluate(alone.module)


def test_other_options_have_other_data(folder):
    kept = {}
    whole, few, short = (
        prepare(request(folder, kept, trainable="all", **options), torch.Generator().manual_seed(3)).task
        for options in ({}, {"limit": 10}, {"max_length": 4})
    )
    assert (whole.size, few.size, short.size) == (40, 10, 40)
    assert int(short.data.lengths.max()) == 4 < int(whole.data.lengths.max())
