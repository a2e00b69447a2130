"""The journal never forgets a release, lets a repeated one pass only if it is the same, and refuses damage."""

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from plrvo.records.journal import Journal, reconcile, unreconciled
from plrvo.training.receipts import weights_digest
from plrvo.validate import InvalidArgument


def written(path, steps=(3, 6, 9)) -> Journal:
    journal = Journal.open(path)
    for step in steps:
        assert journal.permits(step, True, lambda step=step: f"weights of {step}")
    return journal


def test_a_release_is_on_disk_when_it_is_permitted(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal.open(path)
    assert journal.steps == journal.releases == 0
    assert not journal.permits(1, False, lambda: "never asked for")
    assert not path.exists()
    assert journal.permits(2, True, lambda: "a")
    again = Journal.open(path)
    assert (again.steps, again.releases, again.summary()) == (2, 1, journal.summary())


def test_a_repeated_release_must_be_the_same_and_nothing_else_is_shown_before(tmp_path):
    path = tmp_path / "journal.jsonl"
    written(path)
    journal = Journal.open(path)
    assert not journal.permits(4, True, lambda: "weights of 4")  # released by nobody yet, and not proved to be a repeat
    assert journal.permits(6, True, lambda: "weights of 6")
    assert not journal.permits(9, False, lambda: "weights of 9")  # checked though nobody wants to see it
    assert journal.releases == 3
    with pytest.raises(InvalidArgument, match="step 9 has been released with other weights"):
        journal.permits(9, False, lambda: "others")


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_line_that_was_being_written_is_dropped_and_overwritten(tmp_path, cut):
    path = tmp_path / "journal.jsonl"
    whole = written(path, (3, 6)).content
    written(path, (3, 6, 9))
    path.write_bytes(path.read_bytes()[:-cut])
    journal = Journal.open(path)
    assert journal.content == whole
    assert journal.permits(8, True, lambda: "weights of 8")
    assert Journal.open(path).weights_at == {3: "weights of 3", 6: "weights of 6", 8: "weights of 8"}


def test_a_checkpoint_knows_a_journal_that_lost_a_whole_line(tmp_path):
    path = tmp_path / "journal.jsonl"
    known = written(path).summary()
    reconcile(Journal.open(path), known)
    written(path, (3, 6, 9, 12))
    reconcile(Journal.open(path), known)  # more releases than the checkpoint has seen
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    with pytest.raises(InvalidArgument, match="first 3 releases"):
        reconcile(Journal.open(path), known)


def test_a_receipt_that_counts_fewer_steps_than_were_released_is_found_out(tmp_path):
    known = written(tmp_path / "journal.jsonl").summary()
    assert unreconciled(tmp_path, known, 9) == []
    assert "9 steps have been released; the receipt counts 8" in unreconciled(tmp_path, known, 8)[0]
    (tmp_path / "journal.jsonl").unlink()
    assert "not beside" in unreconciled(tmp_path, known, 9)[0]


@hypothesis.given(st.data())
@hypothesis.settings(max_examples=60, deadline=None)
def test_any_flipped_bit_is_refused_or_drops_the_last_line(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    whole = written(path)
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    try:
        journal = Journal.open(path)
    except InvalidArgument:
        return
    with pytest.raises(InvalidArgument, match="first 3 releases"):
        reconcile(journal, whole.summary())


def test_the_digest_sees_every_value():
    parameters = [torch.zeros(3), torch.zeros(2, 2, dtype=torch.float64), torch.zeros(0)]
    first = weights_digest(parameters)
    parameters[1][1, 1] = 5e-324
    assert weights_digest(parameters) != first


def test_a_step_that_was_counted_in_advance_is_told_its_weights_once(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal.open(path)
    for step in (1, 2, 2):
        journal.count(step)
    assert journal.permits(1, True, lambda: "never asked for")  # is counted
    assert not journal.permits(1, False, lambda: "never asked for")
    assert journal.permits(2, True, lambda: "a")
    journal.count(2)
    journal.count(3)
    again = Journal.open(path)
    assert again.weights_at == {1: "", 2: "a", 3: ""}
    assert (again.steps, again.releases, again.summary()) == (3, 4, journal.summary())
    with pytest.raises(InvalidArgument, match="step 2 has been released with other weights"):
        again.permits(2, True, lambda: "b")
    journal._append(2, "c")
    with pytest.raises(InvalidArgument, match="line 5 of this one is damaged"):
        Journal.open(path)
