"""`plrvo budget` and `plrvo train --budget` with an account in a PostgreSQL server, whose password nobody sees."""

import json
import secrets

import pytest
from checks import postgresql
from tests.budget.conftest import postgresql_server
from tests.end_to_end.test_train_budget import RUN, crash

from plrvo.budget import Account
from plrvo.cli.main import main

__all__ = ["postgresql_server"]
SECRETS = ("hush", postgresql.PASSWORD)


@pytest.fixture(autouse=True)
def _without_plots(monkeypatch):
    monkeypatch.setattr("plrvo.report.curves.plot_curves", lambda *_: None)


@pytest.fixture
def url(postgresql_server):
    return postgresql.url(postgresql_server, f"t-{secrets.token_hex(6)}")


def test_the_third_run_is_refused_and_nothing_anywhere_tells_the_password(url, tmp_path, capsys):
    said = []

    def run(*arguments):
        code = main(list(arguments))
        found = capsys.readouterr()
        said.append(found.out + found.err)
        return code

    assert run("budget", "create", url, "--epsilon", "2", "--name", "digits") == 0
    trained = [run(*RUN, "--budget", url, "--out", str(tmp_path / f"run-{i}")) for i in range(3)]
    assert trained == [0, 0, 2]
    assert "expected room for 20 steps of gaussian noise" in said[-1]
    assert run("budget", "show", url) == 0
    assert "left is at least" in said[-1]
    for i in range(2):
        assert run("verify", str(tmp_path / f"run-{i}"), "--budget", url) == 0
    for command in (["show", url, "--json"], ["history", url], ["history", url, "--json"], ["close", url]):
        assert run("budget", *command) == 0
    assert run("report", str(tmp_path / "run-0"), "--budget", url, "--out", str(tmp_path / "page.html")) == 0
    assert run("budget", "show", url + "-no") == 2
    assert run("train", "digits", "--noise", "none", "--budget", url, "--out", str(tmp_path / "none")) == 2
    assert run(*RUN, "--budget", url, "--out", str(tmp_path / "closed")) == 2
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 8
    for words in (*(text.encode() for text in said), *files):
        assert not any(secret.encode() in words for secret in SECRETS)


def test_a_crashed_run_goes_on_with_the_password_of_the_environment(url, tmp_path, monkeypatch, capsys):
    account = Account.create(url, name="digits", epsilon=2.0, delta=1e-5)
    with monkeypatch.context() as patched:
        crash(url, tmp_path / "run", patched, 10)
    assert account.state().entry(1).settled is None
    again = ["train", "--resume", "--out", str(tmp_path / "run"), "--json"]
    assert main(again) == 2  # the folder of the run has no password
    assert "cannot be read or written" in capsys.readouterr().err
    monkeypatch.setenv("PGPASSWORD", postgresql.PASSWORD)
    assert main(again) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 20
    assert account.state().entry(1).settled == 20
