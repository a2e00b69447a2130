"""Blocks: the same scores in any order, and after any interruption."""

import numpy as np
import pytest

import plrvo
from plrvo.audit import audit_mechanism
from plrvo.audit.blocks import Block, joblib_engine, run_blocks, threads
from plrvo.validate import InvalidArgument

WORK = plrvo.Workload(sample_rate=0.1, steps=5, clip=1.0, dimension=20)


def draw(block: Block) -> np.ndarray:
    return block.generator(7).random(block.size)


class Stop(Exception):
    """What a user's interrupt does."""


def stop_after(count: int):
    def progress(done: int, total: int) -> None:
        if done >= count:
            raise Stop

    return progress


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    state = tmp_path / "state.npz"
    whole = run_blocks(draw, 95, 10, threads(1), settings={"seed": 7})
    for count in (25, 60, 120):
        with pytest.raises(Stop):
            run_blocks(draw, 95, 10, threads(2), settings={"seed": 7}, state=state, progress=stop_after(count))
    calls = []
    resumed = run_blocks(
        lambda block: calls.append(block) or draw(block), 95, 10, threads(1), settings={"seed": 7}, state=state
    )
    assert np.array_equal(resumed, whole)
    assert 0 < len(calls) < 20
    assert not [file for file in tmp_path.iterdir() if file != state]


def test_an_interrupted_audit_resumes_to_the_same_verdict(tmp_path):
    state = tmp_path / "state.npz"
    arguments = {"claim": 1.0, "trials": 80_000, "seed": 3}
    whole = audit_mechanism(plrvo.Laplace(1.0), WORK, 1e-5, **arguments)
    with pytest.raises(Stop):
        audit_mechanism(plrvo.Laplace(1.0), WORK, 1e-5, **arguments, state=state, progress=stop_after(20_000))
    assert audit_mechanism(plrvo.Laplace(1.0), WORK, 1e-5, **arguments, state=state) == whole
    with pytest.raises(InvalidArgument, match="an audit with the same noise"):
        audit_mechanism(plrvo.Laplace(2.0), WORK, 1e-5, **arguments, state=state)


@pytest.mark.parametrize("content", [b"", b"not a state", b"PK\x03\x04broken"])
def test_a_file_that_is_no_state_is_refused(tmp_path, content):
    state = tmp_path / "state.npz"
    state.write_bytes(content)
    with pytest.raises(InvalidArgument, match="state"):
        run_blocks(draw, 10, 5, threads(1), settings={}, state=state)


@pytest.mark.parametrize("engine", ["threading", "loky", "dask"])
def test_joblib_engines_give_the_same_scores(engine):
    whole = run_blocks(draw, 40, 10, threads(1), settings={})
    assert np.array_equal(run_blocks(draw, 40, 10, joblib_engine(engine, 2), settings={}), whole)


@pytest.mark.parametrize("engine", ["ray", "dask"])
def test_cluster_engines_that_are_not_installed_are_named(engine, monkeypatch):
    import importlib

    real = importlib.import_module

    def absent(name: str, *rest: str):
        if name.split(".")[0] in ("ray", "distributed"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(InvalidArgument, match="pip install"):
        run_blocks(draw, 40, 10, joblib_engine(engine, 2), settings={})


def test_unknown_engines_are_refused():
    with pytest.raises(InvalidArgument, match="engine='spark'"):
        run_blocks(draw, 40, 10, joblib_engine("spark", 2), settings={})


def test_an_error_in_a_block_reaches_the_caller():
    def fail(block: Block) -> np.ndarray:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_blocks(fail, 10, 5, threads(2), settings={})
