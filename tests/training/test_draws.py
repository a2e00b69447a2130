"""A step belongs to one whole batch that was drawn, and a batch that was drawn waits for its step."""

import pytest

from plrvo.training.draws import BatchMismatch, Draws

BATCHES = [[1, 2, 3], [], [4, 5]]


def test_one_step_for_each_batch():
    draws = Draws()
    for batch in draws.through(iter(BATCHES)):
        assert draws.waiting == 1
        draws.part(len(batch), last=True)
    assert draws.waiting == 0


def test_a_batch_may_come_in_parts():
    draws = Draws()
    draws.drawn([1, 2, 3])
    draws.part(2, last=False)
    assert not draws.is_at_a_batch
    draws.part(1, last=True)
    assert draws.is_at_a_batch
    assert draws.waiting == 0


def test_no_step_without_a_batch_and_no_second_one():
    draws = Draws()
    with pytest.raises(BatchMismatch, match="without a batch"):
        draws.part(3, last=True)
    draws.drawn([1, 2, 3])
    draws.part(3, last=True)
    with pytest.raises(BatchMismatch, match="without a batch"):
        draws.part(3, last=True)


@pytest.mark.parametrize(("rows", "last"), [(2, True), (4, True), (4, False), (0, True)])
def test_other_rows_than_the_batch_has_are_refused_and_the_batch_still_waits(rows, last):
    draws = Draws()
    draws.drawn([1, 2, 3])
    with pytest.raises(BatchMismatch, match="other rows") as caught:
        draws.part(rows, last=last)
    assert "3" not in str(caught.value)  # the size of a batch is private
    draws.part(3, last=True)


def test_a_batch_is_not_passed_over():
    draws = Draws()
    passed = draws.through(iter(BATCHES))
    next(passed)
    next(passed)
    with pytest.raises(BatchMismatch, match="no step was taken"):
        draws.part(0, last=True)


def test_a_new_pass_begins_with_what_waits_and_draws_nothing_in_its_place():
    draws, new = Draws(), iter(BATCHES)
    assert next(draws.through(new)) == [1, 2, 3]
    assert next(draws.through(new)) == [1, 2, 3]
    taken = []
    for batch in draws.through(new):
        taken.append(batch)
        draws.part(len(batch), last=True)
    assert taken == BATCHES


def test_parts_that_were_dropped_are_not_rows_of_the_step():
    draws = Draws()
    draws.drawn([1, 2, 3])
    draws.part(2, last=False)
    draws.forget_part()
    draws.part(3, last=True)


def test_batches_that_workers_took_ahead_count_when_they_leave():
    draws = Draws()
    list(draws.through(iter(BATCHES), ahead=True))
    for batch in BATCHES:
        with pytest.raises(BatchMismatch, match="without a batch"):
            draws.part(len(batch), last=True)
        draws.leave()
        draws.part(len(batch), last=True)


def test_a_look_inside_of_a_pass_neither_lengthens_nor_ends_it():
    """`next(iter(loader))` in a loop over the loader: the same batch, and the pass has as many as before."""
    draws, batches = Draws(), iter([[i] for i in range(20)])
    seen = []
    for batch in draws.through(batches, most=5):
        assert next(draws.through(batches, most=5)) == batch
        seen.append(batch)
        draws.part(1, last=True)
    assert seen == [[0], [1], [2], [3], [4]]
    assert draws.waiting == 0


def test_an_evaluation_inside_of_a_pass_leaves_it_as_it_was():
    draws, batches = Draws(), iter([[i] for i in range(20)])
    seen = []
    for batch in draws.through(batches, most=4):
        looked = list(draws.through(batches, most=4))
        assert looked[0] == batch
        seen.append(batch)
        draws.part(1, last=True)
    assert seen == [[0], [1], [2], [3]]


def test_two_batches_in_hand_are_refused_in_a_pass_inside_too():
    draws, batches = Draws(), iter([[i] for i in range(20)])
    for _ in draws.through(batches, most=4):
        inside = draws.through(batches, most=4)
        next(inside), next(inside)
        with pytest.raises(BatchMismatch, match="no step was taken"):
            draws.part(1, last=True)
        inside.close()
        draws.part(1, last=True)
