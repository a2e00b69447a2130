"""Shared fixtures, and the rule for tests that need datasets."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples on every run, and no verdict that depends on how busy the machine is.
settings.register_profile("plrvo", deadline=None, derandomize=True)
settings.load_profile("plrvo")


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


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of datasets; use it only in a test marked `data`."""
    folder = _data_dir()
    if folder is None:
        pytest.skip("no datasets: set PLRVO_DATA to their folder")
    return folder
