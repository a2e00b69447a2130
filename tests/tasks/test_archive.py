import gzip
import io
import tarfile

import pytest

from plrvo.tasks.archive import BadArchive, gunzip, untar


def tar(*members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size, info.type = len(content), kind
            if kind != tarfile.REGTYPE:
                info.size, info.linkname = 0, "/etc/passwd"
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def test_untar_gives_the_members_asked_for_and_no_others():
    content = tar(("data/a.bin", b"abc"), ("data/readme.txt", b"words"), ("data/b.bin", b""))
    assert untar(content, {"data/a.bin": 3, "data/b.bin": 0}) == {"data/a.bin": b"abc", "data/b.bin": b""}


@pytest.mark.parametrize("name", ["../a.bin", "data/../../a.bin", "/etc/a.bin", "C:\\a.bin", "..\\a.bin"])
def test_an_archive_that_reaches_out_of_its_folder_is_refused_even_for_another_member(name):
    with pytest.raises(BadArchive, match="outside its folder"):
        untar(tar((name, b"x"), ("data/a.bin", b"abc")), {"data/a.bin": 3})


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_a_member_that_is_no_file_is_refused(kind):
    with pytest.raises(BadArchive, match="not a file of 0 bytes"):
        untar(tar(("data/a.bin", b""), kind=kind), {"data/a.bin": 0})


def test_a_member_of_another_size_is_refused():
    with pytest.raises(BadArchive, match="not a file of 4 bytes"):
        untar(tar(("data/a.bin", b"abc")), {"data/a.bin": 4})


def test_a_missing_member_is_named():
    with pytest.raises(BadArchive, match=r"lacks data/b\.bin"):
        untar(tar(("data/a.bin", b"abc")), {"data/a.bin": 3, "data/b.bin": 3})


@pytest.mark.parametrize(
    "content", [b"", b"no archive", tar(("data/a.bin", bytes(5000)))[:2000]], ids=["empty", "text", "cut"]
)
def test_what_is_no_whole_archive_is_refused(content):
    with pytest.raises(BadArchive):
        untar(content, {"data/a.bin": 5000})


def test_too_many_members_are_refused(monkeypatch):
    monkeypatch.setattr("plrvo.tasks.archive.MAX_MEMBERS", 3)
    with pytest.raises(BadArchive, match="more than 3 members"):
        untar(tar(*((f"{i}", b"") for i in range(4))), {})


@pytest.mark.parametrize(
    "content",
    [b"", b"plain", gzip.compress(b"abcdef")[:-3], gzip.compress(b"abc") + b"tail"],
    ids=["empty", "text", "cut", "longer"],
)
def test_what_is_no_whole_gzip_file_is_refused(content):
    with pytest.raises(BadArchive):
        gunzip(content, limit=2)


def test_a_bomb_is_not_unpacked():
    bomb = gzip.compress(bytes(50_000_000))
    with pytest.raises(BadArchive, match="more than 1,000 bytes"):
        gunzip(bomb, limit=1000)
