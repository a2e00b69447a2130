"""Noise that is begun ahead is the noise that would have been added without it, and is used once."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from plrvo.noise import GammaPLRV, Gaussian, GridNoise, Keystream, Laplace, Noise, ahead, spans

torch = pytest.importorskip("torch")

SIZES = [3, spans.SPAN - 2, 2 * spans.SPAN + 5, 1, 100_000, 200_000]
EVERY = [Laplace(0.5), GammaPLRV(3.0, 0.5), Gaussian(2.0), replace(GammaPLRV(3.0, 0.5), shared=True)]


@pytest.fixture(autouse=True)
def a_core_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "is_worth_it", lambda rows: True)
    monkeypatch.setattr("plrvo.noise.sampling.is_worth_it", lambda rows: True)


def buffers(*dtypes: Any) -> list[Any]:
    return [torch.arange(n, dtype=dtypes[i % len(dtypes)]) / n for i, n in enumerate(SIZES)]


def added(noise: Noise, sums: list[Any], keystream: Keystream, begun: Any = None) -> list[Any]:
    noise.add_to(sums, keystream, begun)
    return sums


def same(one: list[Any], other: list[Any]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("most", [0, spans.SPAN + 1, ahead.MOST])
@pytest.mark.parametrize("dtypes", [(torch.float32,), (torch.float32, torch.float64), (torch.bfloat16,)], ids=str)
@pytest.mark.parametrize("noise", EVERY, ids=repr)
def test_the_numbers_are_those_of_a_draw_that_was_not_begun(
    noise: Noise, dtypes: tuple[Any, ...], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "MOST", most)
    without, keystream = Keystream.from_seed(1, "test"), Keystream.from_seed(1, "test")
    for _ in range(3):
        expected = added(noise, buffers(*dtypes), without)
        begun = noise.begin(buffers(*dtypes), keystream)
        assert begun is not None
        assert same(added(noise, buffers(*dtypes), keystream, begun), expected)
        assert keystream.position == without.position


def test_another_noise_other_sizes_and_other_types_are_drawn_afresh() -> None:
    """Above all a schedule's narrower noise must not be taken for the wider one that follows."""
    noise = Gaussian(2.0)
    zeros = [torch.zeros(1000)]
    for other, sums in [
        (Gaussian(4.0), zeros),
        (noise, [torch.zeros(1001)]),
        (noise, [torch.zeros(500), torch.zeros(500)]),
        (noise, [torch.zeros(1000, dtype=torch.float64)]),
    ]:
        keystream, without = Keystream.from_seed(1, "test"), Keystream.from_seed(1, "test")
        begun = noise.begin(zeros, keystream)
        expected = added(other, [torch.zeros_like(t) for t in sums], without)
        assert same(added(other, [torch.zeros_like(t) for t in sums], keystream, begun), expected)


def test_what_was_begun_serves_once() -> None:
    noise, keystream = Laplace(1.0), Keystream.from_seed(1, "test")
    begun = noise.begin([torch.zeros(1000)], keystream)
    first, again = (added(noise, [torch.zeros(1000)], keystream, begun) for _ in range(2))
    assert not same(first, again)


def test_what_was_begun_is_for_where_the_keystream_stood() -> None:
    """Whatever came in between, numbers are those of a run that begins nothing, and none comes twice."""
    noise, zeros = Laplace(1.0), [torch.zeros(1000)]

    def found(between: str, begins: bool) -> list[Any]:
        keystream, drawn = Keystream.from_seed(3, "test"), list[Any]()
        begun = noise.begin(zeros, keystream) if begins else None
        if between == "a draw":
            drawn += added(noise, [torch.zeros(1000)], keystream)
        elif between == "words":
            keystream.words(5)
        elif between == "a checkpoint":
            keystream.skip_to(7)
        drawn += added(noise, [torch.zeros(1000)], keystream, begun)
        drawn += added(noise, [torch.zeros(1000)], keystream, begun)  # which is of the draw before
        return [*drawn, torch.tensor(float(keystream.position))]

    for between in ("nothing", "a draw", "words", "a checkpoint"):
        *drawn, end = found(between, True)
        assert same([*drawn, end], found(between, False)), between
        assert len({t.numpy().tobytes() for t in drawn}) == len(drawn)


def test_a_draw_of_one_keystream_is_not_taken_for_anothers() -> None:
    noise, zeros = Laplace(1.0), [torch.zeros(1000)]
    one, other, without = (Keystream.from_seed(seed, "test") for seed in (1, 2, 2))
    begun = noise.begin(zeros, one)
    expected = added(noise, [torch.zeros(1000)], without)
    assert same(added(noise, [torch.zeros(1000)], other, begun), expected)
    assert (one.position, other.position) == (0, without.position)


def test_where_no_thread_is_to_be_had_the_caller_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a thread that trains on when Python ends."""

    def none_left() -> Any:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    noise, keystream, without = Laplace(1.0), Keystream.from_seed(1, "test"), Keystream.from_seed(1, "test")
    expected = added(noise, buffers(torch.float32), without)
    monkeypatch.setattr(ahead, "_worker", none_left)
    begun = noise.begin(buffers(torch.float32), keystream)
    assert begun is not None
    assert same(added(noise, buffers(torch.float32), keystream, begun), expected)


def test_a_child_draws_noise_of_its_own() -> None:
    noise, keystream = Laplace(1.0), Keystream()
    begun = noise.begin([torch.zeros(8)], keystream)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, added(noise, [torch.zeros(8)], keystream, begun)[0].numpy().tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = np.frombuffer(os.read(reading, 32), np.float32)
    assert len(theirs) == 8
    assert not np.isin(theirs, added(noise, [torch.zeros(8)], keystream, begun)[0].numpy()).any()


def test_integers_other_generators_and_noise_with_a_way_of_its_own_are_not_begun() -> None:
    class Own(Gaussian):
        def add_to(self, buffers: Any, generator: Any) -> None:  # type: ignore[override]
            raise NotImplementedError

    assert GridNoise(Laplace(1.0), 0.01).begin([torch.zeros(8, dtype=torch.int64)], Keystream()) is None
    assert Own(1.0).begin([torch.zeros(8)], Keystream()) is None
    assert Laplace(1.0).begin([torch.zeros(8)], torch.Generator()) is None


def test_nothing_is_begun_where_torch_has_every_core_or_there_is_little_to_draw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    cores = len(os.sched_getaffinity(0))
    many, few = [(ahead.FEWEST, np.dtype(np.float32))], [(8, np.dtype(np.float32))]
    monkeypatch.setattr(ahead, "available_threads", lambda: cores)
    assert not ahead.is_worth_it(many)
    monkeypatch.setattr(ahead, "available_threads", lambda: cores - 1)
    assert ahead.is_worth_it(many)
    assert not ahead.is_worth_it(few)


def test_an_error_in_the_thread_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    where = []

    def broken(self: Any, *_: Any) -> Any:
        where.append(threading.current_thread())
        raise MemoryError("no room")

    noise, keystream = Laplace(1.0), Keystream()
    monkeypatch.setattr(ahead.Ahead, "_draw", broken)
    begun = noise.begin([torch.zeros(1000)], keystream)
    while not where:
        pass
    with pytest.raises(MemoryError, match="no room"):
        added(noise, [torch.zeros(1000)], keystream, begun)
    assert where[0] is not threading.current_thread()


def test_two_draws_under_way_do_not_share_memory() -> None:
    noise = Laplace(1.0)
    for turn in range(3):
        without, keystreams = Keystream.from_seed(turn, "test"), [Keystream.from_seed(turn, "test") for _ in range(2)]
        expected = added(noise, buffers(torch.float32), without)
        begun = [noise.begin(buffers(torch.float32), keystream) for keystream in keystreams]
        for one, keystream in zip(begun, keystreams, strict=True):
            assert same(added(noise, buffers(torch.float32), keystream, one), expected)
