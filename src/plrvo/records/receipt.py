"""The receipt: what a run may claim. One frozen type, which the trainer writes, and verification and reports read.

It protects against mistakes and damage, not against a forger: whoever trains can write what they like.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plrvo.accounting import Clipping, Plan
from plrvo.accounting.bracket import AnyLedger
from plrvo.accounting.correlated import read_ledger
from plrvo.files import json_digest, read_json, write_json
from plrvo.records import seeding, unit
from plrvo.records.compared import is_count
from plrvo.records.consistency import Findings, examine
from plrvo.records.fields import Fields, as_number
from plrvo.records.folder import RECEIPT
from plrvo.records.isolation import NOT_SAID, isolation_of
from plrvo.records.searched import Searched
from plrvo.validate import InvalidArgument

FORMAT = 1


@dataclass(frozen=True)
class Bracket:
    """The three epsilons as a file has them; None where it has none."""

    certified: float | None
    lower: float | None
    published: float | None

    @property
    def refutes_published(self) -> bool:
        """Whether an attacker provably exceeds the paper's formula."""
        return self.published is not None and self.lower is not None and self.published < self.lower


@dataclass(frozen=True)
class Receipt(Mapping[str, Any]):
    """A document and where it lies. What it says of itself is not believed before `verify` finds no differences.

    The properties are of the right form, or bad input of `receipt`.
    """

    document: dict[str, Any]
    path: Path = Path(RECEIPT)

    @staticmethod
    def signed(parts: dict[str, Any]) -> Receipt:
        """The receipt with these parts, and the digest of them."""
        document = {"receipt": FORMAT, **parts}
        return Receipt({**document, "digest": json_digest(document)})

    @staticmethod
    def read(path: str | Path) -> Receipt:
        """What is written in the file, and not yet believed."""
        path = Path(path)
        if path.exists() and not path.is_file():  # what lies beside a pipe or a device is not what it is about
            raise InvalidArgument("receipt", str(path), "a receipt file")
        document = read_json(path, "receipt", "a receipt file")
        if isinstance(document, dict) and "plan" in document and "receipt" not in document:
            said = f"a receipt, {RECEIPT} of a run that was trained; this is a plan, of which no step was taken"
            raise InvalidArgument("receipt", str(path), said)
        if not isinstance(document, dict) or type(document.get("receipt")) is not int or document["receipt"] != FORMAT:
            raise InvalidArgument("receipt", str(path), f"a receipt of format {FORMAT}")
        return Receipt(document, path)

    def write(self, path: str | Path) -> None:
        """Whole or not at all."""
        write_json(Path(path), self.document)

    def verify(self) -> Findings:
        """Recompute every number, beside the files of the run; no differences if all is as it says.

        Whatever a report would refuse to read is a difference too.
        """
        found = examine(self.document, self.path.parent)
        return found if found.differences else replace(found, differences=tuple(self._unread()))

    def _unread(self) -> Iterator[str]:
        for name, kind in vars(Receipt).items():
            if isinstance(kind, property) and name not in ("plan", "ledger"):  # which were examined
                try:
                    getattr(self, name)
                except InvalidArgument as error:
                    yield f"its {name} cannot be read: expected {error.expected}"

    def __getitem__(self, name: str) -> Any:
        return self.document[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.document)

    def __len__(self) -> int:
        return len(self.document)

    @property
    def _fields(self) -> Fields:
        return Fields.of(self.document, self.path, "a receipt", argument="receipt")

    @property
    def plan(self) -> Plan:
        return Plan.from_dict(self["plan"], self.run.get("clipping"))

    @property
    def ledger(self) -> AnyLedger:
        clipping = self["plan"].get("clipping", self.run.get("clipping"))
        return read_ledger(self["ledger"], layered=Clipping.named(clipping or Clipping.flat).layered)

    @property
    def bracket(self) -> Bracket:
        epsilon = self._fields.part("epsilon")
        return Bracket(epsilon.amount("certified"), epsilon.amount("lower"), epsilon.amount_or_none("published"))

    @property
    def delta(self) -> float:
        return self._fields.amount("delta")

    @property
    def searched(self) -> Searched | None:
        """The search that the run is the best trial of, None for a run of its own; the epsilons are the search's."""
        return Searched.read(self["search"]) if "search" in self.document else None

    @property
    def budget(self) -> float | None:
        if self.searched is not None:
            return self.searched.epsilon
        return self._fields.part("plan").amount_or_none("epsilon")

    @property
    def noise(self) -> dict[str, Any]:
        """Kind and parameters of the noise itself, without the grid that it may be rounded to."""
        given = self._fields.part("plan").part("noise")
        given = given.part("base") if "base" in given else given
        return {"noise": given.text("noise"), **given.content}

    @property
    def scheduled(self) -> bool:
        """Whether a schedule changed noise or clip; `noise` and `clip` are those of the first step then."""
        return "stages" in self._fields.part("plan")

    @property
    def exact(self) -> bool:
        """Whether sums and noise were integers."""
        return "cell" in self._fields.part("plan").part("noise")

    @property
    def task(self) -> str:
        task = self._fields.part("task")
        data = task.content.get("data")
        return task.text_or_none("name") or (data if isinstance(data, str) else None) or "a task without a name"

    @property
    def model(self) -> str | None:
        return self._fields.part("task").text_or_none("model")

    @property
    def examples(self) -> float | None:
        return self._fields.part("task").amount_or_none("examples")

    @property
    def steps(self) -> int:
        return round(self._fields.amount("steps"))

    @property
    def planned(self) -> int:
        return round(self._work.amount("steps"))

    @property
    def sample_rate(self) -> float:
        return self._work.amount("sample_rate")

    @property
    def clip(self) -> float:
        return self._work.amount("clip")

    @property
    def dimension(self) -> int:
        return round(self._work.amount("dimension"))

    @property
    def postprocess(self) -> str | None:
        """What was made of the released sums before the optimizer used them, which costs no privacy."""
        return self._fields.text_or_none("postprocess")

    @property
    def source(self) -> str | None:
        """Where the data came from."""
        return self._fields.part("task").text_or_none("data_source")

    @property
    def _work(self) -> Fields:
        return self._fields.part("plan").part("workload")

    @property
    def adjacency(self) -> str:
        return self._fields.text("adjacency")

    @property
    def sampler(self) -> str:
        return self._fields.text("sampler")

    @property
    def arithmetic(self) -> str:
        return self._fields.text("arithmetic")

    @property
    def run(self) -> Mapping[str, Any]:
        return self._fields.part("run").content

    @property
    def randomness(self) -> str:
        return self._fields.part("run").text_or_none("randomness") or "a source that the receipt does not name"

    @property
    def seeded(self) -> bool | None:
        """Whether the noise can be repeated by whoever knows a seed; None where the receipt does not say."""
        return seeding.is_seeded(self.run)

    @property
    def warning(self) -> str | None:
        """What has to be said before any epsilon of the run."""
        return seeding.warning(self.run)

    @property
    def isolation(self) -> str:
        """Why no example changes another's gradient, which the epsilons rest on."""
        kind = isolation_of(self.run)
        return NOT_SAID if kind is None else kind.sentence

    @property
    def unsafe(self) -> bool:
        return self.run.get("unsafe_diagnostics") is True

    @property
    def metrics_covered(self) -> bool:
        """Whether the receipt vouches for the metrics beside it; the first receipts did not."""
        return self.document.get("metrics") is not None

    @property
    def weights_of(self) -> int:
        """The step after which the weights were what they are: the last, unless the run's author chose another."""
        step: Any = self.run.get("weights_of_step")
        return step if is_count(step) else self.steps

    @property
    def stated(self) -> list[dict[str, float]]:
        """Metrics that stand in the receipt alone, in `run`: its author's word, for which no file is vouched.

        `history` has a row for each test, `metrics` the last one; numbers without a step are those of the end.
        """
        rows = self.run.get("history")
        rows = rows if isinstance(rows, list) and rows else [self.run.get("metrics")]
        found = []
        for row in rows if self.document.get("metrics") is None else []:
            numbers = {name: as_number(value) for name, value in row.items()} if isinstance(row, dict) else {}
            # Epsilons are recomputed or not shown.
            known = {name: value for name, value in numbers.items() if value is not None and "epsilon" not in name}
            if known.keys() - {"step"}:
                found.append({"step": float(self.steps), **known})
        return found

    @property
    def unit(self) -> str:
        """What one example is, whose presence is hidden."""
        return unit.unit_of(self._fields.part("task").content)

    @property
    def unit_is_authors(self) -> bool:
        """Whether that is the word of whoever wrote the loop, which nothing can be compared with."""
        return unit.is_authors(self._fields.part("task").content, self.get("job"))

    @property
    def unit_lines(self) -> list[str]:
        """What one example is, and what is certified for those that belong together, where there are such."""
        line, job = unit.unit_line(self._fields.part("task").content, self.get("job")), self.get("job")
        return [line] if self.group is None else [line, unit.group_line(self.group, job)]

    @property
    def group(self) -> dict[str, Any] | None:
        """What holds for all examples of one group, where they come in groups."""
        if "group" not in self._fields:
            return None
        group = self._fields.part("group")
        return {**group.content, "certified": group.amount_or_none("certified")}
