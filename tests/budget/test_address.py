"""Where an account lies, and that nobody learns a password from it."""

import pickle
import sys
from pathlib import Path

import pytest

from plrvo.budget.address import Url, address
from plrvo.validate import InvalidArgument

sqlalchemy = pytest.importorskip("sqlalchemy")
SECRET = "hush#@:/?&%"


def with_secret(rest="host/privacy?sslpassword=alsohush&sslmode=require#census"):
    from urllib.parse import quote

    return f"postgresql://anna:{quote(SECRET, safe='')}@{rest}"


def test_files_are_paths_and_urls_are_urls(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert address("a.budget") == tmp_path / "a.budget" == address(Path("a.budget"))
    assert address("a:b/c") == tmp_path / "a:b" / "c"
    found = address(with_secret())
    assert isinstance(found, Url)
    assert (found.account, found.full.password, found.full.host) == ("census", SECRET, "host")
    assert address(found) is found
    assert address("postgresql://host/db").account == "default"


def test_what_is_shown_or_written_has_no_secret_and_finds_the_same_account():
    found = address(with_secret())
    for words in (str(found), repr(found), f"{found}", f"{found!r}", str([found])):
        assert "hush" not in words
        assert "%23" not in words
    again = address(str(found))
    assert str(found) == str(again) == "postgresql://anna@host/privacy?sslmode=require#census"
    assert (again.account, again.full.host, again.full.username) == ("census", "host", "anna")
    assert pickle.loads(pickle.dumps(found)) == found  # with the password: another process of ours connects


def test_what_a_driver_says_is_told_without_the_secret():
    found = address(with_secret())
    assert found.without_secrets(f"no entry for {SECRET} and alsohush") == "no entry for *** and ***"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://anna:hu#sh@host/db",  # the rest of the password looks like the name of an account
        "postgresql://anna:hu@sh@host/db",  # ... or like a host
        "postgresql://anna/x:hush@host",  # ... or like a database
        "postgresql://anna:hush@host:port/db",
        "postgresql://anna:hush@host/db#a b",
        "postgresql://anna:hush@host/db#" + "x" * 65,
        "postgresql://anna:hush@host/db#\x1b[2K",
        "nonsense://anna:hush@host/db",
        "postgresql+nonsense://anna:hush@host/db",
        "sqlite:///hush.budget",
    ],
)
def test_bad_urls_are_refused_in_one_line_that_quotes_nothing(text):
    with pytest.raises(InvalidArgument, match=r"^budget='[a-z+]+://\.\.\.': expected") as refused:
        address(text)
    assert not any(part in str(refused.value) for part in ("hu", "sh@", "\n", "\x1b"))
    assert refused.value.__context__ is None or refused.value.__suppress_context__


@pytest.mark.parametrize("text", ["postgresql://", "postgresql://anna:hush@host/db#"])
def test_what_a_url_leaves_open_is_usual(text):
    assert address(text).account == "default"


def test_a_path_that_was_a_url_is_told():
    with pytest.raises(InvalidArgument, match="a URL as text") as refused:
        address(Path("postgresql://anna:hush@host/db"))
    assert "hush" not in str(refused.value)
    with pytest.raises(InvalidArgument, match="expected the path of a file"):
        address(3)


def test_without_sqlalchemy_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(InvalidArgument, match=r"SQLAlchemy: pip install 'plrvo\[database\]'") as refused:
        address("postgresql://anna:hush@host/db")
    assert "hush" not in str(refused.value)
