"""What a search keeps on disk until it has ended: secret, since the guarantee is for the best trial alone.

    OUT/.search/          for the owner only
      state.json          what was asked for, how many trials there are, and what each of them draws; then what is
                          released; then only that the search has ended
      done-0003.json      the noisy score of a trial that is done
      trial-0003/         the run of a trial; of those that are done, the best so far

The number of trials is drawn once, and written before the first trial begins: a search that is resumed has the same
trials. Those that are done are not repeated. One that was not done is begun anew with fresh noise: nobody has seen
anything of it. Before the release begins, it is written down which trial it is of, with the digests of its files: a
copy of the folder that comes to another trial, or to other files, is told from this one. When the search ends
everything here is removed, the state last.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plrvo.files import json_digest, read_json, write_bytes
from plrvo.records.folder import CHECKPOINT, LOCK, METRICS, RECEIPT
from plrvo.tasks.tuning.tuning import Tuning
from plrvo.validate import InvalidArgument

FOLDER = ".search"
FORMAT = 1
_STATE, _SECRET = "state.json", "SECRET.txt"
_CHANGES = (CHECKPOINT, LOCK, METRICS, RECEIPT)  # files of a trial that are not released as they are
_OF_AN_ENDED = ("search", "tuning", "cost", "delta", "budget", "mark")  # nothing that a trial has drawn or given
WARNING = (
    "This folder is secret until the search has ended: it has the number of trials and results of trials that lose, "
    "which the guarantee does not cover. Do not look into it, copy it or give it away. `plrvo tune --resume` goes on, "
    "and removes it at the end."
)


def has_begun(out: Path) -> bool:
    """Whether a search in this folder has not ended."""
    return (out / FOLDER / _STATE).exists()


@dataclass(frozen=True)
class Done:
    """What a trial came to; larger is better, and the tag decides between equals."""

    number: int
    failed: bool  # it diverged
    score: int  # right answers in cells of the noise
    tag: int

    @property
    def rank(self) -> tuple[bool, int, int]:
        return not self.failed, self.score, self.tag


@dataclass(frozen=True)
class State:
    """The secret folder of a search."""

    folder: Path
    document: dict[str, Any]

    @staticmethod
    def create(out: Path, document: dict[str, Any]) -> State:
        """Written before the first trial: whole, or not at all."""
        folder = out / FOLDER
        folder.mkdir(mode=0o700, parents=True)
        folder.chmod(0o700)  # whatever the user's mask
        state = State(folder, {"search": FORMAT, **document})
        write_bytes(folder / _SECRET, (WARNING + "\n").encode(), secret=True)
        state._write(_STATE, state.document)
        return state

    @staticmethod
    def read(out: Path) -> State:
        """Of a search that is resumed."""
        path = out / FOLDER / _STATE
        if not path.is_file():
            raise InvalidArgument("resume", str(out), "a folder that holds a search which has not ended")
        document = read_json(path, "resume", "a search that `plrvo tune` began")
        if not isinstance(document, dict) or document.get("search") != FORMAT:
            raise InvalidArgument("resume", str(out), f"a search of format {FORMAT}")
        return State(out / FOLDER, document)

    @property
    def tuning(self) -> Tuning:
        return Tuning.from_dict(self.document["tuning"])

    @property
    def numbers(self) -> range:
        """Of all trials."""
        return range(len(self.document["trials"]))

    def settings(self, number: int) -> dict[str, Any]:
        """What a trial has drawn."""
        found: dict[str, Any] = self.document["trials"][number]["settings"]
        return found

    def trial(self, number: int) -> Path:
        """The folder of a trial's run."""
        return self.folder / f"trial-{number:04d}"

    def begin_trial(self, number: int) -> Path:
        """An empty folder for it: what an earlier attempt left is removed."""
        path = self.trial(number)
        shutil.rmtree(path, ignore_errors=True)
        return path

    def finish_trial(self, done: Done) -> None:
        """From now on it is not repeated."""
        self._write(f"done-{done.number:04d}.json", {"failed": done.failed, "score": done.score, "tag": done.tag})

    def done(self, number: int) -> Done | None:
        path = self.folder / f"done-{number:04d}.json"
        if not path.exists():
            return None
        found = read_json(path, "resume", "the score of a trial")
        return Done(number, found["failed"], found["score"], found["tag"])

    def left(self) -> list[int]:
        """Trials that are yet to be done."""
        return [number for number in self.numbers if self.done(number) is None]

    def best(self) -> Done | None:
        """Of those that are done."""
        known = [done for number in self.numbers if (done := self.done(number)) is not None]
        return max(known, key=lambda done: done.rank, default=None)

    def forget_losers(self) -> None:
        """Remove what is known of trials that are done and not the best so far, but for their scores."""
        best = self.best()
        for number in self.numbers:
            if best is not None and number != best.number and self.done(number) is not None:
                shutil.rmtree(self.trial(number), ignore_errors=True)

    @property
    def mark(self) -> str | None:
        """A digest of what is released, which tells nothing of it; None before that is written down."""
        found: str | None = self.document.get("mark")
        return found

    @property
    def ended(self) -> bool:
        """Whether all is released, and the rest only has to be removed."""
        return "trials" not in self.document

    def begin_release(self) -> State:
        """Write down what will be released, once: whoever is interrupted afterwards releases the same, or nothing."""
        best = self.best()
        chosen = None if best is None or best.failed else best.number
        files = {} if chosen is None else _digests(self.trial(chosen))
        known = self.document.get("release")
        if known is None:
            known = {"nonce": secrets.token_hex(32), "trial": chosen, "files": files}
            return self._replaced({**self.document, "release": known, "mark": json_digest(known)})
        if known["trial"] != chosen or any(files.get(name) != digest for name, digest in known["files"].items()):
            whole = "the search whose release had begun: parts of this folder are an older copy"
            raise InvalidArgument("resume", str(self.folder.parent), whole)
        return self

    def end(self) -> State:
        """Everything is released: forget how many trials there were, and what they drew."""
        return self._replaced({name: self.document[name] for name in _OF_AN_ENDED})

    def remove(self) -> None:
        """All of it, the state last: a crash on the way leaves a search that can be resumed, to remove the rest."""
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != _STATE:
                path.unlink()
        (self.folder / _STATE).unlink()
        self.folder.rmdir()

    def _replaced(self, document: dict[str, Any]) -> State:
        self._write(_STATE, document)
        return State(self.folder, document)

    def _write(self, name: str, content: Any) -> None:
        write_bytes(self.folder / name, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode(), secret=True)


def _digests(trial: Path) -> dict[str, str]:
    """Of the files of a trial that are released as they are."""
    files = sorted(path for path in trial.rglob("*") if path.is_file() and path.parts[len(trial.parts)] not in _CHANGES)
    return {path.relative_to(trial).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
