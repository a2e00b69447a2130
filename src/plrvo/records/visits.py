"""The order in which data is visited, and the record that it kept its promise.

The account of correlated noise rests on how often, and how close together, an example takes part. `Visits` checks every
batch against the plan before it is handed out: a batch that breaks it stops the run, and nothing of it is released.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from plrvo.accounting.correlated import Participation
from plrvo.validate import InvalidArgument, counted, positive_integer

_NEVER = -(1 << 40)


class ScheduleViolated(RuntimeError):
    """A batch or a step that the plan's participation does not allow; nothing of it was released."""


class Visits:
    """Who took part when: counts, the smallest separation, and a digest of all batches in order."""

    def __init__(self, size: int, participation: Participation) -> None:
        self._participation = participation
        self._count = np.zeros(size, dtype=np.int64)
        self._last = np.full(size, _NEVER, dtype=np.int64)
        self._digest = hashlib.sha256()
        self.steps = 0
        self.smallest_separation: int | None = None

    def admit(self, batch: Sequence[int]) -> None:
        """Record the batch of the next step, or refuse it and stay as before."""
        indices = np.asarray(batch, dtype=np.int64)
        allowed = self._participation
        if indices.size:
            if indices.min() < 0 or indices.max() >= len(self._count):
                raise ScheduleViolated(f"step {self.steps}: an index outside of the {len(self._count)} examples")
            if len(np.unique(indices)) < len(indices):
                raise ScheduleViolated(f"step {self.steps}: an example is in the batch more than once")
            gaps = self.steps - self._last[indices]
            self._refuse(
                indices,
                gaps < allowed.separation,
                f"less than {counted(allowed.separation, 'step')} after its last visit",
            )
            self._refuse(
                indices, self._count[indices] >= allowed.epochs, f"more than {counted(allowed.epochs, 'time')}"
            )
            if allowed.fixed:  # whole periods apart: anything else is another pattern than the one paid for
                off = (self._last[indices] != _NEVER) & (gaps % allowed.separation != 0)
                self._refuse(
                    indices, off, f"out of its fixed order, which returns every {counted(allowed.separation, 'step')}"
                )
            smallest = int(gaps.min())
            if smallest < -_NEVER // 2 and (self.smallest_separation is None or smallest < self.smallest_separation):
                self.smallest_separation = smallest
            self._count[indices] += 1
            self._last[indices] = self.steps
        self._digest.update(len(indices).to_bytes(8, "little") + indices.astype("<i8").tobytes())
        self.steps += 1

    def _refuse(self, indices: Any, wrong: Any, how: str) -> None:
        if np.any(wrong):
            first = int(indices[np.argmax(wrong)])
            raise ScheduleViolated(f"step {self.steps}: example {first} takes part {how}; the plan does not cover that")

    def to_dict(self) -> dict[str, Any]:
        """What a receipt says about them."""
        return {
            "steps": self.steps,
            "largest_count": int(self._count.max()),
            "smallest_separation": self.smallest_separation,
            "digest": self._digest.hexdigest(),
        }


class OwnOrder:
    """Batches of a fixed order, or of one that is shuffled anew in every epoch as far as the separation allows.

    The examples are shuffled once and cut into `steps_per_epoch` batches. Epochs are cut into blocks of
    steps_per_epoch - separation + 1 batches, and examples change places within their block only: so two visits are at
    least `separation` steps apart. With blocks of one batch the order is fixed.

    The order is a pure function of `seed`, which is no secret: no privacy is claimed from it.
    """

    def __init__(self, size: int, participation: Participation, steps: int, seed: int) -> None:
        positive_integer(size=size, steps=steps)
        if participation.steps_per_epoch > size:
            raise InvalidArgument(
                "steps_per_epoch", participation.steps_per_epoch, f"at most {size}, the number of examples"
            )
        self.size, self.participation, self.steps, self.seed = size, participation, steps, seed

    def __iter__(self) -> Iterator[list[int]]:
        period = self.participation.steps_per_epoch
        block = period - self.participation.separation + 1
        batches = np.array_split(self._generator(0, 0).permutation(self.size), period)
        for step in range(self.steps):
            epoch, place = divmod(step, period)
            if block > 1 and place % block == 0:
                batches[place : place + block] = self._shuffled(batches[place : place + block], epoch + 1, place)
            yield batches[place].tolist()

    def _shuffled(self, batches: list[Any], epoch: int, place: int) -> list[Any]:
        ends = np.cumsum([len(batch) for batch in batches])[:-1]
        return np.split(self._generator(epoch, place).permutation(np.concatenate(batches)), ends)

    def _generator(self, epoch: int, place: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=self.seed, counter=[0, 0, place, epoch]))


class VisitedOrder:
    """An order, the visits of it so far, and what a receipt says of both. It can be brought back to any step.

    `order` is iterated from its beginning, so an order of the caller's has to be the same every time.
    """

    def __init__(
        self, order: OwnOrder | Iterable[Sequence[int]], size: int, participation: Participation, steps: int
    ) -> None:
        self.order, self.size, self.participation, self.steps = order, size, participation, steps
        self.visits = Visits(size, participation)

    @property
    def remaining(self) -> int:
        return self.steps - self.visits.steps

    def admitted(self) -> Iterator[Sequence[int]]:
        """The batches that are left, each checked before it is handed out."""
        done = self.visits.steps
        for step, batch in enumerate(self.order):
            if step < done:
                continue
            if self.remaining == 0:
                return
            self.visits.admit(batch)
            yield batch

    def return_to(self, steps: int, digest: str | None = None) -> None:
        """Visit the first `steps` batches again, and make sure that they are those of the digest."""
        self.visits = Visits(self.size, self.participation)
        for batch in self.order:
            if self.visits.steps == steps:
                break
            self.visits.admit(batch)
        found = self.visits.to_dict()
        if found["steps"] != steps or (digest is not None and found["digest"] != digest):
            raise InvalidArgument("data_loader", f"step {steps}", "the order of batches of the run that is resumed")

    def to_dict(self) -> dict[str, Any]:
        """What a receipt says about the order."""
        own = isinstance(self.order, OwnOrder)
        kind = "fixed" if self.participation.fixed else "separated"
        return {
            "order": kind if own else f"{kind}, the caller's",
            "size": self.size,
            "seed": str(self.order.seed) if isinstance(self.order, OwnOrder) else None,
            **self.visits.to_dict(),
        }
