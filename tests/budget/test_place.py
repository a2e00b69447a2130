"""Where an account may lie."""

from pathlib import Path

import pytest

from plrvo import files
from plrvo.budget import place
from plrvo.validate import InvalidArgument


def test_a_disk_of_this_machine_is_taken_and_nothing_is_left_there(tmp_path):
    place.check_place(tmp_path / "a.budget")
    assert not list(tmp_path.iterdir())


def test_locks_that_are_given_to_two_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_lock", lambda descriptor: None)
    with pytest.raises(InvalidArgument, match="here two were given at once"):
        place.check_place(tmp_path / "a.budget")


def test_a_place_without_locks_is_told(tmp_path, monkeypatch):
    def none(descriptor):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(files, "_lock", none)
    with pytest.raises(OSError, match="no lock can be had here"):
        place.check_place(tmp_path / "a.budget")


def mounted(folder: Path, rows: str, monkeypatch):
    (folder / "mounts").write_text(rows)
    monkeypatch.setattr(place, "_MOUNTS", folder / "mounts")


def test_a_folder_that_machines_share_is_refused(tmp_path, monkeypatch):
    mounted(tmp_path, f"/dev/x / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n", monkeypatch)
    with pytest.raises(InvalidArgument, match="nfs4 is shared with others"):
        place.check_place(tmp_path / "a.budget")


def test_the_innermost_and_last_mount_counts(tmp_path, monkeypatch):
    inner = tmp_path / "with space"
    inner.mkdir()
    named = str(inner).replace(" ", "\\040")
    mounted(tmp_path, f"s:/x {tmp_path} nfs rw 0 0\nold {named} nfs rw 0 0\n/dev/y {named} ext4 rw 0 0\n", monkeypatch)
    place.check_place(inner / "a.budget")
    with pytest.raises(InvalidArgument, match="nfs is shared"):
        place.check_place(tmp_path / "a.budget")


def test_where_the_system_tells_nothing_locks_decide(tmp_path, monkeypatch):
    monkeypatch.setattr(place, "_MOUNTS", tmp_path / "none")
    place.check_place(tmp_path / "a.budget")


@pytest.mark.parametrize(
    ("kind", "shared"), [("fuse.sshfs", True), ("fuse.unheard-of", True), ("fuse.ntfs-3g", False), ("overlay", False)]
)
def test_folders_that_a_program_fetches_from_elsewhere_are_refused(tmp_path, monkeypatch, kind, shared):
    mounted(tmp_path, f"/dev/x / ext4 rw 0 0\nx {tmp_path} {kind} rw 0 0\n", monkeypatch)
    if shared:
        with pytest.raises(InvalidArgument, match=f"{kind} is shared with others"):
            place.check_place(tmp_path / "a.budget")
    else:
        place.check_place(tmp_path / "a.budget")


def test_the_name_of_a_machine_can_be_shown(monkeypatch):
    monkeypatch.setattr(place.platform, "node", lambda: "evil\x1b[2K" + "x" * 300)
    assert place.machine().startswith("evil\\x1b[2Kxx")
    assert len(place.machine()) == 200
    monkeypatch.setattr(place.platform, "node", lambda: "")
    assert place.machine()


def test_links_to_a_file_share_its_locks(tmp_path):
    (tmp_path / "folder").mkdir()
    real, link = tmp_path / "folder" / "a.budget", tmp_path / "b.budget"
    real.touch()
    link.symlink_to(real)
    assert place.guard_of(link) == place.guard_of(real) == real.with_name(".a.budget.lock")
    assert place.hold_of(link, 1) == place.hold_of(real, 1)
    place.check_alone(link)
    (tmp_path / "c.budget").hardlink_to(real)
    with pytest.raises(InvalidArgument, match="a file with one name"):
        place.check_alone(real)


def test_a_link_into_a_shared_folder_is_refused(tmp_path, monkeypatch):
    (tmp_path / "far").mkdir()
    (tmp_path / "b.budget").symlink_to(tmp_path / "far" / "a.budget")
    mounted(tmp_path, f"/dev/x / ext4 rw 0 0\nserver:/x {tmp_path / 'far'} nfs4 rw 0 0\n", monkeypatch)
    with pytest.raises(InvalidArgument, match="nfs4 is shared with others"):
        place.check_place(tmp_path / "b.budget")
