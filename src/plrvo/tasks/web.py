"""One file from the web, with a limit on its size and progress on stderr."""

from __future__ import annotations

import http.client
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

TIMEOUT_SECONDS = 30
CHUNK = 1 << 18


class FetchError(Exception):
    """Why there is no file, in a few words."""


def fetch(url: str, limit: int) -> bytes:
    """The bytes at `url`, and at most one more than `limit` of them, so that the caller sees an excess."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    request = Request(url, headers={"User-Agent": "plrvo"})
    content = bytearray()
    try:
        with (
            urlopen(request, timeout=TIMEOUT_SECONDS) as response,
            Progress(*columns, console=Console(stderr=True), transient=True) as progress,
        ):
            length = response.headers.get("Content-Length", "")
            task = progress.add_task(f"download {url}", total=int(length) if length.isdecimal() else None)
            while chunk := response.read(min(CHUNK, limit + 1 - len(content))):
                content += chunk
                progress.update(task, completed=len(content))
    except HTTPError as error:
        error.close()
        raise FetchError(f"HTTP {error.code}") from None
    except URLError as error:
        raise FetchError(str(error.reason)) from None
    except (OSError, http.client.HTTPException) as error:
        raise FetchError(str(error) or type(error).__name__) from None
    return bytes(content)
