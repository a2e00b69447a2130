"""What a run holds of an account from before its first batch on, until it is settled."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from plrvo.budget.events import Event
from plrvo.validate import InvalidArgument

if TYPE_CHECKING:
    from plrvo.budget.account import Account
    from plrvo.budget.entry import Entry


class Charge:
    """One entry of an account in the hands of its run, which no other process can settle or go on with meanwhile."""

    def __init__(
        self, account: Account, account_id: str, number: int, last: Event, hold: ExitStack, released: int = 0
    ) -> None:
        self.account, self.account_id, self.number, self.released = account, account_id, number, released
        self._last, self._hold = last, hold  # the newest event that the run knows of

    @property
    def entry(self) -> Entry:
        """As the account has it now."""
        return self.account.state().entry(self.number)

    def release(self, steps: int, mark: str | None = None) -> None:
        """Write down, before anything of it can be seen, that so many steps may have been.

        Steps that have been released are so for ever: a run that repeats them has nothing to write. `mark` is a digest
        by which a run knows its own release again.
        """
        if steps > self.released:
            self._last = self.account.release(self.number, self.released, steps, mark)
            self.released = steps

    def settle(self, steps: int | None = None) -> Entry:
        """Charge for good what was released, and let go. A run that is not counted says itself how many steps it took.

        Nothing may be released afterwards: the account refuses it.
        """
        entry = self.entry
        if entry.counted and steps not in (None, entry.released):
            raise InvalidArgument("steps", steps, f"{entry.released}, which were released")
        entry = self.account._settle(self.number, steps)
        self.let_go()
        return entry

    def let_go(self) -> None:
        """Leave the reservation as it is, for another process to go on with or to settle."""
        self._hold.close()

    def record(self) -> dict[str, Any]:
        """What checkpoints and receipts say of it: the account, the entry, and the newest event with its digest."""
        known = {"event": self._last.number, "digest": self._last.digest}
        return {"account": self.account_id, "entry": self.number, **known}
