"""Diagnostics add up parts of a batch by their size, and go on where an earlier process stopped."""

from plrvo.training.diagnostics import Diagnostics


def test_the_loss_of_a_batch_is_the_mean_over_its_examples(tmp_path):
    kept = Diagnostics(tmp_path / "unsafe.jsonl")
    kept.part(3, 1.0)
    kept.part(0, float("nan"))
    kept.part(1, 5.0)
    kept.step(1)
    kept.step(2)
    assert kept.rows == [
        {"step": 1, "batch_size": 4, "training_loss": 2.0},
        {"step": 2, "batch_size": 0, "training_loss": None},
    ]


def test_rows_beyond_the_checkpoint_are_those_of_no_step(tmp_path):
    first = Diagnostics(tmp_path / "unsafe.jsonl", [{"examples": 9}])
    for step in (1, 2, 3):
        first.part(step, 0.5)
        first.step(step)
    first.write()
    again = Diagnostics(first.path)
    again.take_up(2)
    assert again.rows == first.rows[:3]
    absent = Diagnostics(tmp_path / "absent.jsonl")
    absent.take_up(2)
    assert absent.rows == []
