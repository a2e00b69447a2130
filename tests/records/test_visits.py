"""An order of visits keeps its promise, or stops before anything is released."""

import itertools

import pytest

from plrvo.accounting.correlated import Participation
from plrvo.records.visits import OwnOrder, ScheduleViolated, VisitedOrder, Visits
from plrvo.validate import InvalidArgument

SEPARATED = Participation(steps_per_epoch=4, epochs=3, separation=2)
FIXED = Participation(steps_per_epoch=4, epochs=3)

BROKEN = {
    "an example twice in a batch": (SEPARATED, [[0, 0]], "more than once"),
    "an index below zero": (SEPARATED, [[-1]], "outside of the 8 examples"),
    "an index beyond the last": (SEPARATED, [[8]], "outside of the 8 examples"),
    "too close together": (SEPARATED, [[0], [0]], "less than 2 steps"),
    "too often": (SEPARATED, [[0], [], [0], [], [0], [], [0]], "more than 3 times"),
    "out of a fixed order": (FIXED, [[0], [], [], [], [], [0]], "out of its fixed order"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_batch_that_breaks_the_plan_is_refused_and_not_recorded(name):
    participation, batches, said = BROKEN[name]
    visits = Visits(8, participation)
    for batch in batches[:-1]:
        visits.admit(batch)
    before = visits.to_dict()
    with pytest.raises(ScheduleViolated, match=said):
        visits.admit(batches[-1])
    assert visits.to_dict() == before


def test_counts_and_separations_are_those_of_the_batches():
    visits = Visits(8, SEPARATED)
    for batch in ([0, 1], [2], [0], [], [1], [0]):
        visits.admit(batch)
    said = visits.to_dict()
    assert (said["steps"], said["largest_count"], said["smallest_separation"]) == (6, 3, 2)


def test_the_digest_knows_the_order_and_where_batches_end():
    digests = set()
    for batches in ([[0, 1], [2]], [[0], [1, 2]], [[2], [0, 1]], [[1, 0], [2]], [[0, 1], [2], []]):
        visits = Visits(8, FIXED)
        for batch in batches:
            visits.admit(batch)
        digests.add(visits.to_dict()["digest"])
    assert len(digests) == 5


@pytest.mark.parametrize("participation", [FIXED, SEPARATED, Participation(4, 3, 1)], ids=str)
def test_the_own_order_visits_everyone_once_an_epoch_within_its_separation(participation):
    order = OwnOrder(10, participation, 12, seed=5)
    visits = Visits(10, participation)
    batches = list(order)
    for epoch in (batches[i : i + 4] for i in range(0, 12, 4)):
        assert sorted(itertools.chain(*epoch)) == list(range(10))
        for batch in epoch:
            visits.admit(batch)
    assert list(order) == batches != list(OwnOrder(10, participation, 12, seed=6))


def test_more_steps_an_epoch_than_examples_are_refused():
    with pytest.raises(InvalidArgument, match=r"^steps_per_epoch="):
        OwnOrder(3, FIXED, 4, seed=0)


def test_an_order_goes_on_from_any_step_and_only_from_its_own():
    whole = VisitedOrder(OwnOrder(10, FIXED, 12, seed=5), 10, FIXED, 12)
    batches = list(whole.admitted())
    assert whole.remaining == 0
    first = VisitedOrder(OwnOrder(10, FIXED, 12, seed=5), 10, FIXED, 12)
    taken = list(itertools.islice(first.admitted(), 7))
    digest = first.visits.to_dict()["digest"]
    again = VisitedOrder(OwnOrder(10, FIXED, 12, seed=5), 10, FIXED, 12)
    again.return_to(7, digest)
    assert taken + list(again.admitted()) == batches
    assert again.to_dict() == whole.to_dict()
    with pytest.raises(InvalidArgument, match="order of batches"):
        VisitedOrder(OwnOrder(10, FIXED, 12, seed=6), 10, FIXED, 12).return_to(7, digest)
    with pytest.raises(InvalidArgument, match="order of batches"):
        VisitedOrder(batches[:5], 10, FIXED, 12).return_to(7)
