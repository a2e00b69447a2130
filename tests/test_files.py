"""Files are whole or absent, whoever is killed; a lock lives as long as its holder."""

import os
import resource
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.patience import HANGS

from plrvo.files import check_writable, locked, parse_json, read_json, write_bytes
from plrvo.validate import InvalidArgument


def child(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


HOLD = """
    import pathlib, sys
    from plrvo.files import check_writable, locked
    with locked(pathlib.Path(sys.argv[1]), "out"):
        print("held", flush=True)
        sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_is_dead(tmp_path):
    path = tmp_path / "run" / ".lock"
    holder = child(HOLD, path)
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(InvalidArgument, match="no other process"), locked(path, "out"):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert path.exists()
    with locked(path, "out"):  # what is left behind blocks nobody
        pass
    assert not path.exists()


FULL = """
    import pathlib, resource, signal, sys
    from plrvo.files import write_bytes
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    try:
        write_bytes(pathlib.Path(sys.argv[1]), bytes(5000))
    except OSError as error:
        print(error.filename)
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no such limit here")
def test_a_full_disk_leaves_the_old_file_and_names_it(tmp_path):
    path = tmp_path / "file"
    write_bytes(path, b"old")
    out, err = child(FULL, path).communicate(timeout=HANGS)
    assert (out.strip(), err) == (str(path), "")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_secret_file_is_for_its_owner_alone(tmp_path):
    before = os.umask(0o022)
    try:
        write_bytes(tmp_path / "secret", b"", secret=True)
        write_bytes(tmp_path / "open", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o644


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1, "a": 1}',
        '{"a": {"b": 1, "b": 2}}',
        "1" * 5000,
        b"\xff",
    ],
    ids=["deep", "nan", "infinity", "twice", "twice inside", "long number", "not utf-8"],
)
def test_hostile_json_is_a_value_error(tmp_path, text):
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)
    path = tmp_path / "file.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidArgument, match=r"file\.json"):
        read_json(path, "plan", "a plan")


def test_a_place_where_nothing_can_be_written_is_refused_and_others_are_left_as_they_are(tmp_path):
    (tmp_path / "file").write_text("kept")
    for path in (tmp_path / "file", tmp_path / "a" / "b" / "c.json", Path("somewhere/new")):
        check_writable(path, "out")
    check_writable(tmp_path, "out", folder=True)
    with pytest.raises(InvalidArgument, match=r"^save=.*expected the name of a file; this is a folder"):
        check_writable(tmp_path, "save")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "kept"
    with pytest.raises(InvalidArgument, match=r"^save=.*a place where you can write \(Not a directory\)"):
        check_writable(tmp_path / "file" / "plan.json", "save")
    if sys.platform == "linux":
        with pytest.raises(InvalidArgument, match=r"^out='/proc/nope/deep': expected a place where you can write"):
            check_writable(Path("/proc/nope/deep"), "out")
