"""Constants are told from targets by themselves, or by their numbers."""

import torch

from plrvo.training.layout import Layout
from plrvo.training.targets import Form, Seen


def test_a_tensor_is_known_until_it_is_written_to() -> None:
    seen, weights, labels = Seen(), torch.ones(3), torch.zeros(4, dtype=torch.long)
    seen.add([weights, labels])
    assert seen.has(weights)
    assert not seen.has(torch.ones(3))
    assert seen.has_value(torch.ones(3))
    assert not seen.has_value(torch.ones(3, dtype=torch.float64))
    assert not seen.has_value(torch.ones(1, 3))
    labels[0] = 1
    assert not seen.has(labels)


def test_what_is_gone_is_not_known_by_its_place() -> None:
    seen = Seen()
    for _ in range(100):
        seen.add([torch.rand(3)])
    assert not any(seen.has(torch.rand(3)) for _ in range(100))


def test_rows_are_found_by_size() -> None:
    outputs = torch.zeros(4, 5, 3)
    form = Form(4, 0, [(outputs, Layout(0))])
    assert form.layout(torch.zeros(4)) == Layout(0)
    assert form.layout(torch.zeros(20, dtype=torch.long)) == Layout(0, rows_first=True)
    assert form.layout(torch.zeros(20)) is None
    assert form.layout(torch.zeros(3)) is None
