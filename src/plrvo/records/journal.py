"""The journal of a run: what of it may have been seen, written down before it can be.

Between two releases (an evaluation that is shown, a checkpoint or weights that are written) nobody sees the steps that
a run takes. Before each release a line with the step and a digest of the weights is appended and flushed to disk:

    {"release": 3, "step": 75, "weights": "9f2c...", "check": "51ab..."}

Code of the caller's own that runs in every step may look at every step. With noise that is not taken again after a
crash, the steps that it could have seen only have to be counted: a line without weights is written before the step, and
another one with its weights if the step is released after all.

What follows from it:

- A run that is killed after a release, before the next checkpoint, repeats those steps from the same random streams
  when it is resumed, and shows nothing until it has reached the same weights again.
- Where the repeated step has other weights (another computer, library or number of threads), it is refused before
  anything is shown: two results with the same noise would give the noise away.
- A line that was being written in a crash is cut off: nothing had been shown yet. Any other damage is refused.
- `plrvo verify` refuses a receipt that is older than the last release.

So the steps in the ledger of a receipt that verifies are never fewer than the steps of which something was seen. A
release costs one digest of the trainable weights and one flush to disk, a step that is counted in advance the flush; a
step that is neither costs nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plrvo.files import open_regular, parse_json, read_at_most
from plrvo.validate import InvalidArgument, counted, shortened

_UNKNOWN = ""  # the weights of a step that was counted before it was taken
_LARGEST = 1 << 28  # bytes: more than a million releases


@dataclass
class Journal:
    """The releases of the run in one folder, by step."""

    path: Path
    weights_at: dict[int, str] = field(default_factory=dict)
    content: bytes = b""

    @staticmethod
    def open(path: Path) -> Journal:
        """The journal in the file, without a line that was cut short at its end; an empty one if there is no file."""
        content = _whole_lines(path)
        return Journal(path, {row["step"]: row["weights"] for row in _rows(path, content)}, content)

    @property
    def releases(self) -> int:
        return self.content.count(b"\n")

    @property
    def steps(self) -> int:
        """The last step of which something may have been seen."""
        return max(self.weights_at, default=0)

    def permits(self, step: int, wanted: bool, digest: Callable[[], str]) -> bool:
        """Whether results of this step may be seen, which has been written down when the answer is yes.

        A step that an earlier life of the run released must have the same weights again. Until the last of those is
        reached, nothing else is shown: the repetition has not been proved to be one.
        """
        known = self.weights_at.get(step)
        if known:
            if digest() != known:
                raise InvalidArgument(
                    "resume",
                    str(self.path.parent),
                    f"a computer that repeats this run bit by bit: step {step} has been released with other weights, "
                    "and the same noise must not be released with both. Same hardware, versions and number of threads?",
                )
            return wanted
        if not wanted or step < self.steps:
            return wanted and known == _UNKNOWN  # counted, whatever they are
        self._append(step, digest())
        return True

    def count(self, step: int) -> None:
        """Write down that somebody may see this step as soon as it is taken, of which nothing else is known yet."""
        if step > self.steps:
            self._append(step, _UNKNOWN)

    def summary(self) -> dict[str, Any]:
        """What a checkpoint and a receipt say of the releases so far."""
        return {"file": self.path.name, "releases": self.releases, "steps": self.steps, "digest": _digest(self.content)}

    def _append(self, step: int, weights: str) -> None:
        line = _line(self.releases + 1, step, weights)
        with self.path.open("r+b" if self.path.exists() else "xb") as file:
            file.truncate(len(self.content))  # without what a crash left of a line
            file.seek(len(self.content))
            try:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self.path)) from None
        self.weights_at[step] = weights
        self.content += line


def reconcile(journal: Journal, known: dict[str, Any]) -> None:
    """Refuse a journal that has lost something of what a checkpoint or a receipt (`known`) has seen of it."""
    first = b"".join(journal.content.splitlines(keepends=True)[: known["releases"]])
    if _digest(first) != known["digest"]:
        raise InvalidArgument(
            "resume", str(journal.path), f"the journal of this run, with its first {known['releases']} releases"
        )


def unreconciled(folder: Path, known: dict[str, Any], steps: int) -> list[str]:
    """What `plrvo verify` has to say of the journal beside a receipt that counts so many steps."""
    path = folder / Path(known["file"]).name
    if not path.is_file():
        return [f"the journal {path.name} is not beside the receipt"]
    try:
        journal = Journal.open(path)
        reconcile(journal, known)
    except InvalidArgument as error:
        return [f"the journal {path.name} is not that of the receipt: {error.expected}"]
    if journal.steps > steps:
        return [
            f"results of {counted(journal.steps, 'step')} have been released; the receipt counts {steps}: "
            "resume the run"
        ]
    if journal.releases != known["releases"] or known["steps"] != steps or journal.steps != steps:
        return [
            f"it counts {shortened(known['releases'])} releases up to step {shortened(known['steps'])}, and {steps} "
            f"steps; the journal has {journal.releases} up to step {journal.steps}: a receipt is a release itself"
        ]
    return []


def _whole_lines(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            content = read_at_most(file, _LARGEST)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise InvalidArgument("resume", str(path), f"a journal that can be read ({error.strerror})") from None
    return content[: content.rfind(b"\n") + 1]


def _rows(path: Path, content: bytes) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        row = _row(line)
        if row is None or row["release"] != number or (rows and not _follows(row, rows[-1])):
            raise InvalidArgument("resume", str(path), f"a whole journal; line {number} of this one is damaged")
        rows.append(row)
    return rows


def _follows(row: dict[str, Any], last: dict[str, Any]) -> bool:
    """A later step, or the weights of the last one, of which they are not there yet."""
    says = last["weights"] == _UNKNOWN != row["weights"]
    return bool(row["step"] > last["step"] or (row["step"] == last["step"] and says))


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = parse_json(line)
        release, step, weights = row["release"], row["step"], row["weights"]
        whole = type(step) is int and type(weights) is str and line == _line(release, step, weights)
    except (ValueError, KeyError, TypeError):
        return None
    return row if whole else None


def _line(release: int, step: int, weights: str) -> bytes:
    row = {"release": release, "step": step, "weights": weights}
    check = hashlib.sha256(json.dumps(row).encode()).hexdigest()[:16]
    return (json.dumps({**row, "check": check}) + "\n").encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
