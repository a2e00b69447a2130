"""What of a private run may have been seen: written down before it can be, and counted when the run goes on.

A run that is killed after a release has steps that its last checkpoint does not know. What happens to them when it goes
on depends on its noise:

| noise | steps between the checkpoint and the last release |
|---|---|
| repeatable: a seed, or a key in the checkpoint | are taken again, bit by bit, and compared with the journal |
| fresh: the key is never kept | are counted, and what was learned in them is lost |

Taken again with other noise they would be a second release, which no ledger counts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plrvo.accounting import Plan
from plrvo.budget import Account
from plrvo.budget.address import Address
from plrvo.noise import Keystream
from plrvo.records.folder import JOURNAL
from plrvo.records.journal import Journal, reconcile
from plrvo.training import PoissonSampler, PrivacyEngine
from plrvo.validate import InvalidArgument, counted, printable


@dataclass
class Releases:
    """The journal in the folder of a run, and the charge of its account, which hears of each release after it."""

    folder: Path
    plan: Plan
    engine: PrivacyEngine
    optimizer: Any
    digest: Callable[[], str]  # of the trained weights, as they are released

    def __post_init__(self) -> None:
        self.journal = Journal.open(self.folder / JOURNAL)

    def permits(self, step: int, wanted: bool) -> bool:
        """Whether results of this step may be seen, which has been written down when the answer is yes."""
        permitted = self.journal.permits(step, wanted, self.digest)
        if permitted and self.engine.charge is not None:  # after the journal: a crash in between has shown nothing
            self.engine.charge.release(self.journal.steps)
        return permitted

    def count(self, step: int) -> None:
        """Whatever is seen of this step, which is not taken yet, and whoever sees it."""
        self.journal.count(step)
        if self.engine.charge is not None:
            self.engine.charge.release(self.journal.steps)

    def take_up(self, known: dict[str, Any], *, may_end: bool = False) -> int:
        """Go on where the checkpoint that knows so much of the journal was written; how many steps are forfeited.

        `may_end` in a run whose weights may be those of the checkpoint if no step is left.
        """
        reconcile(self.journal, known)
        lost = self.journal.steps - self.optimizer.steps_taken
        if lost <= 0 or self.repeatable:
            return 0
        self._forfeit(lost, may_end)
        return lost

    @property
    def repeatable(self) -> bool:
        """Whether steps after a checkpoint can be taken again with the same noise; not where its key is never kept.

        All noise of a correlated plan follows from one key, which its checkpoints hold.
        """
        generator = self.optimizer.generator
        return self.plan.correlation is not None or not isinstance(generator, Keystream) or generator.fixed

    def _forfeit(self, lost: int, may_end: bool) -> None:
        """Count steps that were released after the checkpoint: others in their place would come on top of them."""
        if self.journal.steps >= self.plan.workload.steps and not may_end:
            raise InvalidArgument(
                "resume",
                str(self.folder),
                "a run with steps left: all were released, the last after the checkpoint",
            )
        warnings.warn(
            f"{counted(lost, 'step')} {'was' if lost == 1 else 'were'} released after the checkpoint, and the key of "
            "their noise is gone: they are counted, "
            "and what was learned in them is lost",
            stacklevel=2,
        )
        work, sampler = self.plan.workload, self.engine.sampler
        self.engine.accountant.step(
            noise=self.plan.noise,
            sample_rate=work.sample_rate,
            clip=work.clip,
            dimension=self.optimizer.dimension,
            steps=lost,
        )
        if isinstance(sampler, PoissonSampler):
            sampler.forfeit(lost)

    def reserve(self, account: Account | Address | str | None, name: str) -> None:
        """Charge the whole plan to the account, if there is one, before a batch is drawn."""
        if account is not None:
            self.engine.charge = _account(account).reserve(self.plan, printable(name)[:200])

    def go_on_charging(self, account: Account | Address | str | None, record: dict[str, Any] | None) -> None:
        """Take up the charge that the run holds: a second one would be for steps that are taken once."""
        self.check_account(account, record)
        if account is not None and record is not None:
            self.engine.charge = _account(account).take_up(record, self.journal.steps)

    @staticmethod
    def check_account(account: Account | Address | str | None, record: dict[str, Any] | None) -> None:
        """Refuse an account in a run that began without one, and none in a run that has one."""
        if (account is None) != (record is None):
            charged = "no value: the run began without an account" if record is None else "the account of the run"
            raise InvalidArgument("budget", None if account is None else str(account), charged)

    def parts(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        charge = self.engine.charge
        return {"journal": self.journal.summary(), **({} if charge is None else {"budget": charge.record()})}


def _account(place: Account | Address | str) -> Account:
    return place if isinstance(place, Account) else Account(place)
