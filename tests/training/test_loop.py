"""The loop takes any batch of tensors, in parts, with a schedule; without privacy it takes ordinary steps."""

import pytest
import torch
from torch import nn

from plrvo.tasks.preset import InMemory, whole_batches
from plrvo.tasks.settings import Settings
from plrvo.training import PoissonSampler
from plrvo.training.loop import Run, forward, train
from plrvo.training.plain import PlainOptimizer, summed

SIZE, RATE, STEPS = 60, 0.3, 5


class TwoInputs(InMemory):
    """A batch of two named tensors."""

    def __getitems__(self, indices):
        left, right, targets = super().__getitems__(indices)
        return {"left": left, "right": right}, targets


class Bilinear(nn.Module):
    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(2)
            self.left, self.right = nn.Linear(3, 4), nn.Linear(5, 4)

    def forward(self, left, right):
        return self.left(left) + self.right(right)


def data() -> TwoInputs:
    g = torch.Generator().manual_seed(1)
    targets = torch.randint(0, 4, (SIZE,), generator=g)
    return TwoInputs(torch.randn(SIZE, 3, generator=g), torch.randn(SIZE, 5, generator=g), targets)


def batches(steps: int = STEPS) -> PoissonSampler:
    return PoissonSampler(size=SIZE, sample_rate=RATE, steps=steps, generator=torch.Generator().manual_seed(7))


def trained(physical_batch: int | None, schedule: str = "constant") -> nn.Module:
    module = Bilinear()
    settings = Settings(out=None, learning_rate=0.5, schedule=schedule)  # type: ignore[arg-type]
    run = Run(
        module=module,
        optimizer=PlainOptimizer(torch.optim.SGD(module.parameters(), lr=99.0), RATE * SIZE),
        loader=whole_batches(data(), batches()),
        loss=summed(nn.CrossEntropyLoss()),
        evaluate=dict,
        epsilon=lambda: None,
        steps=STEPS,
        physical_batch=physical_batch,
        learning_rate=settings.rate_at(STEPS),
    )
    train(run)
    assert run.step == STEPS
    return module


def by_hand(schedule: str) -> nn.Module:
    module, everything = Bilinear(), data()
    for step, indices in enumerate(batches()):
        inputs, targets = everything.__getitems__(indices)
        loss = nn.functional.cross_entropy(module(**inputs), targets, reduction="sum") / (RATE * SIZE)
        rate = 0.5 * (1 - step / STEPS if schedule == "linear" else 1)
        with torch.no_grad():
            for p, g in zip(module.parameters(), torch.autograd.grad(loss, list(module.parameters())), strict=True):
                p -= rate * g
    return module


@pytest.mark.parametrize("schedule", ["constant", "linear"])
@pytest.mark.parametrize("physical_batch", [None, 4])
def test_plain_training_equals_gradient_descent_by_hand(physical_batch, schedule):
    ours, expected = trained(physical_batch, schedule), by_hand(schedule)
    for p, q in zip(ours.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


def test_inputs_go_in_by_name_in_order_or_alone():
    module = Bilinear()
    inputs, _ = data().__getitems__([1, 2, 3])
    expected = module(**inputs)
    assert forward(module, inputs).equal(expected)
    assert forward(module, (inputs["left"], inputs["right"])).equal(expected)
    assert forward(module.left, inputs["left"]).equal(module.left(inputs["left"]))
