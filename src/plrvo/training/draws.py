"""What binds a step to its batch: a step belongs to one batch that the sampler drew, whole, and to no other.

The account of a step is that of a batch drawn by the plan's coins. A step on anything else (batches of one's own, one
batch twice, half a batch, every example eight times) is another mechanism, whose epsilon nobody has computed. So the
sampler writes down each batch that it draws, and the optimizer settles every step against it, before anything is
released. What is counted is rows: a row of the model's batch is clipped once, so it must be one example.

A batch that was drawn is not drawn again in its place. Whoever leaves a loop, or looks at `next(iter(loader))`, finds
the same batch at the next pass, and after it those that workers had collated ahead: to look is free, to choose is not
possible, and no step of the plan is lost. That nobody has seen a batch is thus of no importance, nor is who has.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, Sampler


class BatchMismatch(RuntimeError):
    """A step that does not belong to one whole batch of the engine's loader; nothing of it was released.

    It does not say how large the batch was, which is private too.
    """


class BudgetExhausted(RuntimeError):
    """The plan's steps have been taken; one more would exceed its budget."""


@dataclass(eq=False)
class Pass:
    """One pass over the loader: how many of the waiting batches it has taken, and how many of these have left."""

    begun: int = 0
    out: int = 0  # the step under way belongs to the only one
    given: int = 0  # batches, of which some may have had their step
    around: Pass | None = None  # the pass in whose loop it began
    is_over: bool = False


class Draws:
    """The batches that were drawn and have no step yet, oldest first.

    Passes may be nested, as when a loop over the loader looks at `next(iter(loader))`, or evaluates on it. Each counts
    its own batches, all go through those that wait first, and a step belongs to the pass that was asked last.
    """

    def __init__(self) -> None:
        self._waiting: deque[Sequence[int]] = deque()
        self._new: Iterator[Sequence[int]] = iter(())  # where all passes draw from
        self.current = Pass(is_over=True)  # nobody goes back to it
        self._passes: weakref.WeakSet[Pass] = weakref.WeakSet([self.current])
        self._rows = 0  # of the parts of the batch under way so far
        self.settled: Sequence[int] = ()  # the last batch that had its step
        self.skipped = 0  # of the next pass, how many were given before the run was resumed

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def passed(self) -> int:
        """How many batches the pass under way has given."""
        return self.current.given

    @property
    def is_at_a_batch(self) -> bool:
        """Whether the next part is the first of its batch."""
        return self._rows == 0

    def through(self, new: Iterator[list[int]], *, most: int | None = None, ahead: bool = False) -> Iterator[list[int]]:
        """One pass over the loader: first what waits, then what is new, `most` batches in all.

        `ahead` of when batches leave it, or not.
        """
        self._new, self._rows = new, 0
        own = Pass(given=self.skipped, around=None if self.current.is_over else self.current)
        self.skipped, self.current = 0, own
        self._passes.add(own)
        try:
            while most is None or own.given < most:
                self.current = own
                if own.begun == len(self._waiting):
                    drawn = next(self._new, None)
                    if drawn is None:
                        return
                    self._waiting.append(drawn)
                batch = self._waiting[own.begun]
                own.begun += 1
                own.given += 1
                if not ahead:
                    self.leave(own)
                yield list(batch)
        finally:
            own.is_over = True
            if self.current is own and own.around is not None and not own.around.is_over:
                self.current = own.around

    def under_way(self, rows: int) -> Sequence[int] | None:
        """The examples of a part of so many rows that a step is about to begin with; None where that is not clear."""
        if self.current.out != 1 or not self._waiting or self._rows + rows > len(self._waiting[0]):
            return None
        return self._waiting[0][self._rows : self._rows + rows]

    def leave(self, of: Pass | None = None) -> None:
        """A batch leaves the loader in a pass, the one under way unless it is given."""
        (of or self.current).out += 1

    def drawn(self, batch: Sequence[int]) -> None:
        """A batch that comes without a loader."""
        self._waiting.append(batch)
        self.current.begun += 1
        self.leave()

    def part(self, rows: int, *, last: bool) -> None:
        """So many rows take part in the step under way; with the last of them the batch must be complete."""
        if not self.current.out:
            raise BatchMismatch(
                "a step without a batch: expected one step for each batch of the loader that make_private returned, "
                "on that batch and no other"
            )
        size = len(self._waiting[0])
        if self.current.out > 1:
            raise BatchMismatch(
                "a batch was drawn and no step was taken for it: expected one step for every "
                "batch, empty ones included; which batches take a step must not depend on them (a new pass over the "
                "loader begins with that batch; a loader that accelerate has prepared draws ahead: use the private one)"
            )
        rows += self._rows
        if rows > size or (last and rows != size):
            self._rows = 0
            raise BatchMismatch(
                "other rows in a step than its batch has examples: expected one row for each example, once; "
                "layers on flattened positions, repeated examples and parts of batches are not what the plan covers "
                '(in grad_sample_mode="alone", module.backward(examples) stands in the place of loss.backward())'
            )
        if last:
            self.settled = self._waiting.popleft()
            for each in self._passes:
                each.begun, each.out = max(0, each.begun - 1), max(0, each.out - 1)
        self._rows = 0 if last else rows

    def forget_part(self) -> None:
        """The parts of the batch under way were dropped (zero_grad before the step); its batch still waits."""
        self._rows = 0


class WorkersLoader(DataLoader[Any]):
    """Has workers collate batches ahead, and sees each as it leaves.

    To others it is a loader without workers, so that one that is made from its parts (BatchMemoryManager's) takes
    batches one at a time: nobody could say which of those that it took ahead have left it.
    """

    def __init__(self, dataset: Any, *, batch_sampler: Any, collate_fn: Any, **options: Any) -> None:
        super().__init__(dataset, batch_sampler=batch_sampler, collate_fn=collate_fn)
        self._draws: Draws = batch_sampler.draws
        self._ahead: DataLoader[Any] = DataLoader(
            dataset, batch_sampler=_Ahead(batch_sampler), collate_fn=collate_fn, **options
        )

    @property
    def with_workers(self) -> DataLoader[Any]:
        """What a loader with workers may be asked for."""
        return self._ahead

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        batches = iter(self._ahead)
        own = self._draws.current  # which workers have begun
        for batch in batches:
            self._draws.current = own
            self._draws.leave(own)
            yield batch


class _Ahead(Sampler[list[int]]):
    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[list[int]]:
        batches: Iterator[list[int]] = self.sampler.one_pass(ahead=True)
        return batches

    def __len__(self) -> int:
        return len(self.sampler)
