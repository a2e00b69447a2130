"""Runs of both worlds in blocks, each with a random stream of its own: in any order, on any worker, and resumable.

A block's generator is seeded by (seed, world, block), so that the scores do not depend on who computed them, nor on
where an earlier run was interrupted.
"""

from __future__ import annotations

import importlib
import io
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from plrvo import validate
from plrvo.audit.arrays import read_arrays
from plrvo.files import locked, parse_json, write_bytes
from plrvo.validate import InvalidArgument

Array = NDArray[np.float64]
Item = TypeVar("Item")
Result = TypeVar("Result")
_SAVE_EVERY = 10.0  # seconds between writes of the state file


@dataclass(frozen=True)
class Block:
    """Runs `start` to `stop` of one world: 0 without the canary, 1 with it."""

    world: int
    index: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    def generator(self, seed: int) -> np.random.Generator:
        return np.random.default_rng([seed, self.world, self.index])


Work = Callable[[Block], Array]
Engine = Callable[[Work, Sequence[Block]], Iterator[tuple[Block, Array]]]
Progress = Callable[[int, int], None]  # runs done, runs in all


def run_blocks(
    work: Work,
    per_world: int,
    block_size: int,
    engine: Engine,
    *,
    settings: Mapping[str, Any],
    state: Path | None = None,
    progress: Progress | None = None,
) -> Array:
    """The scores of `per_world` runs of each world, shape (2, per_world).

    With `state`, finished blocks are kept in that file (written whole or not at all) and not computed again. A state
    of other settings is refused, and so is one that another process works on.
    """
    with nullcontext() if state is None else locked(state.with_name(f".{state.name}.lock"), "state"):
        return _run_blocks(work, per_world, block_size, engine, settings, state, progress)


def _run_blocks(
    work: Work,
    per_world: int,
    block_size: int,
    engine: Engine,
    settings: Mapping[str, Any],
    state: Path | None,
    progress: Progress | None,
) -> Array:
    settings = {**settings, "per_world": per_world, "block_size": block_size}
    scores = np.full((2, per_world), np.nan)
    if state is not None and state.exists():
        scores = _load(state, settings)
    blocks = [
        Block(world, index, start, min(start + block_size, per_world))
        for index, start in enumerate(range(0, per_world, block_size))
        for world in (0, 1)
    ]
    missing = [block for block in blocks if np.isnan(scores[block.world, block.start : block.stop]).any()]
    saved = time.monotonic()
    try:
        for block, values in engine(work, missing):
            scores[block.world, block.start : block.stop] = values
            if state is not None and time.monotonic() - saved > _SAVE_EVERY:
                _save(state, settings, scores)
                saved = time.monotonic()
            if progress is not None:
                progress(int(np.sum(~np.isnan(scores))), 2 * per_world)
    finally:
        if state is not None and missing:
            _save(state, settings, scores)
    return scores


def threads(jobs: int) -> Engine:
    """Threads of this process, for work that spends its time inside NumPy."""
    validate.positive_integer(jobs=jobs)

    def run(work: Work, blocks: Sequence[Block]) -> Iterator[tuple[Block, Array]]:
        with ThreadPoolExecutor(jobs) as pool:
            waiting = iter(blocks)
            running: dict[Future[Array], Block] = {}
            while True:
                while len(running) < 2 * jobs and (block := next(waiting, None)) is not None:
                    running[pool.submit(work, block)] = block
                if not running:
                    return
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield running.pop(future), future.result()

    return run


def joblib_engine(name: str, jobs: int) -> Engine:
    """joblib with one of its engines: `loky` (processes of this machine), `threading`, `dask` or `ray` (a cluster).

    Dask uses the `distributed.Client` that is current, or starts one here; Ray the cluster that `ray.init` joined, or
    one that it starts.
    """
    validate.positive_integer(jobs=jobs)
    return lambda work, blocks: in_parallel(name, jobs, work, blocks)


def in_parallel(
    name: str, jobs: int, work: Callable[[Item], Result], items: Sequence[Item]
) -> Iterator[tuple[Item, Result]]:
    """Every item with what `work` makes of it, as they are done, by one of joblib's engines."""
    joblib = _joblib(name)
    task = joblib.delayed(_labelled)
    with _cluster(name, jobs), joblib.parallel_config(backend=name, n_jobs=jobs):
        if name != "ray":
            yield from joblib.Parallel(return_as="generator_unordered")(task(work, item) for item in items)
            return
        # Ray's engine gives its results all at once: ask in rounds, so that finished ones can be kept.
        for start in range(0, len(items), 4 * jobs):
            yield from joblib.Parallel()(task(work, item) for item in items[start : start + 4 * jobs])


def _labelled(work: Callable[[Item], Result], item: Item) -> tuple[Item, Result]:
    return item, work(item)


def _joblib(name: str) -> Any:
    packages = {"loky": "joblib", "threading": "joblib", "dask": "distributed", "ray": "ray"}
    if name not in packages:
        raise InvalidArgument("engine", name, "one of " + ", ".join(packages))
    try:
        joblib = importlib.import_module("joblib")
        if name == "dask":
            importlib.import_module("distributed")
        if name == "ray":
            importlib.import_module("ray.util.joblib").register_ray()
    except ImportError:
        raise InvalidArgument("engine", name, f"an engine that is installed: pip install {packages[name]}") from None
    return joblib


@contextmanager
def _cluster(name: str, jobs: int) -> Iterator[None]:
    """Dask's cluster of the caller, or one of `jobs` processes on this machine for as long as it is needed."""
    if name != "dask":
        yield
        return
    distributed: Any = importlib.import_module("distributed")
    # Whatever else is imported may have turned the root logger on, and Dask tells it of every connection.
    logging.getLogger("distributed").setLevel(logging.WARNING)
    try:
        distributed.get_client()
    except ValueError:
        with distributed.Client(n_workers=jobs, threads_per_worker=1, dashboard_address=None):
            yield
    else:
        yield


def _save(path: Path, settings: Mapping[str, Any], scores: Array) -> None:
    content = io.BytesIO()
    np.savez(content, settings=np.array(json.dumps(settings, sort_keys=True)), scores=scores)
    write_bytes(path, content.getvalue())


def _load(path: Path, settings: Mapping[str, Any]) -> Array:
    expected = "a state file of this audit, or none"
    arrays = read_arrays(path, "state", expected)
    try:
        known, scores = parse_json(str(arrays["settings"])), np.array(arrays["scores"], dtype=float)
    except (ValueError, KeyError, TypeError):
        raise InvalidArgument("state", str(path), expected) from None
    if not isinstance(known, dict):
        raise InvalidArgument("state", str(path), expected)
    wanted = json.loads(json.dumps(settings))
    different = sorted(key for key in wanted.keys() | known.keys() if wanted.get(key) != known.get(key))
    if different or scores.shape != (2, settings["per_world"]):
        raise InvalidArgument("state", str(path), f"the state of an audit with the same {', '.join(different)}")
    return scores
