"""A run cut into passes over the loader: every pass is an epoch of batches of its own, until the steps are used up."""

from __future__ import annotations

from collections.abc import Iterator

from plrvo.training.draws import BudgetExhausted, Draws
from plrvo.validate import InvalidArgument

AFTER_BUDGET = ("error", "stop")


class Passes:
    """Goes in front of a sampler that draws `new()` batches while `remaining` is above zero, or None for no limit.

    A pass has `epoch` batches (None: all that remain). What was drawn and has no step yet comes first, and counts. The
    last pass is shorter where the steps end in its middle; the next one is an error, or empty if `after_budget` is
    "stop": an empty pass that nobody asked for leaves losses that are no numbers, and schedules that do not move.
    """

    remaining: int | None
    draws: Draws
    epoch: int | None = None
    after_budget: str = "error"

    def new(self) -> Iterator[list[int]]:
        """Batches, drawn one by one."""
        raise NotImplementedError

    def in_passes(self, epoch: int | None, after_budget: str) -> None:
        """Say how long a pass is, and what comes after the last."""
        if after_budget not in AFTER_BUDGET:
            raise InvalidArgument("after_budget", after_budget, "one of " + ", ".join(AFTER_BUDGET))
        self.epoch, self.after_budget = epoch, after_budget

    def __len__(self) -> int:
        if self.epoch is not None:
            return self.epoch
        if self.remaining is None:
            raise TypeError("a sampler of any number of steps has no length, but an epoch")
        return self.remaining + self.draws.waiting

    def __iter__(self) -> Iterator[list[int]]:
        return self.one_pass()

    def one_pass(self, *, ahead: bool = False) -> Iterator[list[int]]:
        """The next pass; `ahead` of when batches leave the loader, or not."""
        if self.remaining == 0 and not self.draws.waiting:
            if self.after_budget == "stop":
                return iter(())
            raise BudgetExhausted(
                "a pass over the loader after the last step: expected no more, since all steps that the plan has were "
                "taken; make a plan with more steps (or more epochs), or ask for "
                'make_private(after_budget="stop"), which ends such a pass at once'
            )
        return self.draws.through(self.new(), most=self.epoch, ahead=ahead)

    @property
    def into_epoch(self) -> int:
        """How many batches the pass under way has given, less than an epoch: where a resumed run goes on."""
        return self.draws.passed % self.epoch if self.epoch else 0

    def go_on_at(self, batches: int) -> None:
        """Let the next pass be the rest of an epoch, of which so many batches had been given."""
        self.draws.skipped = batches
