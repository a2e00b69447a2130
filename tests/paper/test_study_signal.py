"""What gradients have in common, how they are clipped, and whose they are: against another way to the same numbers."""

import math

import pytest
import torch
from tests.training.helpers import seeded
from torch import nn

from plrvo.paper.study_signal import (
    BY_PARAMETER,
    FLAT,
    PARTS,
    Signal,
    clipped,
    findings,
    fit_head,
    gradients_of,
    head_of,
)
from plrvo.tasks.preset import InMemory
from plrvo.training.clipping.optimizer import shares_of


def gradients(count: int, size: float = 1.0) -> list[dict[int, torch.Tensor]]:
    g = seeded(3)
    return [{0: size * torch.randn(4, 3, generator=g), 1: torch.randn(5, generator=g) + 1} for _ in range(count)]


def test_what_is_common_is_the_mean_inner_product_of_two_examples():
    signal, rows = Signal(), []
    for one in gradients(9):
        signal.add(one)
        rows.append(torch.cat([t.flatten() for t in one.values()]).double())
    gram = torch.stack(rows) @ torch.stack(rows).T
    apart = gram[~torch.eye(9, dtype=torch.bool)].mean()
    assert signal.common == pytest.approx(math.sqrt(apart), rel=1e-6)
    assert signal.dimension == 17


def test_directions_without_anything_in_common_have_no_signal():
    signal = Signal()
    for one in (torch.tensor([1.0, 0.0]), torch.tensor([-1.0, 0.0])):
        signal.add({0: one})
    assert signal.common == 0.0


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_clips_are_those_of_a_step(size):
    """Opacus's factor for one clip, and the optimizer's shares of it for every parameter."""
    one = gradients(1, size)[0]
    parameters = [nn.Parameter(t) for t in one.values()]
    norm = torch.cat([t.flatten() for t in one.values()]).norm()
    for n, t in clipped(one, FLAT).items():
        torch.testing.assert_close(t, one[n] * (1 / norm).clamp(max=1.0))
    for (n, t), share in zip(clipped(one, BY_PARAMETER).items(), shares_of(1.0, parameters).values(), strict=True):
        torch.testing.assert_close(t, one[n] * (share / one[n].norm()).clamp(max=1.0))


def test_each_example_has_its_own_gradient():
    class Task:
        data = InMemory(torch.randn(6, 4, generator=seeded(1)), torch.randint(3, (6,), generator=seeded(2)))
        loss = nn.CrossEntropyLoss()

    module = nn.Linear(4, 3)
    found = list(gradients_of(Task, module, [4, 1]))
    for index, of_example in zip([4, 1], found, strict=True):
        x, y = Task.data.tensors[0][index], Task.data.tensors[1][index]
        error = module(x).softmax(0) - nn.functional.one_hot(y, 3)  # by hand: (p - y) x'
        torch.testing.assert_close(of_example[0], torch.outer(error, x))
        torch.testing.assert_close(of_example[1], error)


def test_a_head_is_what_is_not_of_the_pretrained_part():
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.base_model, self.classifier = nn.Linear(2, 2), nn.Linear(2, 2)

    assert head_of(Classifier()) == {2, 3}
    frozen = Classifier()
    frozen.base_model.weight.requires_grad_(False)
    assert head_of(frozen) == {1, 2}
    assert head_of(nn.Linear(2, 2)) == {0, 1}  # a head alone


def test_the_head_learns_and_nothing_else_does():
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.base_model, self.classifier = nn.Linear(3, 3), nn.Linear(3, 2)
            for number, parameter in enumerate(self.parameters()):
                nn.init.uniform_(parameter, -0.5, 0.5, generator=seeded(number))

        def forward(self, x):
            return self.classifier(self.base_model(x))

    class Task:
        x = torch.randn(40, 3, generator=seeded(5))
        data, size = InMemory(x, (x[:, 0] > 0).long()), 40

    module = Classifier()
    before = module.base_model.weight.clone()
    loss = fit_head(Task, module)
    assert loss < 0.3
    with torch.no_grad():
        assert nn.functional.cross_entropy(module(Task.x), Task.data.tensors[1]) == pytest.approx(loss, abs=0.02)
    assert torch.equal(module.base_model.weight, before)
    assert all(p.grad is None for p in module.parameters())


def test_findings_name_both_clips():
    rows = [
        {
            "parameters": {"trained": part.name, "clipping": part.clipping},
            "measured": {"head": 2.0, "rest": None if part.name == "head" else 0.125, "head_share": 99.0},
        }
        for part in PARTS
    ]
    told = " ".join(findings(rows))
    assert "low rank, two layers: the head has 99.0 %" in told
    assert "0.125" in told
