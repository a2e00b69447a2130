"""The file of an account: whole, in order, and never written by two at once."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress

import pytest

from plrvo.budget import store
from plrvo.budget.store import File
from plrvo.files import locked
from plrvo.validate import InvalidArgument

FIRST = {"event": "created"}


@pytest.fixture
def path(tmp_path):
    File(tmp_path / "a.budget").create(FIRST)
    return tmp_path / "a.budget"


def appended(path, document):
    with File(path).changing() as (_, append):
        return append(document)


def test_events_come_back_in_order_each_with_the_digest_of_all_before(path):
    appended(path, {"event": "x"})
    last = appended(path, {"event": "y"})
    events = File(path).read()
    assert [event.document["event"] for event in events] == ["created", "x", "y"]
    assert events[-1] == last
    assert len({event.digest for event in events}) == 3


def test_what_fails_in_the_middle_leaves_nothing(path):
    def fails():
        with File(path).changing() as (_, append):
            append({"event": "x"})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert len(File(path).read()) == 1
    assert {entry.name for entry in path.parent.iterdir()} == {"a.budget"}


def test_an_account_is_never_replaced(path):
    before = path.read_bytes()
    with pytest.raises(InvalidArgument, match="never replaced"):
        File(path).create(FIRST)
    (path.parent / "link").symlink_to("nowhere")
    with pytest.raises(InvalidArgument, match="never replaced"):
        File(path.parent / "link").create(FIRST)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET document = replace(document, 'x', 'z') WHERE number = 2",
        "DELETE FROM events WHERE number = 2",
        "UPDATE events SET number = 7 WHERE number = 3",
        "UPDATE events SET digest = 'no' WHERE number = 1",
        "DELETE FROM events",
        "DROP TABLE events",
        "PRAGMA application_id = 1",
        "PRAGMA journal_mode = WAL",
    ],
)
def test_a_changed_file_is_refused_in_one_line(path, statement):
    appended(path, {"event": "x"})
    appended(path, {"event": "y"})
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(statement)
    with pytest.raises(InvalidArgument, match=r"^budget='.*a.budget': expected a") as refused:
        File(path).read()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"{}", b"SQLite format 3\0" + bytes(200), b"\xff" * 5000])
def test_a_file_that_is_no_account_is_refused(tmp_path, content):
    (tmp_path / "no.budget").write_bytes(content)
    with pytest.raises(InvalidArgument, match="expected an account, as `plrvo budget create` writes it"):
        File(tmp_path / "no.budget").read()


def test_folders_pipes_and_nothing_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "nothing", "."):
        with pytest.raises(InvalidArgument, match="expected an account"):
            File(tmp_path / name).read()
    with pytest.raises(InvalidArgument, match="a folder that exists"):
        File(tmp_path / "no" / "a.budget").create(FIRST)


def test_names_that_mean_something_to_sqlite_are_names(tmp_path):
    odd = tmp_path / "a b?mode=memory#%41;DROP TABLE.budget"
    File(odd).create(FIRST)
    appended(odd, {"event": "x"})
    assert len(File(odd).read()) == 2
    assert [path.name for path in tmp_path.iterdir()] == [odd.name]


def test_every_flipped_byte_is_refused_or_changes_nothing(path):
    whole, events = path.read_bytes(), File(path).read()
    for at in range(0, len(whole), 97):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        with suppress(InvalidArgument, OSError):
            assert File(path).read() == events


def test_whoever_writes_waits_for_the_one_before(path, monkeypatch):
    monkeypatch.setattr(store, "PATIENCE", 0.05)
    with locked(store.guard_of(path), "budget"), pytest.raises(InvalidArgument, match="no other process"):
        appended(path, {"event": "x"})
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(InvalidArgument, match="no other program holds"):
            appended(path, {"event": "x"})


def test_processes_side_by_side_lose_nothing(path):
    code = "import sys; from pathlib import Path; from plrvo.budget.store import File\n"
    code += "for i in range(10):\n with File(Path(sys.argv[1])).changing() as (_, append): append({'event': 'x'})"
    running = [subprocess.Popen([sys.executable, "-c", code, str(path)]) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    assert len(File(path).read()) == 21


def test_a_full_disk_is_told_and_leaves_the_file_as_it_was(path):
    before = File(path).read()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, path.stat().st_size))
        code = 0
        try:
            with File(path).changing() as (_, append):
                append({"event": "x" * 100_000})
        except OSError as error:
            code = 3 if "cannot be read or written" in str(error) else 4
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert File(path).read() == before


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB, where this machine lets us have one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if os.getuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root, and not in every container, can mount a small disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_is_really_full_is_told_and_takes_the_account_up_again(small_disk):
    path = small_disk / "a.budget"
    File(path).create(FIRST)
    before = path.read_bytes()
    filler = small_disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    with pytest.raises(OSError, match=r"cannot be read or written|No space left"):
        appended(path, {"event": "x" * 20_000})
    with pytest.raises(OSError, match="No space left"):
        File(small_disk / "b.budget").create(FIRST)
    assert path.read_bytes() == before
    assert {entry.name for entry in small_disk.iterdir()} == {"a.budget", "filler"}
    filler.unlink()
    appended(path, {"event": "y"})
    assert [event.document["event"] for event in File(path).read()] == ["created", "y"]
