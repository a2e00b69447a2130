"""What a search keeps on disk until it has ended: secret, since the guarantee is for the best trial alone.

    OUT/.search/          for the owner only
      state.json          what was asked for, how many trials there are, and what each of them draws
      done-0003.json      the noisy score of a trial that is done
      trial-0003/         the run of a trial; of those that are done, the best so far

The number of trials is drawn once, and written before the first trial begins: a search that is resumed has the same
trials. Those that are done are not repeated. One that was not done is begun anew with fresh noise: nobody has seen
anything of it. When the search ends everything here is removed.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plrvo.files import read_json, write_bytes
from plrvo.tasks.tuning.tuning import Tuning
from plrvo.validate import InvalidArgument

FOLDER = ".search"
FORMAT = 1
_STATE, _SECRET = "state.json", "SECRET.txt"
WARNING = (
    "This folder is secret until the search has ended: it has the number of trials and results of trials that lose, "
    "which the guarantee does not cover. Do not look into it, copy it or give it away. `plrvo tune --resume` goes on, "
    "and removes it at the end."
)


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

    def remove(self) -> None:
        """All of it, the state last: a crash on the way leaves a search that can be resumed."""
        for number in self.numbers:
            shutil.rmtree(self.trial(number), ignore_errors=True)
        (self.folder / _STATE).unlink(missing_ok=True)
        shutil.rmtree(self.folder)

    def _write(self, name: str, content: Any) -> None:
        write_bytes(self.folder / name, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode(), secret=True)
