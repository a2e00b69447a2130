"""Every reader of files, with a valid file to start from."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import plrvo
from plrvo.accounting import Ledger
from plrvo.audit import Canary, blocks
from plrvo.audit.receipt import verify
from plrvo.files import parse_json, read_json
from plrvo.noise import Specification
from plrvo.paper.document import sealed
from plrvo.records.history import read_history
from plrvo.records.journal import Journal
from plrvo.report.loading import read_run
from plrvo.report.page import make_page
from plrvo.tasks import archive, attacked, features
from plrvo.tasks.archive import BadArchive
from plrvo.tasks.text.catalog import TEXT_SETS
from plrvo.tasks.text.data import read_split
from plrvo.training import checkpoint
from plrvo.validate import InvalidArgument

WORK = plrvo.Workload(sample_rate=0.01, steps=5, clip=1.0, dimension=4)
PLAN = plrvo.Plan.certify(plrvo.Laplace(2.0), WORK, 1e-5, 5.0)
SETTINGS = {"seed": 1}
# What a reader may say of a bad file: everything else is a bug.
REFUSALS = (InvalidArgument, BadArchive)


@dataclass(frozen=True)
class Reader:
    """`read` takes a path; `valid` makes the content of a good file. `names` are for a fuzzer's dictionary."""

    read: Callable[[Path], Any]
    valid: Callable[[], bytes]
    suffix: str = ".json"

    def accepts(self, content: bytes, folder: Path) -> bool:
        """Whether the content is taken; a refusal in one line is the only other thing that may happen."""
        path = folder / f"file{self.suffix}"
        path.write_bytes(content)
        try:
            self.read(path)
        except REFUSALS as error:
            if type(error) not in REFUSALS:
                raise
            return False
        return True


def _as_json(value: Any) -> Callable[[], bytes]:
    return lambda: json.dumps(value).encode()


def _noise_from_file(path: Path) -> Any:
    return Specification(file=path).noise(clip=1.0)


def _ledger(path: Path) -> Ledger:
    return Ledger.from_list(read_json(path, "ledger", "a ledger"))


def _sum_noise() -> bytes:
    gamma = {"seed": "gamma", "k": 3.0, "theta": 0.5}
    exponential = {"seed": "exponential", "scale": 1.0}
    both = {"seed": "sum", "weights": [1.0, 2.0], "seeds": [gamma, exponential]}
    return json.dumps({"noise": "plrv", "seed": both, "shared": False}).encode()


@cache
def _receipt() -> bytes:
    ledger = Ledger().plus(PLAN.noise, WORK)
    bracket = ledger.epsilon(1e-5)
    audit = {"confidence": 0.99, "tried": 5, "canaries": 200, "guesses": 20, "correct": 12, "delta": 1e-5}
    audit |= {"epsilon_claimed": bracket.certified, "epsilon_audited": 0.0, "verdict": "consistent"}
    receipt = {
        "receipt": 1,
        "plan": PLAN.to_dict(),
        "ledger": ledger.to_list(),
        "steps": 5,
        "complete": True,
        "delta": 1e-5,
        "epsilon": {"certified": bracket.certified, "lower": bracket.lower, "published": bracket.published},
        "run": {"unsafe_diagnostics": False},
        "weights": {"file": "model.safetensors", "sha256": ""},
        "journal": {"file": "journal.jsonl", "releases": 1, "steps": 5, "digest": ""},
        "audit": audit,
        "digest": "",
    }
    return json.dumps(receipt).encode()


@cache
def _checkpoint() -> bytes:
    import torch

    tensors = {"module.weight": torch.ones(3), "generator.noise": torch.zeros(8, dtype=torch.uint8)}
    record = {"format": 1, "plan": None, "ledger": [], "steps_taken": 0, "remaining": 0, "optimizer": {}, "extra": {}}
    return checkpoint._pack(tensors, record)


def _journal() -> bytes:
    from plrvo.records.journal import _line

    return _line(1, 3, "a" * 64) + _line(2, 6, "b" * 64)


def _state() -> bytes:
    content = io.BytesIO()
    settings = {**SETTINGS, "per_world": 4, "block_size": 2}
    np.savez(content, settings=np.array(json.dumps(settings, sort_keys=True)), scores=np.zeros((2, 4)))
    return content.getvalue()


def _canary() -> bytes:
    content = io.BytesIO()
    np.save(content, np.array([0.5, -0.25, 0.1]))
    return content.getvalue()


def tar(name: str, content: bytes, kind: bytes = tarfile.REGTYPE, link: str = "", size: int | None = None) -> bytes:
    """A tar archive of one member."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as made:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, link
        member.size = len(content) if size is None and kind == tarfile.REGTYPE else size or 0
        made.fileobj.write(member.tobuf(tarfile.USTAR_FORMAT))  # type: ignore[union-attr]
        made.fileobj.write(content + bytes(-len(content) % 512))  # type: ignore[union-attr]
    return file.getvalue()


def _location() -> bytes:
    return gzip.compress(tar("bangkok", b'"1",0,1,1\n"30",1,0,0\n'))


def _idx() -> bytes:
    return gzip.compress(bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6]))


def _in(name: str, read: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """A reader that wants a folder with a file of this name."""

    def renamed(path: Path) -> Any:
        path.replace(path.with_name(name))
        return read(path.parent)

    return renamed


def _features() -> bytes:
    import torch
    from safetensors.torch import save

    part = torch.ones(2, 3)
    return save({"features": part, "sha256": features._digest(part)})


def _split(path: Path) -> Any:
    text_set = TEXT_SETS["sst2"]
    return read_split(path.read_bytes(), text_set.splits["train"], text_set)


def _settings() -> Any:
    return {**SETTINGS, "per_world": 4, "block_size": 2}


def _page(path: Path) -> bytes:
    """All of the way: whatever is read must also be shown."""
    return make_page([read_run(path)])


def _page_when_sealed(path: Path) -> bytes:
    """With the digest that the document should have: else nothing that is behind it would ever be tried."""
    with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError, RecursionError):
        path.write_text(json.dumps(sealed(parse_json(path.read_bytes()))))
    return _page(path)


def _audit() -> bytes:
    return (Path(__file__).parents[2] / "results" / "audit" / "mechanism-published.json").read_bytes()


def _reproduction() -> bytes:
    epsilon = {"printed": 1.0, "published": 1.1, "certified": 0.9, "lower": 0.5}
    row = {"key": "a", "label": "a row", "parameters": {"k": 3.0}, "printed": {"gamma": 90.0, "laplace": None}}
    row |= {"measured": {"gamma": 91.0}, "epsilon": epsilon, "flags": {"differs": "a remark"}}
    about = {
        "name": "table",
        "group": "paper",
        "title": "a table",
        "paper": "Table 1",
        "scale": "quick",
        "status": "finished",
    }
    return json.dumps({**about, "stand_in": None, "rows": [row, row], "findings": ["a finding"]}).encode()


READERS: dict[str, Reader] = {
    "plan": Reader(plrvo.Plan.load, _as_json(PLAN.to_dict())),
    "noise": Reader(_noise_from_file, _as_json({"noise": "gamma", "k": 40.0, "theta": 0.1, "shared": False})),
    "sum of seeds": Reader(_noise_from_file, _sum_noise),
    "ledger": Reader(_ledger, _as_json(Ledger().plus(PLAN.noise, WORK).to_list())),
    "receipt": Reader(verify, _receipt),
    "page of an audit": Reader(_page, _audit),
    "page of a reproduction": Reader(_page_when_sealed, _reproduction),
    "metrics": Reader(read_history, lambda: b'{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n', ".jsonl"),
    "journal": Reader(Journal.open, _journal, ".jsonl"),
    "checkpoint": Reader(checkpoint.read_extra, _checkpoint, ".safetensors"),
    "audit state": Reader(lambda path: blocks._load(path, _settings()), _state, ".npz"),
    "canary": Reader(lambda path: Canary.from_file(path, WORK), _canary, ".npy"),
    "location30": Reader(_in("dataset_location.tgz", attacked.location30), _location, ".tgz"),
    "idx": Reader(attacked.read_idx, _idx, ".gz"),
    "texts": Reader(_split, lambda: b"sentence\tlabel\na fine film\t1\nno\t0\n", ".tsv"),
    "gzip": Reader(lambda path: archive.gunzip(path.read_bytes(), 1000), lambda: gzip.compress(b"plrvo"), ".gz"),
    "tar": Reader(lambda path: archive.untar(path.read_bytes(), {"a/b": 5}), lambda: tar("a/b", b"plrvo"), ".tar"),
    "features": Reader(lambda path: features._read(path, 2), _features, ".safetensors"),
    "JSON": Reader(lambda path: _no_error(path), lambda: b'{"a": [1, 2.5, "x", null, true]}'),
}


def _no_error(path: Path) -> Any:
    try:
        return parse_json(path.read_bytes())
    except ValueError:
        return SimpleNamespace()
