"""Files of accounts that lie, with digests that are right: refused in one line, or shown as what they say."""

import copy
import json
import sqlite3
from contextlib import closing

import pytest
from tests.budget.accounts import account, plan

from plrvo.budget import events
from plrvo.cli.main import main

ESCAPE = "\x1b[2K\rverified \u202e[bold]"
VALUES = [None, True, -1, 0, 10**400, 1e308, "", ESCAPE, "x" * 5000, "\ud800", [], {}, [[1]], {"a": ESCAPE}]
COMMANDS = (["history"], ["show"], ["history", "--json"], ["history"], ["show", "--json"])


@pytest.fixture
def made(tmp_path):
    found = account(tmp_path)
    charge = found.reserve(plan(), "first")
    charge.release(10)
    charge.settle()
    found.close()
    return found


def forge(path, documents):
    """The file of an account with these events: whoever can write it can also compute digests."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("DELETE FROM events")
        before = ""
        for number, document in enumerate(documents, 1):
            text = json.dumps(document)
            before = events._digest(before, text)
            database.execute("INSERT INTO events VALUES (?, ?, ?)", (number, text, before))


def leaves(document, at=()):
    """The places of a document that can say something else."""
    for key, value in document.items():
        yield (*at, key)
        if isinstance(value, dict):
            yield from leaves(value, (*at, key))


def changed(documents, number, at, value):
    forged = copy.deepcopy(documents)
    place = forged[number]
    for key in at[:-1]:
        place = place[key]
    if value is KeyError:
        del place[at[-1]]
    else:
        place[at[-1]] = value
    return forged


def test_every_part_of_every_event_may_say_anything(made, capsys):
    documents = [event.document for event in made.state().events]
    tried = 0
    for number, document in enumerate(documents):
        for i, at in enumerate(leaves(document)):
            for value in (KeyError, (*VALUES, *[ESCAPE] * 5)[(i + number) % (len(VALUES) + 5)]):
                forge(made.path, changed(documents, number, at, value))
                command = COMMANDS[(tried + i) % len(COMMANDS)]
                code = main(["budget", command[0], str(made.path), *command[1:]])
                out, err = capsys.readouterr()
                assert code in (0, 2), (at, value)
                assert len(err.splitlines()) == (code == 2), (at, value, err)
                assert not any(mark in out + err for mark in ("\x1b[2K", "\r", "\u202e")), (at, value)
                tried += 1
    assert tried > 60


def test_a_history_needs_every_part_that_it_prints(made, capsys):
    documents = [event.document for event in made.state().events]
    for number, name in ((0, "at"), (0, "name"), (1, "at"), (2, "steps"), (1, "entry"), (1, "machine"), (4, "at")):
        for value in (KeyError, *VALUES[::2], ESCAPE):
            forge(made.path, changed(documents, number, (name,), value))
            code = main(["budget", "history", str(made.path)])
            out, err = capsys.readouterr()
            assert code in (0, 2), (name, value)
            assert not any(mark in out + err for mark in ("\x1b", "\r", "\u202e")), (name, value)
            assert max(map(len, out.splitlines()), default=0) < 500, (name, value)
