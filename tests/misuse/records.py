"""E. Records that do not contradict themselves."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from tests.misuse.row import ANY, Section
from tests.records.receipts import KINDS
from tests.records.test_consistency import FORGERIES, forge

from plrvo.validate import InvalidArgument, printable

E = Section("E. Records")


@cache
def _made() -> Any:
    """One real run for all rows; the folder goes with the process."""
    kept = tempfile.TemporaryDirectory()
    KINDS["poisson"](Path(kept.name) / "run")
    return kept


@contextmanager
def _run() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(shutil.copytree(Path(_made().name) / "run", Path(folder) / "run"))


def _forgery(name: str) -> Any:
    change, said = FORGERIES[name]

    def attempt(mode: str) -> None:
        with _run() as folder:
            try:
                found = forge(folder, change)
            except InvalidArgument as refused:
                assert said is None, refused  # noqa: PT017
                return
            assert found
            assert said is None or any(said in line for line in found), found

    return attempt


for _name in FORGERIES:
    E.row(f"forge a receipt and sign it again: {_name}", "`plrvo verify`: differs", modes=ANY)(_forgery(_name))


@E.row("change `metrics.jsonl` after the run", "`plrvo verify`: differs; the page says so", modes=ANY)
def metrics(mode: str) -> None:
    from plrvo.audit.receipt import verify

    with _run() as folder:
        path = folder / "metrics.jsonl"
        path.write_text(path.read_text().replace('"accuracy": 0.', '"accuracy": 0.9'))
        assert any("metrics.jsonl" in line for line in verify(folder / "receipt.json"))


@E.row("exchange the weights, and sign the receipt again", "`plrvo verify`: differs, by the journal", modes=ANY)
def weights(mode: str) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    from plrvo.records import derived

    with _run() as folder:
        path = folder / "model.safetensors"
        save_file({name: torch.zeros_like(t) for name, t in load_file(path).items()}, path)
        found = forge(folder, lambda receipt: receipt["weights"].update(sha256=derived.file_digest(path)))
        assert any("last release" in line for line in found)


@E.row("deny the seed that the checkpoint beside the receipt has", "`plrvo verify`: differs", modes=ANY)
def denied_seed(mode: str) -> None:
    from tests.records.test_consistency import kept

    with _run() as folder:
        assert any(
            "has a seed" in line for line in kept(folder, lambda record: record["extra"]["fixed"].update(seed=7))
        )


@E.row(
    "go on without the seed that a checkpoint's steps were drawn with",
    "the receipt says that the run is not private: some of its noise can be repeated",
    modes=ANY,
)
def forgotten_seed(mode: str) -> None:
    from tests.records.test_isolation import test_a_seed_of_earlier_steps_is_not_forgotten as attempt

    with tempfile.TemporaryDirectory() as folder:
        attempt(Path(folder))


@E.row(
    "train in batches, and call the examples apart by construction",
    "`plrvo verify`: differs; a receipt tells tried from proved, also after a checkpoint of another mode",
    modes=ANY,
)
def called_apart(mode: str) -> None:
    with _run() as folder:
        found = forge(folder, lambda receipt: receipt["run"].update(isolation="construction"))
        assert any("in a batch" in line for line in found)


@E.row("put terminal escapes into a receipt's texts", "they are printed as escapes, and do nothing", modes=ANY)
def escapes(mode: str) -> None:
    from plrvo.audit.receipt import verify

    with _run() as folder:
        path = folder / "receipt.json"
        receipt = json.loads(path.read_text())
        receipt["task"]["name"] = receipt["arithmetic"] = "\x1b[2K\x1b[1Averified\u202e\r\n"
        path.write_text(json.dumps(receipt))
        assert all(printable(line).isprintable() for line in verify(path))


@E.row("resume from a checkpoint that was packed again with more steps left", "refused in one line", modes=ANY,
       error=InvalidArgument, match="resume")  # fmt: skip
def repacked(mode: str) -> None:
    from plrvo.training.checkpoint import _pack, _unpack

    with _run() as folder:
        path = folder / "checkpoint.safetensors"
        tensors, record = _unpack(path)
        record["remaining"] += 100
        path.write_bytes(_pack(tensors, record))
        _resume(folder)


def _resume(folder: Path) -> None:
    from tests.records.receipts import DELTA, WORK, run

    import plrvo

    run(folder, plrvo.Plan.certify(plrvo.Laplace(2.0), WORK, DELTA, 50.0), resume=True)


@E.row("load a model folder that brings code of its own", "the code is not run", modes=ANY)
def own_code(mode: str) -> None:
    from transformers import AutoConfig

    with tempfile.TemporaryDirectory() as name:
        folder, trace = Path(name), Path(name) / "was-run"
        (folder / "evil.py").write_text(f"open({str(trace)!r}, 'w').close()\nclass C: pass\n")
        (folder / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": {"AutoConfig": "evil.C"}}))
        with suppress(ValueError, OSError):
            AutoConfig.from_pretrained(name, trust_remote_code=False)
        assert not trace.exists()
