"""An account in a database: a real PostgreSQL server, and what holds of any other."""

import os
import secrets
import signal
import time
from contextlib import suppress

import pytest
from checks import postgresql
from tests.budget.accounts import DELTA, plan

from plrvo.budget import Account
from plrvo.budget.address import Url, address
from plrvo.budget.compared import account_differences
from plrvo.validate import InvalidArgument

sqlalchemy = pytest.importorskip("sqlalchemy", reason="no SQLAlchemy is installed (pip install plrvo[database])")
database = pytest.importorskip("plrvo.budget.database")


@pytest.fixture
def url(postgresql_server):
    """A new name in the server."""
    return postgresql.url(postgresql_server, f"t-{secrets.token_hex(6)}")


@pytest.fixture
def other_kind(tmp_path):
    """A database that is not PostgreSQL: SQLite through SQLAlchemy, which users are led away from."""
    return Url(sqlalchemy.make_url(f"sqlite:///{tmp_path / 'x.db'}"), "census")


def made_in(place, epsilon=5.0):
    return Account.create(place, name="census", epsilon=epsilon, delta=DELTA)


def execute(url, statement, **values):
    """What an administrator could do."""
    full = url.full if isinstance(url, Url) else address(url).full
    with sqlalchemy.create_engine(full, poolclass=sqlalchemy.NullPool).begin() as connection:
        return list(result) if (result := connection.execute(sqlalchemy.text(statement), values)).returns_rows else []


def test_an_account_from_its_beginning_to_its_end(url):
    account = made_in(url)
    charge = account.reserve(plan(), "first")
    whole = account.state().standing()
    charge.release(40)
    assert charge.settle().charged == 40
    settled = Account(url).state()
    assert settled.standing().spent < whole.spent
    account.close()
    with pytest.raises(InvalidArgument, match="takes no more plans"):
        account.reserve(plan(), "second")
    kinds = [event.document["event"] for event in account.state().events]
    assert kinds == ["created", "reserved", "released", "settled", "closed"]


def test_the_same_events_in_a_file_and_in_a_database_come_to_the_same(url, tmp_path):
    standings = []
    for place in (url, tmp_path / "a.budget"):
        account = made_in(place)
        account.reserve(plan(), "first").settle(0)
        second = account.reserve(plan(), "second")
        second.release(20)
        second.let_go()
        standings.append(account.state().standing())
    assert standings[0] == standings[1]


def test_accounts_of_one_database_know_nothing_of_each_other(url):
    first, second = made_in(url), made_in(url + "-b")
    first.reserve(plan(), "first").let_go()
    assert not second.state().entries
    with pytest.raises(InvalidArgument, match="never replaced"):
        made_in(url)
    with pytest.raises(InvalidArgument, match="this database has none called"):
        Account(url + "-c")


def test_other_kinds_of_databases_keep_accounts_too_and_prove_no_death(other_kind):
    account = made_in(other_kind)
    charge = account.reserve(plan(), "first")
    charge.release(25)
    record = charge.record()
    with pytest.raises(InvalidArgument, match=r"`whole`: sqlite has no lock that ends with its holder"):
        account.settle(1)
    copy = account.take_up(record, 25)
    copy.release(50)
    with pytest.raises(InvalidArgument, match="alone on its entry"):
        charge.release(50)
    assert copy.settle().charged == 50
    account.reserve(plan(), "second").let_go()
    assert account.settle(2, whole=True).charged == 100


def test_a_database_without_accounts_is_told(other_kind):
    with pytest.raises(InvalidArgument, match="this database has none"):
        Account(other_kind)


def at_once(*tasks):
    """The exit codes of processes that begin together: what a task returns."""
    ready, go = os.pipe()
    running = []
    for task in tasks:
        pid = os.fork()
        if pid == 0:
            code = 99
            try:
                os.close(go)
                os.read(ready, 1)  # until nobody can write any more
                code = task()
            finally:
                os._exit(code)
        running.append(pid)
    os.close(ready)
    os.close(go)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in running]


def test_processes_at_once_never_spend_the_same_budget(url):
    """Four processes want three plans each, of which two or three fit."""
    account = made_in(url, epsilon=4.0)
    account.reserve(plan(sigma=5.0), "to know what it costs").settle(0)

    def reserve():
        taken = 0
        for number in range(3):
            with suppress(InvalidArgument):
                account.reserve(plan(sigma=5.0), f"plan {number}").let_go()
                taken += 1
        return taken

    taken = at_once(*[reserve] * 4)
    state = account.state()
    assert sum(taken) == len(state.entries) - 1 > 1
    assert state.standing().spent <= 4.0
    with pytest.raises(InvalidArgument, match="room for"):
        account.reserve(plan(sigma=5.0), "one more")


def test_whoever_writes_waits_for_the_one_before_and_sees_what_it_wrote(url):
    account = made_in(url)
    with account.home.changing() as (events, append):
        pid = os.fork()
        if pid == 0:
            with account.home.changing() as (seen, add):
                add({"event": "x", "seen": len(seen)})
            os._exit(0)
        time.sleep(0.5)
        append({"event": "x", "seen": len(events)})
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert [event.document.get("seen") for event in account.home.read()] == [None, 1, 2]


def test_two_that_decided_by_the_same_events_do_not_both_write(url, monkeypatch):
    """Where a database gave no lock at all, the primary key would still refuse the second."""
    account = made_in(url)
    home = account.home
    nothing = sqlalchemy.update(database._ACCOUNTS).where(sqlalchemy.false())
    monkeypatch.setattr(database, "update", lambda _: nothing)

    def one_after_the_other():
        with home.changing() as (_, append):
            with home.changing() as (_, other):
                other({"event": "x"})
            append({"event": "y"})

    with pytest.raises(InvalidArgument, match="nothing was written: try again"):
        one_after_the_other()
    assert [event.document["event"] for event in home.read()] == ["created", "x"]


def test_one_that_holds_the_account_for_ever_is_told(url, monkeypatch):
    monkeypatch.setattr(database, "PATIENCE", 0.2)
    account = made_in(url)
    with account.home.changing(), pytest.raises(InvalidArgument, match="no other program holds"):
        account.close()


def test_what_fails_in_the_middle_leaves_nothing(url):
    account = made_in(url)

    def fails():
        with account.home.changing() as (_, append):
            append({"event": "x"})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert len(account.home.read()) == 1


def test_a_killed_run_can_be_settled_from_anywhere_and_a_living_one_cannot(url, monkeypatch):
    account = made_in(url)
    monkeypatch.setattr(database, "_DYING", 0.2)
    living = account.reserve(plan(), "living")
    with pytest.raises(InvalidArgument, match="another process is at work on it"):
        account.settle(1)
    pid = os.fork()
    if pid == 0:
        monkeypatch.setattr("plrvo.budget.account.machine", lambda: "another")
        account.reserve(plan(), "killed").release(30)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    monkeypatch.setattr(database, "_DYING", 10.0)
    entry = account.state().entry(2)
    assert (entry.machine, entry.released, entry.charged) == ("another", 30, 100)
    assert account.settle(2).charged == 30
    living.release(5)
    assert living.settle().charged == 5


def test_a_run_whose_connection_broke_can_be_settled_and_shows_nothing_more(url):
    account = made_in(url)
    charge = account.reserve(plan(), "first")
    charge.release(10)
    execute(url, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
    assert account.settle(1).charged == 10
    with pytest.raises(InvalidArgument, match="not settled"):
        charge.release(20)
    charge.let_go()  # of a lock that is gone


def test_kills_at_any_instant_leave_the_account_whole(url):
    account = made_in(url, epsilon=50.0)
    account.reserve(plan(), "to know what it costs").settle(0)
    for number in range(10):
        before = len(account.home.read())
        pid = os.fork()
        if pid == 0:
            charge = account.reserve(plan(), f"run {number}")
            for step in range(1, 100):
                charge.release(step)
            os._exit(0)
        while len(account.home.read()) < before + number % 5:
            time.sleep(0.001)
        time.sleep(0.003 * number)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    state = account.state()
    assert len(state.entries) > 8
    for entry in state.entries:
        assert account.settle(entry.number).charged == entry.released
    with pytest.raises(InvalidArgument, match="not settled"):
        account.release(2, state.entry(2).released, 100)


def test_a_restored_database_is_told_by_what_its_runs_know(url):
    account = made_in(url)
    charge = account.reserve(plan(), "first")
    charge.release(25)
    record = charge.record()
    charge.let_go()
    receipt = {"plan": plan().to_dict(), "steps": 25, "budget": record}
    assert account_differences(receipt, account) == []
    execute(url, "DELETE FROM plrvo_events WHERE account = :name AND number = 3", name=address(url).account)
    assert "an older copy was put back" in account_differences(receipt, account)[0]
    with pytest.raises(InvalidArgument, match="older copy"):
        account.take_up(record, 25)
    other = account.take_up({**record, "event": 2, "digest": account.state().events[1].digest}, 0)
    other.release(10)
    other.let_go()
    assert "gone another way" in account_differences(receipt, account)[0]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE plrvo_events SET document = replace(document, 'a', 'b') WHERE account = :name AND number = 2",
        "DELETE FROM plrvo_events WHERE account = :name AND number = 2",
        "UPDATE plrvo_events SET number = 9 WHERE account = :name AND number = 3",
        "UPDATE plrvo_events SET digest = 'x' WHERE account = :name AND number = 1",
    ],
)
def test_a_changed_account_is_refused(url, statement):
    account = made_in(url)
    account.reserve(plan(), "first").settle()
    execute(url, statement, name=address(url).account)
    with pytest.raises(InvalidArgument, match=r"event . of it is damaged"):
        Account(url)


def test_a_server_that_keeps_nothing_is_refused_and_a_hasty_session_is_set_back(url, monkeypatch):
    account = made_in(url)
    told = []
    hasty = sqlalchemy.create_engine(
        address(url).full, poolclass=sqlalchemy.NullPool, connect_args={"options": "-c synchronous_commit=off"}
    )
    with monkeypatch.context() as patch:
        patch.setattr(database, "_engine", lambda _: hasty)
        with account.home._transaction() as connection:
            told.append(connection.scalar(sqlalchemy.text("SHOW synchronous_commit")))
    assert told == ["on"]
    monkeypatch.setattr(
        database, "text", lambda words: sqlalchemy.text(words.replace("current_setting('fsync')", "'off'"))
    )
    with pytest.raises(InvalidArgument, match="this one has fsync off"):
        account.state()


def test_a_role_that_may_only_add_keeps_an_account(url, postgresql_server):
    """What the page says of permissions: nobody who charges runs needs to change or delete an event."""
    made_in(url)
    if not _has_clerk(url):
        execute(url, "CREATE ROLE clerk LOGIN PASSWORD 'clerk'")
    execute(url, "GRANT SELECT, INSERT ON plrvo_events TO clerk")
    execute(url, "GRANT SELECT, UPDATE ON plrvo_accounts TO clerk")
    theirs = f"postgresql://clerk:clerk@/postgres?host={postgresql_server}#{address(url).account}"
    account = Account(theirs)
    charge = account.reserve(plan(), "first")
    charge.release(10)
    assert charge.settle().charged == 10
    with pytest.raises(sqlalchemy.exc.ProgrammingError, match="permission denied"):
        execute(theirs, "DELETE FROM plrvo_events")


def _has_clerk(url):
    return bool(execute(url, "SELECT 1 FROM pg_roles WHERE rolname = 'clerk'"))


def test_hostile_names_are_names(url):
    account = Account.create(url, name="Robert'); DROP TABLE plrvo_events;-- %s :name é漢字", epsilon=5.0, delta=DELTA)
    account.reserve(plan(), "'; DELETE FROM plrvo_events; --").let_go()
    assert Account(url).state().name.endswith("é漢字")
    assert Account(url).state().entry(1).name == "'; DELETE FROM plrvo_events; --"


def test_no_error_tells_the_password(url, postgresql_server):
    wrong = postgresql.url(postgresql_server, "census", password="geheim-7")
    cases = [wrong, postgresql.url(postgresql_server, "no-such"), url.replace("/postgres?", "/nodatabase?")]
    cases += [postgresql.url("/nowhere", "census"), url.replace("postgresql://", "postgresql+nonsense://")]
    for case in cases:
        with pytest.raises((InvalidArgument, OSError)) as refused:
            Account(case)
        said = f"{refused.value} {refused.value!r} {refused.getrepr(style='short', showlocals=False).reprcrash}"
        assert "geheim" not in said
        assert "hush" not in said
        assert "\n" not in str(refused.value)
        assert refused.value.__cause__ is None


def test_two_make_the_first_account_of_a_database_at_once(postgresql_server):
    place = postgresql.url(postgresql_server)
    name = f"db{secrets.token_hex(4)}"
    administrator = sqlalchemy.create_engine(
        address(place).full, isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool
    )
    with administrator.connect() as connection:
        connection.execute(sqlalchemy.text(f"CREATE DATABASE {name}"))

    def make(account):
        try:
            made_in(postgresql.url(postgresql_server, account, database=name))
        except InvalidArgument as error:
            return 2 if "never replaced" in str(error) else 3
        return 0

    assert sorted(at_once(*(lambda one=one: make(one) for one in ("a", "b", "b")))) == [0, 0, 2]
    for account in ("a", "b"):
        assert len(Account(postgresql.url(postgresql_server, account, database=name)).state().events) == 1
