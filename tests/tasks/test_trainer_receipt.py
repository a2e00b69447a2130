"""What a receipt of a private trainer says of data and tests, in a form that can be written and drawn."""

import json
import math
from types import SimpleNamespace

import pytest

from plrvo.tasks.trainer_receipt import measured, name_of


@pytest.mark.parametrize(
    ("info", "name"),
    [
        ({"dataset_name": "glue", "builder_name": "parquet", "config_name": "sst2"}, "glue sst2"),
        ({"dataset_name": "imdb", "builder_name": "parquet", "config_name": "default"}, "imdb"),
        ({"dataset_name": "csv", "builder_name": "csv", "config_name": "default"}, None),
        ({"dataset_name": None, "builder_name": None, "config_name": None}, None),
        ({}, None),
    ],
)
def test_a_data_set_that_has_a_name_gives_it(info, name):
    assert name_of(SimpleNamespace(info=SimpleNamespace(**info))) == name
    assert name_of([1, 2, 3]) is None


def test_tests_of_several_data_sets_are_one_row_and_what_cannot_be_written_is_left_out():
    log = [
        {"step": 0, "eval_loss": 3.0},
        {"step": 2, "loss": 9.0, "learning_rate": 0.1},
        {"step": 2, "eval_one_loss": 0.5, "eval_runtime": 0.1, "epoch": 1.0},
        {"step": 2, "eval_two_loss": 0.25, "eval_samples_per_second": 9.0},
        {"step": 4, "eval_loss": math.nan, "eval_accuracy": 0.5, "eval_note": "good"},
        {"step": 6, "train_runtime": 1.0},
    ]
    rows = measured(log)
    assert rows == [{"step": 2, "one_loss": 0.5, "two_loss": 0.25}, {"step": 4, "accuracy": 0.5}]
    json.dumps(rows, allow_nan=False)


def test_a_measure_named_as_something_else_in_the_row_keeps_its_prefix():
    log = [{"step": 4, "eval_step": 77.0, "eval_epsilon_certified": 0.01, "eval_accuracy": 0.5}]
    assert measured(log) == [{"step": 4, "eval_step": 77.0, "eval_epsilon_certified": 0.01, "accuracy": 0.5}]
