"""An account: nobody spends what another has reserved, and nothing that was released is forgotten."""

import math
import os
import shutil
import signal
import time

import pytest
from tests.budget.accounts import DELTA, account, plan

from plrvo import GammaPLRV, Gaussian, Laplace, Ledger, Plan, Workload
from plrvo.accounting.correlated import Correlation, Participation, Tree
from plrvo.budget import Account
from plrvo.budget.place import hold_of
from plrvo.noise import Specification
from plrvo.validate import InvalidArgument


def test_a_reservation_counts_whole_until_what_was_not_released_is_settled(tmp_path):
    made = account(tmp_path)
    charge = made.reserve(plan(), "first")
    reserved = made.state().standing()
    charge.release(40)
    assert made.state().standing() == reserved
    charge.settle()
    settled = made.state().standing()
    assert (made.state().entry(1).charged, made.state().entry(1).planned) == (40, 100)
    assert settled.spent < reserved.spent
    other = account(tmp_path_with(tmp_path, "b"))
    other.reserve(plan(steps=40), "the same")
    assert other.state().standing() == settled


def tmp_path_with(tmp_path, name):
    (tmp_path / name).mkdir()
    return tmp_path / name


def test_a_plan_that_does_not_fit_is_refused_with_what_is_left_as_a_bracket(tmp_path):
    made = account(tmp_path, epsilon=3.0)
    made.reserve(plan(), "first").settle(0)
    made.reserve(plan(), "second")
    before = len(made.state().events)
    left = made.state().standing().left
    with pytest.raises(InvalidArgument, match=r"room for 100 steps of gaussian noise.*left is at least .* and at most"):
        made.reserve(plan(sigma=5.0), "third")
    assert len(made.state().events) == before
    assert 0 < left[0] < left[1] < 3.0
    assert not hold_of(made.path, 3).exists()


def test_all_entries_are_composed_together(tmp_path):
    made = account(tmp_path, epsilon=8.0)
    made.reserve(plan(), "gaussian")
    alone = made.state().standing()
    made.reserve(Plan.certify(Laplace(6.0), Workload(0.25, 100, 1.0, 2730), DELTA), "laplace")
    both = made.state().standing()
    ledger = Ledger()
    for entry in made.state().entries:
        ledger = ledger.plus(entry.reserved.noise, entry.reserved.work)
    bracket = ledger.epsilon(DELTA)
    fixed = made.state().as_fixed()
    assert fixed == bracket.certified
    assert both.lower == bracket.lower
    assert alone.spent < both.spent < 2 * alone.spent + 1
    assert both.lower <= fixed < both.spent < 8.0


def test_the_budget_is_never_exceeded_however_many_plans_are_tried(tmp_path):
    made = account(tmp_path, epsilon=4.0)
    taken = 0
    for number in range(9):
        try:
            made.reserve(plan(sigma=5.0 + number % 2), f"plan {number}")
            taken += 1
        except InvalidArgument:
            continue
    standing = made.state().standing()
    assert 1 < taken < 9
    assert made.state().as_fixed() < standing.spent <= 4.0


def test_a_run_that_is_alive_is_not_settled_by_another(tmp_path):
    made = account(tmp_path)
    charge = made.reserve(plan(), "first")
    with pytest.raises(InvalidArgument, match="another process is at work on it"):
        made.settle(1)
    charge.release(10)
    charge.let_go()
    assert made.settle(1).charged == 10
    with pytest.raises(InvalidArgument, match="not settled"):
        charge.release(20)


def test_a_killed_run_keeps_its_reservation_and_can_be_settled_for_what_it_released(tmp_path):
    made = account(tmp_path)
    pid = os.fork()
    if pid == 0:
        made.reserve(plan(), "killed").release(30)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    entry = made.state().entry(1)
    assert (entry.released, entry.charged, entry.settled) == (30, 100, None)
    assert made.settle(1).charged == 30
    assert made.settle(1).charged == 30  # and once more changes nothing


def test_a_run_of_another_machine_is_settled_whole_or_there(tmp_path, monkeypatch):
    made = account(tmp_path)
    made.reserve(plan(), "elsewhere").let_go()
    monkeypatch.setattr("plrvo.budget.store.this_machine", lambda: "another")
    with pytest.raises(InvalidArgument, match="nobody can see from here that it ended"):
        made.settle(1)
    assert made.settle(1, whole=True).charged == 100


def test_a_run_that_nobody_counts_is_charged_whole_unless_it_says_itself(tmp_path):
    made = account(tmp_path)
    made.reserve(plan(), "lost", counted=False).let_go()
    made.reserve(plan(), "told", counted=False).settle(25)
    assert made.settle(1).charged == 100
    assert [entry.charged for entry in made.state().entries] == [100, 25]


def test_a_counted_run_cannot_settle_for_less_than_it_released(tmp_path):
    made = account(tmp_path)
    charge = made.reserve(plan(), "first")
    charge.release(50)
    with pytest.raises(InvalidArgument, match="50, which were released"):
        charge.settle(20)
    with pytest.raises(InvalidArgument, match="at most the 100"):
        charge.release(101)
    charge.release(20)
    assert charge.settle().charged == 50


def test_a_run_goes_on_with_its_entry(tmp_path):
    made = account(tmp_path)
    charge = made.reserve(plan(), "first")
    charge.release(25)
    record = charge.record()
    with pytest.raises(InvalidArgument, match="another process is at work"):
        made.take_up(record, 25)
    charge.let_go()
    again = made.take_up(record, 50)  # the journal had 50, and the process died before the account knew
    assert again.entry.released == 50
    again.settle()
    with pytest.raises(InvalidArgument, match="this one has ended"):
        made.take_up(record, 50)


def test_an_older_copy_of_a_run_does_not_go_on(tmp_path):
    made = account(tmp_path)
    charge = made.reserve(plan(), "first")
    record = charge.record()
    charge.release(50)
    charge.let_go()
    with pytest.raises(InvalidArgument, match="older copy"):
        made.take_up(record, 25)


def test_two_copies_of_a_run_do_not_both_go_on_though_a_lock_was_taken_away(tmp_path):
    made = account(tmp_path)
    charge = made.reserve(plan(), "first")
    charge.release(25)
    hold_of(made.path, 1).unlink()
    copy = made.take_up(charge.record(), 25)
    copy.release(50)
    with pytest.raises(InvalidArgument, match="alone on its entry: 50 steps were released, and this one knows of 25"):
        charge.release(50)
    assert copy.settle().charged == 50


def test_a_restored_account_is_told_by_what_its_runs_know(tmp_path):
    made = account(tmp_path)
    shutil.copy(made.path, tmp_path / "copy")
    charge = made.reserve(plan(), "first")
    record = charge.record()
    charge.let_go()
    shutil.copy(tmp_path / "copy", made.path)
    with pytest.raises(InvalidArgument, match=r"number of an entry|older copy"):
        made.take_up(record, 0)
    made.reserve(plan(), "another").let_go()
    with pytest.raises(InvalidArgument, match="gone another way"):
        made.take_up(record, 0)
    other = account(tmp_path_with(tmp_path, "b"))
    other.reserve(plan(), "x").let_go()
    with pytest.raises(
        InvalidArgument, match=r"belongs to the account .* \(entry 1\); this is the account .*, called 'a'"
    ):
        other.take_up(record, 0)


def test_a_closed_account_takes_no_plan_and_settles_what_it_has(tmp_path):
    made = account(tmp_path)
    charge = made.reserve(plan(), "first")
    made.close()
    made.close()
    with pytest.raises(InvalidArgument, match="takes no more plans"):
        made.reserve(plan(), "second")
    with pytest.raises(InvalidArgument, match="takes no more plans"):
        made.check_takes(None)
    charge.release(5)
    assert charge.settle().charged == 5
    assert [event.document["event"] for event in made.state().events][-3:] == ["closed", "released", "settled"]


def test_the_order_of_events_is_not_that_of_the_clock(tmp_path, monkeypatch):
    made = account(tmp_path)
    monkeypatch.setattr("time.time", lambda: 0.0)
    charge = made.reserve(plan(), "first")
    charge.release(5)
    assert charge.settle().charged == 5
    assert time.time() == 0


def correlated(steps=100):
    work = Workload(sample_rate=1.0, steps=steps, clip=1.0, dimension=26_010)
    return Plan.certify(Gaussian(20.0), work, DELTA, correlation=Correlation(Tree(), Participation(steps)))


def test_correlated_noise_needs_its_adjacency_and_is_charged_whole(tmp_path):
    with pytest.raises(InvalidArgument, match="adjacency zero-out"):
        account(tmp_path).reserve(correlated(), "tree")
    made = account(tmp_path_with(tmp_path, "b"), adjacency="zero-out")
    made.reserve(plan(), "sampled").settle(0)
    charge = made.reserve(correlated(), "tree")
    whole = made.state().standing()
    assert made.state().as_fixed() is None
    charge.release(1)
    charge.settle()
    assert made.state().standing() == whole
    made.reserve(correlated(), "not begun").settle()
    assert made.state().standing() == whole


def test_noise_that_has_no_filter_is_refused(tmp_path):
    shared = GammaPLRV(k=40_000, theta=6e-5, shared=True)
    with pytest.raises(InvalidArgument, match="scale for each coordinate"):
        account(tmp_path).reserve(Plan.certify(shared, Workload(0.01, 10, 0.5, 100), DELTA), "shared")


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "\x1b[2K", "x" * 201, None, 3, "\u202eevil"])
def test_names_that_a_line_cannot_show_are_refused(tmp_path, name):
    with pytest.raises(InvalidArgument, match=r"^name="):
        account(tmp_path, name=name)
    made = account(tmp_path)
    with pytest.raises(InvalidArgument, match=r"^name="):
        made.reserve(plan(), name)


def test_hostile_names_that_can_be_shown_are_names(tmp_path):
    made = account(tmp_path, name="Robert'); DROP TABLE events;-- [bold]")
    made.reserve(plan(), "../../etc/passwd")
    assert Account(made.path).state().name.startswith("Robert")


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 1.5}, "delta"),
        ({"adjacency": "both"}, "adjacency"),
    ],
)
def test_bad_values_are_named(tmp_path, given, argument):
    values = {"name": "a", "epsilon": 1.0, "delta": 1e-5, **given}
    with pytest.raises(InvalidArgument) as refused:
        Account.create(tmp_path / "a.budget", **values)
    assert refused.value.argument == argument
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [0, 2, -1, True, "1"])
def test_entries_that_there_are_not_are_refused(tmp_path, number):
    made = account(tmp_path)
    made.reserve(plan(), "first").let_go()
    with pytest.raises(InvalidArgument, match="number of an entry"):
        made.settle(number)


@pytest.mark.parametrize("kind", ["symlink_to", "hardlink_to"])
def test_a_run_at_work_is_not_settled_through_a_link(tmp_path, kind):
    made = account(tmp_path)
    charge = made.reserve(plan(), "first")
    charge.release(40)
    link = tmp_path / "b.budget"
    getattr(link, kind)(made.path)
    with pytest.raises(InvalidArgument, match=r"another process is at work|a file with one name"):
        Account(link).settle(1)
    link.unlink()
    charge.release(60)
    assert charge.settle().charged == 60


def test_a_plan_of_all_the_epsilon_is_refused_and_told_why_and_a_smaller_one_fits(tmp_path):
    """The numbers of the guide: an account charges more than a run's own certificate, and small runs the most."""
    work = Workload(sample_rate=0.25, steps=60, clip=1.0, dimension=2730)

    def fitted(epsilon: float) -> Plan:
        return Plan.fitted(Specification("gaussian", {}), work, 1e-5, epsilon)

    three = Account.create(tmp_path / "three.budget", name="three", epsilon=3, delta=1e-5)
    with pytest.raises(InvalidArgument, match=r"epsilon 3.395 would be spent.*own certificate.*a smaller epsilon, or"):
        three.reserve(fitted(3.0), "all of it")
    three.reserve(fitted(2.6), "less of it").let_go()
    for epsilon, charged in ((1.0, 1.363), (2.0, 2.549), (4.0, 4.559)):
        five = Account.create(tmp_path / f"{epsilon}.budget", name="five", epsilon=5, delta=1e-5)
        five.reserve(fitted(epsilon), "one").let_go()
        assert five.state().standing().spent == pytest.approx(charged, abs=1e-3)
