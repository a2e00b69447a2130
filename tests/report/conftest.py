"""Real runs of a few steps, made once for all tests of the page."""

import os
import signal
from pathlib import Path

import pytest
from tests.report.samples import reproduction, train

import plrvo
from plrvo.tasks import catalog
from plrvo.tasks.experiment import run_private
from plrvo.tasks.settings import Settings, Streams
from plrvo.training.loop import Interrupted


@pytest.fixture(scope="session")
def gamma_run(tmp_path_factory) -> Path:
    """With a seed, an audit, and a published figure that is refuted."""
    folder = tmp_path_factory.mktemp("runs") / "gamma"
    return train(folder, "--noise", "gamma", "--k", "40000", "--theta", "6e-5", "--seed", "1", "--audit", "60")


@pytest.fixture(scope="session")
def gaussian_run(tmp_path_factory) -> Path:
    return train(tmp_path_factory.mktemp("runs") / "gaussian", "--noise", "gaussian", "--epsilon", "3")


@pytest.fixture(scope="session")
def plain_run(tmp_path_factory) -> Path:
    return train(tmp_path_factory.mktemp("runs") / "plain", "--noise", "none", "--seed", "1")


@pytest.fixture(scope="session")
def unfinished_run(tmp_path_factory) -> Path:
    """Stopped by Ctrl-C after a few of its steps."""
    folder = tmp_path_factory.mktemp("runs") / "unfinished"
    streams = Streams.from_seed(1)
    preset = catalog.prepare(catalog.Request("digits", "logistic", None, {}), streams.weights)
    work = plrvo.Workload(sample_rate=0.1, steps=40, clip=1.0, dimension=650)
    plan = plrvo.Plan.certify(plrvo.Laplace(2.0), work, 1e-5)

    def watch(step, steps, metrics):
        if step == 5:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        run_private(preset.task, preset.module, plan, Settings(folder, 0.3, evaluate_every=2), streams, watch)
    return folder


@pytest.fixture(scope="session")
def table(tmp_path_factory) -> Path:
    return reproduction(tmp_path_factory.mktemp("runs") / "table")
