"""Every schedule of learning rates goes on where it was, also those that look at a metric."""

import json
import math
from collections import deque

import pytest
import torch
from tests.tasks.test_trainer import STEPS, Rows, weights
from tests.tasks.test_trainer_kept import TESTED, killed_after
from tests.tasks.test_trainer_refusals import made, refused
from tests.tasks.text.tiny import bert
from torch.optim import lr_scheduler as schedules
from transformers.optimization import GreedyLR

from plrvo.audit.receipt import verify
from plrvo.tasks.trainer_schedule import kept_state, load_state
from plrvo.validate import InvalidArgument


@pytest.mark.parametrize("kind", ["reduce_lr_on_plateau", "greedy"])
def test_a_schedule_that_looks_at_a_metric_is_saved_and_resumed(tmp_path, kind):
    settings = {**TESTED, "lr_scheduler_type": kind, "lr_scheduler_kwargs": {"patience": 0, "factor": 0.5}}
    whole, module = bert("head"), bert("head")
    made(tmp_path / "whole", whole, settings=settings, eval_dataset=Rows()).train()
    killed_after(3, made(tmp_path / "run", settings=settings, eval_dataset=Rows()))
    again = made(tmp_path / "run", module, settings=settings, eval_dataset=Rows())
    assert again.train(resume_from_checkpoint=True).global_step == STEPS
    assert torch.equal(weights(module), weights(whole))
    assert verify(tmp_path / "run" / "receipt.json") == []


@pytest.mark.parametrize("kind", ["reduce_lr_on_plateau", "greedy"])
def test_it_may_not_look_at_the_private_examples(tmp_path, kind):
    rows = Rows()
    for evaluated in (rows, {"mine": rows}):
        refused(
            tmp_path,
            f"lr_scheduler_type='{kind}': expected linear",
            "public data",
            settings={"lr_scheduler_type": kind, **TESTED},
            train_dataset=rows,
            eval_dataset=evaluated,
        )


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=1.0, momentum=0.5)


MADE = {
    "plateau": lambda o: schedules.ReduceLROnPlateau(o, patience=0),
    "greedy": lambda o: GreedyLR(o, patience=0, smooth=True),
    "sequential": lambda o: schedules.SequentialLR(
        o, [schedules.ConstantLR(o, 0.1, 3), schedules.ExponentialLR(o, 0.9)], [2]
    ),
    "chained": lambda o: schedules.ChainedScheduler([schedules.ConstantLR(o, 0.1, 3), schedules.ExponentialLR(o, 0.9)]),
    "one cycle": lambda o: schedules.OneCycleLR(o, 1.0, 20),
    "cyclic": lambda o: schedules.CyclicLR(o, 0.1, 1.0, step_size_up=3),
    "steps": lambda o: schedules.MultiStepLR(o, [2, 5, 5]),
    "restarts": lambda o: schedules.CosineAnnealingWarmRestarts(o, 3),
    "lambda": lambda o: schedules.LambdaLR(o, lambda k: 0.9**k),
    "swa": lambda o: torch.optim.swa_utils.SWALR(o, 0.05, 3),
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_kept_of_a_schedule_is_all_that_it_goes_on_from(name):
    rates = []
    ours, others = optimizer(), optimizer()
    first, second = MADE[name](ours), MADE[name](others)
    metrics = [math.cos(k) for k in range(9)] if name in ("plateau", "greedy") else [None] * 9

    def step(schedule, of, k):
        of.step()
        schedule.step(*([] if metrics[k] is None else [metrics[k]]))

    for k in range(4):
        step(first, ours, k)
    kept = json.loads(json.dumps(kept_state(first), allow_nan=False))
    others.load_state_dict(ours.state_dict())
    load_state(second, kept)
    for k in range(4, 9):
        step(first, ours, k)
        step(second, others, k)
        rates.append((ours.param_groups[0]["lr"], others.param_groups[0]["lr"]))
    assert all(float(a) == float(b) for a, b in rates), rates


class Odd:
    def __init__(self, **state):
        self.state = state

    def state_dict(self):
        return dict(self.state)

    def load_state_dict(self, state):
        if "best" not in state:
            raise KeyError("best")
        self.state = state


def test_numbers_that_json_has_not_are_kept_and_functions_are_not():
    state = {"best": -math.inf, "window": deque([1.0, 2.0]), "at": {3: (1, math.nan)}, "lr": torch.tensor(0.5)}
    plain = json.loads(json.dumps(kept_state(Odd(**state, call=print, deep=[print])), allow_nan=False))
    assert plain.keys() == state.keys()
    again = Odd(best=0, window=deque(), at={3: None, 4: print}, lr=torch.tensor(0.0), call=len, deep=[len])
    load_state(again, plain)
    assert (again.state["best"], again.state["window"], again.state["call"]) == (-math.inf, deque([1.0, 2.0]), len)
    assert again.state["at"][3][0] == 1
    assert math.isnan(again.state["at"][3][1])
    assert again.state["at"][4] is print
    assert again.state["lr"].item() == 0.5
    with pytest.raises(InvalidArgument, match=r"resume_from_checkpoint='Odd'.*'best'"):
        load_state(Odd(), {})
