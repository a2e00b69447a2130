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

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from torch.utils.data import DataLoader, Sampler


class BatchMismatch(RuntimeError):
    """A step that does not belong to one whole batch of the engine's loader; nothing of it was released.

    It does not say how large the batch was, which is private too.
    """


class BudgetExhausted(RuntimeError):
    """The plan's steps have been taken; one more would exceed its budget."""


class Draws:
    """The batches that were drawn and have no step yet, oldest first."""

    def __init__(self) -> None:
        self._waiting: deque[Sequence[int]] = deque()
        self._begun = 0  # of these, how many the loader has taken in this pass
        self._out = 0  # of these, how many have left it: the step under way belongs to the only one
        self._rows = 0  # of its parts so far
        self.passed = 0  # how many batches the pass under way has given
        self.skipped = 0  # of the next pass, how many were given before the run was resumed

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_at_a_batch(self) -> bool:
        """Whether the next part is the first of its batch."""
        return self._rows == 0

    def through(self, new: Iterator[list[int]], *, most: int | None = None, ahead: bool = False) -> Iterator[list[int]]:
        """One pass over the loader: first what waits, then what is new, `most` batches in all.

        `ahead` of when batches leave it, or not.
        """
        self._begun = self._out = self._rows = 0
        self.passed, self.skipped = self.skipped, 0
        while most is None or self.passed < most:
            if self._begun == len(self._waiting):
                drawn = next(new, None)
                if drawn is None:
                    return
                self._waiting.append(drawn)
            batch = self._waiting[self._begun]
            self._begun += 1
            self.passed += 1
            if not ahead:
                self.leave()
            yield list(batch)

    def leave(self) -> None:
        """A batch leaves the loader."""
        self._out += 1

    def drawn(self, batch: Sequence[int]) -> None:
        """A batch that comes without a loader."""
        self._waiting.append(batch)
        self._begun += 1
        self.leave()

    def part(self, rows: int, *, last: bool) -> None:
        """So many rows take part in the step under way; with the last of them the batch must be complete."""
        if not self._out:
            raise BatchMismatch(
                "a step without a batch: expected one step for each batch of the loader that make_private returned, "
                "on that batch and no other"
            )
        size = len(self._waiting[0])
        if self._out > 1:
            raise BatchMismatch(
                "a batch was drawn and no step was taken for it: expected one step for every "
                "batch, empty ones included; which batches take a step must not depend on them (a new pass over the "
                "loader begins with that batch)"
            )
        rows += self._rows
        if rows > size or (last and rows != size):
            self._rows = 0
            raise BatchMismatch(
                "other rows in a step than its batch has examples: expected one row for each example, once; "
                "layers on flattened positions, repeated examples and parts of batches are not what the plan covers"
            )
        if last:
            self._waiting.popleft()
            self._begun -= 1
            self._out -= 1
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

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        for batch in self._ahead:
            self._draws.leave()
            yield batch


class _Ahead(Sampler[list[int]]):
    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[list[int]]:
        batches: Iterator[list[int]] = self.sampler.one_pass(ahead=True)
        return batches

    def __len__(self) -> int:
        return len(self.sampler)
