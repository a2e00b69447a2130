"""An account on the page, beside the runs that were charged to it."""

import json
import shutil
from dataclasses import replace
from itertools import pairwise

import pytest
from tests.budget.accounts import account, plan
from tests.report.samples import HOSTILE, changed_receipt, copied, train

from plrvo.budget import Account
from plrvo.cli.main import main
from plrvo.report.accounts import course, read_account
from plrvo.report.loading import read_run
from plrvo.report.page import make_page


@pytest.fixture(scope="module")
def charged(tmp_path_factory):
    """An account with a hostile name, and the folder of one run among its entries."""
    folder = tmp_path_factory.mktemp("charged")
    made = account(folder, epsilon=9.0, name=HOSTILE[:190])
    made.reserve(plan(), "before").settle(0)
    run = train(folder / "first", "--noise", "gaussian", "--epsilon", "2", "--budget", str(made.path))
    made.reserve(plan(), HOSTILE[:190]).let_go()
    return made, run


def test_the_course_ends_where_the_account_stands_and_never_falls(charged):
    state = charged[0].state()
    points = course(state)
    assert [number for number, _ in points] == [0, 1, 2, 3]
    assert points[-1][1] == state.standing()
    for (_, before), (_, after) in pairwise(points):
        assert before.spent <= after.spent
        assert before.lower <= after.lower
    assert points[0][1].spent == 0


def test_a_long_course_is_told_in_fewer_points_that_end_at_its_end(tmp_path):
    made = account(tmp_path)
    made.reserve(plan(steps=1), "first").let_go()
    state = made.state()
    many = replace(state, entries=state.entries * 101)
    numbers = [number for number, _ in course(many)]
    assert len(numbers) <= 41
    assert numbers[-1] == 101
    assert set(map(int.__sub__, numbers[1:], numbers[:-1])) == {3}


def test_the_page_has_the_numbers_of_the_account_and_leads_to_its_runs(charged):
    made, folder = charged
    run = read_run(folder)
    told = read_account(made, [run])
    assert (told.runs, told.others, told.differences) == ({2: run}, [], [])
    page = make_page([told, run]).decode()
    standing = made.state().standing()
    for name, value in (("spent", standing.spent), ("reached", standing.lower), ("left-at-least", standing.left[0])):
        assert f'data-quantity="{name}" data-exact="{value!r}"' in page
    assert '<a href="#run-2">digits in first</a>' in page
    assert "Entry 3 is reserved and not settled" in page
    assert HOSTILE[:190] not in page
    assert str(made.path.parent) not in page


def test_runs_of_other_accounts_or_of_none_are_told_and_no_fault(charged, tmp_path, gaussian_run):
    other = account(tmp_path)
    runs = [read_run(gaussian_run), read_run(charged[1])]
    told = read_account(other, runs)
    assert (told.runs, told.others, told.verified) == ({}, ["gaussian", "first"], True)
    page = make_page([told, *runs]).decode()
    assert "gaussian, first: not charged to this account" in page
    assert "Nothing has been charged to it yet." in page


def test_an_older_copy_of_the_account_is_found_by_the_page(tmp_path, capsys):
    made = Account.create(tmp_path / "a.budget", name="a", epsilon=9.0, delta=1e-5)
    shutil.copy(made.path, tmp_path / "older")
    run = train(tmp_path / "run", "--noise", "gaussian", "--epsilon", "2", "--budget", str(made.path))
    out = str(tmp_path / "page.html")
    capsys.readouterr()
    assert main(["report", str(run), "--budget", str(made.path), "--out", out, "--json"]) == 0
    assert [one["kind"] for one in json.loads(capsys.readouterr().out)["runs"]] == ["account", "training"]
    shutil.copy(tmp_path / "older", made.path)
    assert main(["report", str(run), "--budget", str(made.path), "--out", out, "--json"]) == 1
    (difference,) = json.loads(capsys.readouterr().out)["differences"]
    assert "run: the account has 1 event; the run knows of" in difference
    assert "an older copy was put back" in difference
    assert "Does not verify." in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_receipt_that_lies_of_its_entry_is_told(charged, tmp_path):
    made, folder = charged
    copy = copied(folder, tmp_path / "copy")
    changed_receipt(copy, lambda receipt: receipt["budget"].update(entry=3))
    told = read_account(made, [read_run(copy)])
    assert told.runs == {}
    assert any("entry 3 of the account has another plan" in line for line in told.differences)


def test_an_account_alone_makes_a_page_and_nothing_at_all_is_refused(charged, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["report", "--budget", str(charged[0].path), "--out", str(out)]) == 0
    assert out.exists()
    capsys.readouterr()
    assert main(["report", "--out", str(tmp_path / "no.html")]) == 2
    assert main(["report", "--budget", str(tmp_path / "no"), "--out", str(tmp_path / "no.html")]) == 2
    err = capsys.readouterr().err.splitlines()
    assert err[0].startswith("plrvo: RUN (missing): expected a run, or --budget")
    assert err[1].startswith(f"plrvo: --budget {tmp_path / 'no'}: expected an account")
    assert not (tmp_path / "no.html").exists()
