import pytest


@pytest.fixture(autouse=True)
def _nothing_but_the_test_folder(monkeypatch, tmp_path):
    """No test reads or writes this computer's data folder, and none reaches the web."""
    home = tmp_path / "home"
    for name in ("HOME", "USERPROFILE", "XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.delenv("PLRVO_DATA", raising=False)
    monkeypatch.setenv("PLRVO_OFFLINE", "1")
