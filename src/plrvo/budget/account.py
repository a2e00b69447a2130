"""A privacy account of a data set: what may be spent on it, and what every run has reserved and released.

    account = Account.create("census.budget", name="census", epsilon=8, delta=1e-6)
    charge = account.reserve(plan, "first model")     # refused where the budget is short; nothing has been read
    charge.release(25)                                # before results of step 25 are shown
    charge.settle()                                   # what was not released is free again

Everything is decided in one transaction (`store`), by a filter that holds for plans which are chosen after earlier
results were seen (`filter`). A reservation lasts until it is settled: by its run, or by `Account.settle`, which asks
for a proof that the run is dead. A crash at any point leaves the reservation, or nothing.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plrvo.accounting import Plan
from plrvo.accounting.adjacency import Adjacency
from plrvo.accounting.printed import rounded_down, rounded_up
from plrvo.accounting.selection import Search
from plrvo.budget.address import Address, address
from plrvo.budget.charge import Charge
from plrvo.budget.entry import Entry, Reserved, as_fixed, attacked, moments
from plrvo.budget.events import Event, Home
from plrvo.budget.filter import Filter
from plrvo.budget.place import machine
from plrvo.budget.store import File
from plrvo.files import LockHeld
from plrvo.validate import InvalidArgument, counted, of_type, shortened

FORMAT = 1
_LONGEST_NAME = 200
_MARK = re.compile(r"[0-9a-f]{64}")
_MORE = (
    "An account charges more than a run's own certificate, as plans may be chosen one after the other: take a smaller "
    "epsilon, or more noise"
)
_WRONG_FORM = (LookupError, TypeError, AttributeError, ValueError)


@dataclass(frozen=True)
class Standing:
    """What is spent of an account, reservations included, as a bracket.

    The guarantee is the account's epsilon. `spent` says how much of it the filter has used up: that exactly so much was
    spent, at a moment which somebody chose by what they saw, is not a claim that is proved.
    """

    epsilon: float
    delta: float
    spent: float
    lower: float

    @property
    def left(self) -> tuple[float, float]:
        """At least this is left, and at most that."""
        return max(0.0, self.epsilon - self.spent), max(0.0, self.epsilon - self.lower)

    def __str__(self) -> str:
        least, most = self.left
        return f"left is at least {rounded_down(least)} and at most {rounded_up(most)} of epsilon {self.epsilon:.15g}"


@dataclass(frozen=True)
class State:
    """What the events of an account come to."""

    id: str
    name: str
    filter: Filter
    adjacency: Adjacency
    entries: tuple[Entry, ...]
    closed: bool
    events: tuple[Event, ...]

    @staticmethod
    def after(events: Sequence[Event], place: object) -> State:
        first, *later = events
        try:
            return _replayed(first.document, later, tuple(events))
        except _WRONG_FORM as error:
            known = f"an account of format {FORMAT}; this one says what no account says ({error})"
            raise InvalidArgument("budget", str(place), known) from None

    def entry(self, number: int) -> Entry:
        """The entry of this number."""
        if type(number) is not int or not 1 <= number <= len(self.entries):
            raise InvalidArgument("entry", number, f"the number of an entry: there are {len(self.entries)}")
        return self.entries[number - 1]

    def standing(self) -> Standing:
        """What is spent, and what is left."""
        budget = self.filter
        spent = budget.spent(moments(self.entries, budget.orders))
        lower = attacked(self.entries, budget.delta)
        if lower > spent:  # a bug, if it ever happens: better no number than a wrong one
            raise ArithmeticError(f"lower bound {lower} exceeds the filter's {spent}; please report the plans")
        return Standing(budget.epsilon, budget.delta, spent, lower)

    def as_fixed(self) -> float | None:
        """What the ledger would certify, had all plans been fixed beforehand; None where it has correlated noise."""
        return as_fixed(self.entries, self.filter.delta)


class Account:
    """An account in a file or a database. Every question reads it again, so that no answer is old.

    `str` of it says where it is, without the password of a URL.
    """

    def __init__(self, place: Address | str) -> None:
        self.address = address(place)
        self.home = _home(self.address)
        self.state()  # refused here, if it is none

    def __str__(self) -> str:
        return str(self.home)

    @property
    def path(self) -> Path:
        """The file that it is in."""
        if not isinstance(self.home, File):
            raise InvalidArgument("budget", str(self), "an account in a file")
        return self.home.path

    @staticmethod
    def create(
        place: Address | str, *, name: str, epsilon: float, delta: float, adjacency: Adjacency | str = "add-or-remove"
    ) -> Account:
        """A new account, in a new file or in a database.

        `zero-out` is for plans with correlated noise, and takes all others as well.
        """
        _check_text("name", name)
        kind = adjacency if isinstance(adjacency, Adjacency) else _adjacency(adjacency)
        first = {
            **{"event": "created", "format": FORMAT, "id": secrets.token_hex(16), "name": name},
            **{"adjacency": kind.name, **Filter.of(epsilon, delta).to_dict()},
        }
        where = address(place)
        _home(where).create(first)
        return Account(where)

    def state(self) -> State:
        """As it is now."""
        return State.after(self.home.read(), self)

    def check_takes(self, plan: Plan | None) -> None:
        """Refuse what `reserve` would, as far as the plan is known before anything is read for it."""
        state = self.state()
        self._check_open(state)
        if plan is not None:
            self._check_takes(state, Reserved.of(plan))

    def reserve(self, plan: Plan, name: str, *, counted: bool = True, search: Search | None = None) -> Charge:
        """Charge all of a plan, before anything is drawn for it; what it does not release comes back with `settle`.

        `counted` says that the run calls `release` before it shows anything. The charge is held until it is settled or
        let go, or the process ends. With a `search` the plan is that of one trial, and the search is charged, whole.
        """
        of_type(Plan, plan=plan)
        _check_text("name", name)
        if not math.isfinite(plan.bracket.certified):
            raise InvalidArgument("plan", plan.noise.kind, "a noise for which an epsilon can be certified: more of it")
        wanted = Reserved.of(plan, search)
        wanted.moments(plan.workload.steps, self.state().filter.orders)  # what takes long, before others have to wait
        document = {"event": "reserved", "name": name, "plan": plan.to_dict(), "counted": counted, "machine": machine()}
        document |= {} if search is None else {"search": search.to_dict()}
        hold = ExitStack()
        try:
            with self.home.changing() as (events, append):
                before = State.after(events, self)
                self._check_takes(before, wanted)
                number = len(before.entries) + 1
                hold.enter_context(self.home.hold(before.id, number))  # no instant in which it looks dead
                made = append({**document, "entry": number})
        except BaseException:
            hold.close()
            raise
        return Charge(self, before.id, number, made, hold)

    def take_up(self, record: Mapping[str, Any], journalled: int) -> Charge:
        """The charge of a run that goes on, by what `Charge.record` said and the last step in its journal."""
        number = record["entry"]
        hold = self._hold(number)
        try:
            with self.home.changing() as (events, append):
                state = State.after(events, self)
                entry = state.entry(number)
                differences = differing(state, record)
                if differences:
                    raise InvalidArgument("budget", str(self), f"the account of this run; {differences[0]}")
                if entry.settled is not None:
                    raise InvalidArgument("resume", f"entry {number}", "a run that is not settled: this one has ended")
                if entry.released > journalled:
                    newer = f"the run with its {entry.released} released steps; this is an older copy of it"
                    raise InvalidArgument("resume", f"a journal of {counted(journalled, 'step')}", newer)
                if journalled > entry.released:  # a crash between the two: nothing had been shown yet
                    append(_released(entry, journalled))
                return Charge(self, state.id, number, events[-1], hold, journalled)
        except BaseException:
            hold.close()
            raise

    def release(self, number: int, before: int, steps: int, mark: str | None = None) -> Event:
        """Write down that results of so many steps of an entry may be seen from now on, after those `before`.

        Refused where the account knows of others: then a copy of the run has gone on with the same entry. `mark` is a
        digest of what is released, for who has to tell it from what a copy would release.
        """
        if mark is not None and not _MARK.fullmatch(mark):
            raise InvalidArgument("mark", mark, "a SHA-256 digest in hexadecimal")
        with self.home.changing() as (events, append):
            entry = State.after(events, self).entry(number)
            if entry.released != before or steps < before:
                were = f"{counted(entry.released, 'step')} {'was' if entry.released == 1 else 'were'} released"
                known = f"{were}, and this one knows of {before}"
                raise InvalidArgument("budget", f"entry {number}", f"a run alone on its entry: {known}")
            return append(_released(entry, steps) | ({} if mark is None else {"mark": mark}))

    def settle(self, number: int, *, whole: bool = False) -> Entry:
        """Give back what a dead run has not released. `whole` charges all of its plan, and asks for no proof."""
        entry = self.state().entry(number)
        if whole:
            return self._settle(number, entry.planned)
        self.home.check_proof(number, entry.machine)
        with self._hold(number):
            return self._settle(number, None)

    def close(self) -> None:
        """Take no more plans. Runs that have reserved may go on, and settle."""
        with self.home.changing() as (events, append):
            if not State.after(events, self).closed:
                append({"event": "closed"})

    def _settle(self, number: int, steps: int | None) -> Entry:
        with self.home.changing() as (events, append):
            entry = State.after(events, self).entry(number)
            steps = entry.seen if steps is None else steps
            if entry.settled is not None and entry.settled != steps:
                raise InvalidArgument(
                    "entry", number, f"one that is not settled: it is charged for {counted(entry.settled, 'step')}"
                )
            if entry.settled is None:
                append({"event": "settled", "entry": number, "steps": steps, **_when(entry)})
            return State.after(events, self).entry(number)

    def _hold(self, number: int) -> ExitStack:
        hold, state = ExitStack(), self.state()
        try:
            hold.enter_context(self.home.hold(state.id, state.entry(number).number))
        except LockHeld:
            raise InvalidArgument(
                "entry", number, "one whose run has ended: another process is at work on it"
            ) from None
        return hold

    def _check_open(self, state: State) -> None:
        if state.closed:
            raise InvalidArgument("budget", str(self), "an account that is open; this one takes no more plans")

    def _check_takes(self, state: State, wanted: Reserved) -> None:
        budget = state.filter
        self._check_open(state)
        if wanted.adjacency is Adjacency.zero_out and state.adjacency is not Adjacency.zero_out:
            kind = "an account of adjacency zero-out for correlated noise, which proves nothing about added examples"
            raise InvalidArgument("budget", str(self), kind)
        whole = wanted.moments(wanted.work.steps, budget.orders)
        total = moments(state.entries, budget.orders) + whole
        if not budget.admits(total):
            steps = f"{counted(wanted.work.steps, 'step')} of {wanted.noise.before_rounding.kind} noise"
            what = steps if wanted.search is None else f"a search with trials of {steps}"
            room = f"room for {what}, with which epsilon "
            room += f"{rounded_up(budget.spent(total))} would be spent; {state.standing()}. {_MORE}"
            raise InvalidArgument("budget", str(self), room)


def differing(state: State, record: Mapping[str, Any]) -> list[str]:
    """Where an account is not the one that a run's record tells of: another one, an older copy, or a restored one."""
    if record["account"] != state.id:
        theirs = f"the account {shortened(record['account'])} (entry {shortened(record['entry'])})"
        return [f"the run belongs to {theirs}; this is the account {state.id!r}, called {shortened(state.name)}"]
    event = record["event"]
    if len(state.events) < event:
        return [
            f"the account has {counted(len(state.events), 'event')}; the run knows of {event}: "
            "an older copy was put back"
        ]
    if state.events[event - 1].digest != record["digest"]:
        return [f"event {event} of the account is another one than the run knows: a copy has gone another way"]
    if record["entry"] > len(state.entries):
        return [f"the account has no entry {record['entry']}"]
    return []


def _replayed(first: Mapping[str, Any], later: Sequence[Event], events: tuple[Event, ...]) -> State:
    if first["event"] != "created" or type(first["format"]) is not int or first["format"] != FORMAT:
        raise ValueError("its first event makes no account")
    entries: list[Entry] = []
    closed = False
    for event in events:
        _check_words(event)
    for event in later:
        said = event.document
        if said["event"] == "reserved":
            if said["entry"] != len(entries) + 1 or closed:
                raise ValueError(f"event {event.number} reserves out of turn")
            entries.append(_entry(event))
        elif said["event"] == "closed":
            closed = True
        else:
            entries[said["entry"] - 1] = _changed(entries[said["entry"] - 1], said)
    adjacency = Adjacency[first["adjacency"]]
    return State(first["id"], first["name"], Filter.from_dict(first), adjacency, tuple(entries), closed, events)


def _entry(event: Event) -> Entry:
    said = event.document
    return Entry(
        number=said["entry"],
        name=said["name"],
        plan=said["plan"],
        counted=said["counted"],
        machine=said["machine"],
        at=said["at"],
        digest=event.digest,
        reserved=Reserved.read(said["plan"], said.get("search")),
    )


def _changed(entry: Entry, said: Mapping[str, Any]) -> Entry:
    steps = said["steps"]
    if type(steps) is not int or not 0 <= steps <= entry.planned or entry.settled is not None:
        raise ValueError(f"entry {entry.number} has no such steps")
    if said["event"] == "released":
        mark = said.get("mark")
        if mark is not None and not _MARK.fullmatch(mark):
            raise ValueError(f"entry {entry.number} has a mark that is no digest")
        return replace(entry, released=max(steps, entry.released), mark=mark)
    if said["event"] != "settled" or steps < (entry.released if entry.counted else 0):
        raise ValueError(f"entry {entry.number} cannot be {said['event']}")
    return replace(entry, settled=steps)


def _released(entry: Entry, steps: int) -> dict[str, Any]:
    if entry.settled is not None:
        raise InvalidArgument("budget", f"entry {entry.number}", "a run that is not settled: its account is closed")
    if steps > entry.planned:
        raise InvalidArgument("steps", steps, f"at most the {entry.planned} that are reserved")
    return {"event": "released", "entry": entry.number, "steps": steps, **_when(entry)}


def _when(entry: Entry) -> dict[str, str]:
    """Of a search, that it was reserved: how long it took would tell how many trials there were, which is secret."""
    return {} if entry.reserved.search is None else {"at": entry.at}


def _home(where: Address) -> Home:
    if isinstance(where, Path):
        return File(where)
    from plrvo.budget.database import Database  # of an extra

    return Database(where)


def _check_words(event: Event) -> None:
    """Whatever of an event is shown to somebody can be: a file may come from anywhere."""
    said = event.document
    wanted = {"created": ("at", "name", "id"), "reserved": ("at", "name", "machine")}.get(said["event"], ("at",))
    if not all(_can_be_shown(said[name]) for name in wanted):
        raise ValueError(f"event {event.number} has words that nobody wrote")


def _can_be_shown(text: Any) -> bool:
    return isinstance(text, str) and 0 < len(text) <= _LONGEST_NAME and bool(text.strip()) and text.isprintable()


def _check_text(argument: str, text: Any) -> None:
    """A name that a line and a terminal can show."""
    if not _can_be_shown(text):
        raise InvalidArgument(argument, text, f"a text of 1 to {_LONGEST_NAME} printable characters")


def _adjacency(name: str) -> Adjacency:
    known = {kind.name.replace("_", "-"): kind for kind in Adjacency}
    if name not in known:
        raise InvalidArgument("adjacency", name, "one of " + ", ".join(known))
    return known[name]
