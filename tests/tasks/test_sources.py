import gzip
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from plrvo.tasks.sources import DataFile, DataSet, Layout, data_folder, find
from plrvo.validate import InvalidArgument

CONTENT = {"images.gz": b"pixels" * 100, "labels.gz": b"0123456789"}
FILES = tuple(
    DataFile(name, len(content), hashlib.sha256(content).hexdigest(), gzip=True) for name, content in CONTENT.items()
)
TOY = DataSet("toy", (Layout("gz", FILES),))


def put(folder: Path, **changes: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in CONTENT.items():
        (folder / name).write_bytes(changes.get(name.removesuffix(".gz"), gzip.compress(content)))
    return folder


class Home:
    """A web folder on the loopback interface, which counts what it was asked for."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.asked: list[str] = []
        home = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.removeprefix("/")
                home.asked.append(name)
                content = files.get(name)
                self.send_response(404 if content is None else 200)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def serve(monkeypatch) -> Iterator:
    monkeypatch.delenv("PLRVO_OFFLINE")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    homes: list[Home] = []

    def start(**changes: bytes | None) -> Home:
        files = {name: changes.get(name.removesuffix(".gz"), gzip.compress(c)) for name, c in CONTENT.items()}
        homes.append(Home({name: content for name, content in files.items() if content is not None}))
        return homes[-1]

    yield start
    for home in homes:
        home.close()


def at(*homes: str) -> DataSet:
    return replace(TOY, layouts=(replace(TOY.layouts[0], homes=homes),))


@pytest.mark.parametrize("inner", ["toy", "."])
def test_data_dir_may_hold_the_folder_or_be_it(tmp_path, inner):
    put(tmp_path / "data" / inner)
    found = find(TOY, tmp_path / "data")
    assert found.contents == CONTENT
    assert found.source == "toy from --data-dir"


def test_the_order_is_data_dir_then_variable_then_data_folder(tmp_path, monkeypatch):
    put(data_folder() / "toy")
    assert find(TOY).source == "toy from the data folder of this computer"
    put(tmp_path / "variable" / "toy")
    monkeypatch.setenv("PLRVO_DATA", str(tmp_path / "variable"))
    assert find(TOY).source == "toy from PLRVO_DATA"
    put(tmp_path / "option" / "toy")
    assert find(TOY, tmp_path / "option").source == "toy from --data-dir"
    (tmp_path / "option" / "toy" / "labels.gz").unlink()
    assert find(TOY, tmp_path / "option").source == "toy from PLRVO_DATA"


def test_a_checksum_is_of_the_content_and_not_of_its_compression(tmp_path):
    put(tmp_path / "toy", images=gzip.compress(CONTENT["images.gz"], compresslevel=1, mtime=12345))
    assert find(TOY, tmp_path).contents == CONTENT


@pytest.mark.parametrize(
    ("images", "reason"),
    [
        (gzip.compress(b"poison" * 100), "checksum"),
        (gzip.compress(b"pixels" * 101), "more than 600 bytes"),
        (gzip.compress(CONTENT["images.gz"])[:-5], "not a whole gzip file"),
        (b"", "is empty"),
        (bytes(100_000), "larger than"),
    ],
    ids=["changed", "longer", "cut", "empty", "large"],
)
def test_a_file_that_fails_its_check_ends_the_search_and_is_named(tmp_path, images, reason):
    put(data_folder() / "toy")  # a good copy further on does not excuse the bad one
    put(tmp_path / "toy", images=images)
    with pytest.raises(InvalidArgument) as caught:
        find(TOY, tmp_path)
    assert caught.value.argument == "data_dir"
    assert str(tmp_path / "toy" / "images.gz") in str(caught.value)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_found_names_every_place(tmp_path, monkeypatch):
    (tmp_path / "option").mkdir()
    monkeypatch.setenv("PLRVO_DATA", str(tmp_path / "variable"))
    with pytest.raises(InvalidArgument) as caught:
        find(TOY, tmp_path / "option")
    message = str(caught.value)
    for place in (tmp_path / "option", tmp_path / "variable", data_folder(), "PLRVO_OFFLINE", "images.gz, labels.gz"):
        assert str(place) in message


def test_an_incomplete_folder_is_told_from_an_empty_one(tmp_path):
    put(tmp_path / "toy")
    (tmp_path / "toy" / "labels.gz").unlink()
    with pytest.raises(InvalidArgument, match=r"lacks labels\.gz.*PLRVO_DATA \(not set\)"):
        find(TOY, tmp_path)


def test_a_data_dir_that_does_not_exist_is_refused_before_any_other_place(tmp_path):
    put(data_folder() / "toy")
    with pytest.raises(InvalidArgument, match="no such folder"):
        find(TOY, tmp_path / "typo")


def test_a_download_is_checked_kept_and_not_repeated(serve, capsys):
    home = serve()
    found = find(at(home.url))
    assert found.contents == CONTENT
    assert found.source == "toy downloaded from 127.0.0.1"
    assert home.asked == ["images.gz", "labels.gz"]
    assert capsys.readouterr().out == ""
    assert find(at(home.url)).source == "toy from the data folder of this computer"
    assert len(home.asked) == 2


def test_a_bad_mirror_gives_way_to_the_next(serve):
    bad, good = serve(labels=gzip.compress(b"9876543210")), serve()
    assert find(at(bad.url, good.url)).contents == CONTENT


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (None, "HTTP 404"),
        (gzip.compress(b"9876543210"), "checksum"),
        (bytes(1_000_000), "larger than"),
        (gzip.compress(b"0123456789")[:-1], "not a whole gzip file"),
    ],
    ids=["absent", "changed", "large", "cut"],
)
def test_a_bad_download_is_named_and_leaves_nothing_behind(serve, labels, reason):
    home = serve(labels=labels)
    with pytest.raises(InvalidArgument) as caught:
        find(at(home.url))
    assert f"{home.url}labels.gz" in str(caught.value)
    assert reason in str(caught.value)
    assert not list(data_folder().rglob("*"))


def test_a_home_that_does_not_answer_is_named(serve):
    home = serve()
    home.close()
    with pytest.raises(InvalidArgument, match=r"images\.gz \(.*refused"):
        find(at(home.url))


def test_a_download_that_cannot_be_kept_is_used_all_the_same(serve):
    data_folder().parent.mkdir(parents=True)
    data_folder().write_text("a file where the folder should be")
    found = find(at(serve().url))
    assert found.contents == CONTENT
    assert "not kept" in found.source
