"""Private training learns: Fashion-MNIST, the paper's CNN, Laplace noise with the score, effective sigma 4.17."""

import pytest

import plrvo
from plrvo.tasks import experiment
from plrvo.tasks.catalog import Request, prepare
from plrvo.tasks.settings import Settings, Streams

CLIP, SIGMA = 0.1, 4.17


def accuracy_after(steps: int, data_dir, out) -> float:
    streams = Streams.from_seed(0)
    preset = prepare(Request("fashion-mnist", "cnn", data_dir), streams.weights)
    work = plrvo.Workload(sample_rate=0.01, steps=steps, clip=CLIP, dimension=26_010)
    plan = plrvo.Plan.certify(plrvo.Laplace(SIGMA * CLIP), work, 1e-5)
    settings = Settings(
        out=out,
        learning_rate=0.1 / CLIP,
        momentum=0.9,
        postprocess="score",
        evaluate_every=steps,
        checkpoint_every=steps,
        seed=0,
    )
    return experiment.run_private(preset.task, preset.module, plan, settings, streams)["run"]["metrics"]["accuracy"]


@pytest.mark.data
def test_forty_steps_reach_the_accuracy_window(data_dir, tmp_path):
    """One seed, deterministic on one machine; the window allows for another machine's arithmetic. Chance is 0.10."""
    assert 0.40 < accuracy_after(40, data_dir, tmp_path) < 0.75


@pytest.mark.data
@pytest.mark.slow
def test_three_hundred_steps_reach_the_accuracy_window(data_dir, tmp_path):
    assert 0.66 < accuracy_after(300, data_dir, tmp_path) < 0.76
