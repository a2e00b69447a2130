"""Shared fixtures, and the rule for tests that need datasets."""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from checks.remembered import bounds_remembered
from hypothesis import settings
from tests.browser import QUIET, find_browser

# The same examples on every run, and no verdict that depends on how busy the machine is.
settings.register_profile("plrvo", deadline=None, derandomize=True)
settings.load_profile("plrvo")


ACCOUNTING = Path(__file__).parent / "accounting"


def _data_dir() -> Path | None:
    """The folder of datasets: PLRVO_DATA if set, else shared/data beside the checkout, else None."""
    named = os.environ.get("PLRVO_DATA")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    return folder if folder.is_dir() else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if _data_dir() is not None:
        return
    skip = pytest.mark.skip(reason="no datasets: set PLRVO_DATA to their folder")
    for item in items:
        if item.get_closest_marker("data"):
            item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Tests of accounting, and those that are marked so, compute what they look at."""
    computed = item.path.is_relative_to(ACCOUNTING) or item.get_closest_marker("computed")
    with nullcontext() if computed else bounds_remembered():
        return (yield)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of datasets; use it only in a test marked `data`."""
    folder = _data_dir()
    if folder is None:
        pytest.skip("no datasets: set PLRVO_DATA to their folder")
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real browser; of one module, because an event loop runs as long as it does."""
    from playwright.sync_api import sync_playwright

    path = find_browser()
    if path is None and os.environ.get("CI", "").lower() != "true":  # where it must not be left out
        pytest.skip("no browser: install chromium, or name one in PLRVO_BROWSER")
    assert path is not None, "no browser: CI installs one"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=QUIET)
        yield launched
        launched.close()
