"""Where the files of a data set come from, for every task.

The order is fixed: the folder of `--data-dir`, the folder of the variable PLRVO_DATA, the data folder of this computer,
and last the data set's home on the web. Every file is checked before a byte of it is used, and `Found.source` says
which place it was. The variable PLRVO_OFFLINE, set to anything but 0, leaves out the web.
"""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from plrvo.files import write_bytes
from plrvo.tasks.archive import BadArchive, gunzip
from plrvo.tasks.web import FetchError, fetch
from plrvo.validate import InvalidArgument


@dataclass(frozen=True)
class DataFile:
    """One file: its size and SHA-256, and for a gzip file those of what is inside, because mirrors compress anew.

    Without a checksum any content of at most that size will do, and its reader has to check it.
    """

    name: str
    size: int
    sha256: str | None
    gzip: bool = False

    @property
    def limit(self) -> int:
        """The most bytes that are read; gzip adds a little to what it cannot compress."""
        return self.size + (self.size // 1000 + 4096 if self.gzip else 0)

    def check(self, content: bytes) -> bytes:
        """What the loader reads, or BadArchive."""
        if len(content) > self.limit:
            raise BadArchive(f"is larger than {self.limit:,} bytes")
        inside = gunzip(content, self.size) if self.gzip else content
        if self.sha256 is None:
            return inside
        found = hashlib.sha256(inside).hexdigest()
        if found != self.sha256:
            raise BadArchive(f"fails its checksum (sha256 {found[:12]}..., expected {self.sha256[:12]}...)")
        return inside


@dataclass(frozen=True)
class Layout:
    """One way a data set is stored: all of `files` in one folder, and web folders that have them (`homes`), if any."""

    name: str
    files: tuple[DataFile, ...]
    homes: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataSet:
    """A data set by the name of its folder, in one or more layouts; earlier layouts are preferred."""

    name: str
    layouts: tuple[Layout, ...]


@dataclass(frozen=True)
class Found:
    """Checked contents by file name (unpacked, for gzip files), the layout they are in, and where they came from."""

    contents: dict[str, bytes]
    layout: str
    source: str


def find(dataset: DataSet, data_dir: Path | None = None) -> Found:
    """The files of `dataset` from the first place that has them all.

    A file that fails its check ends the search: it is for the user to say whether it may be thrown away.
    """
    return _Search(dataset, data_dir).run()


def data_folder() -> Path:
    """The folder that this operating system has for an application's data."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Application Support")
    else:
        base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "plrvo"


@dataclass
class _Search:
    dataset: DataSet
    data_dir: Path | None
    looked: list[str] = field(default_factory=list)

    def run(self) -> Found:
        name = self.dataset.name
        if self.data_dir is not None:
            if not self.data_dir.is_dir():
                self.looked.append(f"--data-dir {self.data_dir} (no such folder)")
                raise self._refusal()
            # A folder that the user names may hold the data set's folder, or be it.
            found = self._in("--data-dir", self.data_dir / name, self.data_dir)
            if found:
                return found
        named = os.environ.get("PLRVO_DATA")
        if named:
            found = self._in("PLRVO_DATA", Path(named) / name, Path(named))
            if found:
                return found
        else:
            self.looked.append("PLRVO_DATA (not set)")
        found = self._in("the data folder of this computer", data_folder() / name)
        return found or self._download()

    def _in(self, label: str, *folders: Path) -> Found | None:
        """The first layout that one of `folders` holds in full."""
        for folder in folders:
            for layout in self.dataset.layouts:
                missing = [file.name for file in layout.files if not _is_file(folder / file.name)]
                if not missing:
                    contents = {file.name: self._read(label, folder / file.name, file) for file in layout.files}
                    return Found(contents, layout.name, f"{self.dataset.name} from {label}")
                if len(missing) < len(layout.files):
                    self.looked.append(f"{label} {folder} (lacks {', '.join(missing)})")
        self.looked.append(f"{label} {folders[0]} (not there)")
        return None

    def _read(self, label: str, path: Path, file: DataFile) -> bytes:
        try:
            with path.open("rb") as opened:
                return file.check(opened.read(file.limit + 1))
        except BadArchive as error:
            problem = f"which {error}: replace it, or take it away"
        except OSError as error:
            problem = f"which cannot be read ({error.strerror})"
        self.looked.append(f"{label} {path}, {problem}")
        raise self._refusal()

    def _download(self) -> Found:
        """Every file from the first home that has them; kept in this computer's data folder if that can be written."""
        if os.environ.get("PLRVO_OFFLINE", "0") not in ("", "0"):
            self.looked.append("not the web (PLRVO_OFFLINE is set)")
            raise self._refusal()
        for layout in self.dataset.layouts:
            for home in layout.homes:
                files = self._fetch_all(layout, home)
                if files is None:
                    continue
                source = f"{self.dataset.name} downloaded from {urlsplit(home).hostname}"
                try:
                    for name, (content, _) in files.items():
                        write_bytes(data_folder() / self.dataset.name / name, content)
                except OSError as error:
                    source += f", not kept ({error.strerror})"
                return Found({name: inside for name, (_, inside) in files.items()}, layout.name, source)
        raise self._refusal()

    def _fetch_all(self, layout: Layout, home: str) -> dict[str, tuple[bytes, bytes]] | None:
        """Each file as it came and as it is read; None once one is not as it should be."""
        files: dict[str, tuple[bytes, bytes]] = {}
        for file in layout.files:
            try:
                content = fetch(home + file.name, file.limit)
                files[file.name] = content, file.check(content)
            except (FetchError, BadArchive) as error:
                self.looked.append(f"{home}{file.name} ({error})")
                return None
        return files

    def _refusal(self) -> InvalidArgument:
        layouts = (", ".join(file.name for file in layout.files) for layout in self.dataset.layouts)
        return InvalidArgument(
            "data_dir",
            None if self.data_dir is None else str(self.data_dir),
            f"a folder with {self.dataset.name}/ ({' or '.join(layouts)}); looked at: {'; '.join(self.looked)}",
        )


def _is_file(path: Path) -> bool:
    """False for what may not be looked at, as well."""
    try:
        return path.is_file()
    except OSError:
        return False
