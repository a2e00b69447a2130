"""What binds a step to its batch: a step belongs to one batch that the sampler drew, whole, and to no other.

The account of a step is that of a batch drawn by the plan's coins. A step on anything else (batches of one's own, one
batch twice, half a batch, every example eight times) is another mechanism, whose epsilon nobody has computed. So the
sampler writes down how many examples each batch has, and the optimizer settles every step against it, before anything
is released. What is counted is rows: a row of the model's batch is clipped once, so it must be one example.
"""

from __future__ import annotations

from collections import deque


class BatchMismatch(RuntimeError):
    """A step that does not belong to one whole batch of the engine's loader; nothing of it was released.

    It does not say how large the batch was, which is private too.
    """


class Draws:
    """Sizes of the batches that were drawn and not yet used, oldest first.

    `ahead` is for loaders whose workers draw before a step asks: several batches may then be waiting.
    """

    def __init__(self, *, ahead: bool = False) -> None:
        self._ahead = ahead
        self._waiting: deque[int] = deque()
        self._rows = 0  # of the batch under way, whose parts come one after the other
        self._used = False  # whether a step has been taken

    def restart(self) -> None:
        """A new pass over the loader: batches that workers drew ahead and nobody saw are gone.

        One that was handed out takes its step, or nothing goes on: to look at a batch and leave it is to choose. A
        look before the first step is free.
        """
        if self._waiting and not self._ahead and self._used:
            self._refuse_skipped()
        self._waiting.clear()
        self._rows = 0

    def drawn(self, size: int) -> None:
        """The sampler gives a batch of so many examples."""
        self._waiting.append(size)

    def part(self, rows: int, *, last: bool) -> None:
        """So many rows take part in the step under way; with the last of them the batch must be complete."""
        if not self._waiting:
            raise BatchMismatch(
                "a step without a batch: expected one step for each batch of the loader that make_private returned, "
                "on that batch and no other"
            )
        size = self._waiting[0]
        if not self._ahead and len(self._waiting) > 1:
            self._refuse_skipped()
        rows += self._rows
        if rows > size or (last and rows != size):
            self._rows = 0
            raise BatchMismatch(
                "other rows in a step than its batch has examples: expected one row for each example, once; "
                "layers on flattened positions, repeated examples and parts of batches are not what the plan covers"
            )
        if last:
            self._waiting.popleft()
            self._used = True
        self._rows = 0 if last else rows

    def _refuse_skipped(self) -> None:
        self._waiting.clear()
        self._rows = 0
        raise BatchMismatch(
            "a batch was drawn and no step was taken for it: expected one step for every "
            "batch, empty ones included; which batches take a step must not depend on them"
        )

    def forget_part(self) -> None:
        """The parts of the batch under way were dropped (zero_grad before the step); its batch still waits."""
        self._rows = 0
