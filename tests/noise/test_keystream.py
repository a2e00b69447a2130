"""The keystream is AES in counter mode, its streams do not overlap, and its key stays inside."""

import copy
import multiprocessing
import os
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from plrvo.noise import Gaussian, Keystream, keystream
from plrvo.validate import InvalidArgument

KEY = bytes(range(32))


def blocks(first: int, count: int) -> np.ndarray:
    """AES of the counter itself, block by block: counter mode written out."""
    encryptor = Cipher(algorithms.AES(KEY), modes.ECB()).encryptor()
    text = b"".join((first + i).to_bytes(16, "big") for i in range(count))
    return np.frombuffer(encryptor.update(text), np.uint64)


@pytest.mark.parametrize("in_vectors", [False, True])
def test_stream_j_is_the_cipher_of_the_counters_from_j_times_2_to_the_64_and_2(in_vectors, monkeypatch) -> None:
    """Whichever mode computes it, in whatever portions: the same bits on every processor."""
    monkeypatch.setattr(keystream, "_has_ciphers_in_vectors", lambda: in_vectors)
    one, other = Keystream(KEY).streams(2)
    assert np.array_equal(one.words(6), blocks(2, 3))
    drawn = np.concatenate([other.words(n) for n in (1, 70_000, 5, 9_994)])
    assert np.array_equal(drawn, blocks((1 << 64) + 2, 40_000))


def test_a_stream_goes_on_where_it_was() -> None:
    (parts,), (whole,) = Keystream(KEY).streams(1), Keystream(KEY).streams(1)
    drawn = np.concatenate([parts.words(n) for n in (1, 3, 1 << 16, 7)])
    assert np.array_equal(drawn, whole.words(len(drawn)))


def test_streams_are_handed_out_once() -> None:
    keystream = Keystream(KEY)
    drawn = np.concatenate([keystream.words(50) for _ in range(4)])
    assert len(np.unique(drawn)) == 200
    assert keystream.position == 4


def test_the_operating_system_gives_a_new_key_each_time() -> None:
    one, other = Keystream(), Keystream()
    assert not one.fixed
    assert not np.array_equal(one.words(4), other.words(4))


def test_a_seed_gives_the_same_key_again_and_another_for_another_purpose() -> None:
    assert np.array_equal(Keystream.from_seed(1, "noise").words(4), Keystream.from_seed(1, "noise").words(4))
    assert not np.array_equal(Keystream.from_seed(1, "noise").words(4), Keystream.from_seed(1, "batches").words(4))
    assert Keystream.from_seed(1, "noise").fixed


def test_it_never_goes_back() -> None:
    keystream = Keystream(KEY)
    keystream.streams(5)
    keystream.skip_to(3)
    assert keystream.position == 5
    keystream.skip_to(9)
    assert keystream.position == 9


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
def test_it_is_not_copied(take) -> None:
    with pytest.raises(TypeError, match="repeat its noise"):
        take(Keystream(KEY))


def first_words_in_children(keystream: Keystream, children: int = 2) -> list[str]:
    """What each of some forked processes draws, or says when it cannot; plain fork, without multiprocessing."""
    found = []
    for _ in range(children):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                said = repr(keystream.words(4).tolist())
            except RuntimeError as problem:
                said = str(problem)
            os.write(writing, said.encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            found.append(pipe.read())
        os.waitpid(child, 0)
    return found


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
# Threads of other tests may live on; the children here do nothing but draw and leave.
alone = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@forks
@alone
def test_forked_children_share_noise_neither_with_each_other_nor_with_their_parent() -> None:
    keystream = Keystream()
    keystream.words(4)
    one, other = first_words_in_children(keystream)
    assert len({one, other, repr(keystream.words(4).tolist())}) == 3


@forks
@alone
def test_a_child_keeps_its_key_until_the_next_fork() -> None:
    keystream = Keystream()
    child = os.fork()
    if child == 0:
        keystream.words(1)
        key, before = keystream._key, keystream.position
        keystream.words(1)
        same = keystream._key is key and keystream.position == before + 1
        if os.fork() == 0:
            keystream.words(1)
            os._exit(0 if keystream._key != key else 1)
        _, status = os.wait()
        os._exit(0 if same and os.waitstatus_to_exitcode(status) == 0 else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@forks
@alone
def test_children_of_multiprocessing_add_different_noise() -> None:
    """The noise itself, of processes that multiprocessing forks."""
    keystream, context = Keystream(), multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    processes = [context.Process(target=lambda: queue.put(drawn(keystream))) for _ in range(2)]
    for process in processes:
        process.start()
    found = [queue.get() for _ in processes]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert len({*found, drawn(keystream)}) == 3


def drawn(keystream: Keystream) -> tuple[float, ...]:
    return tuple(Gaussian(1.0).sample(5, keystream).tolist())


@forks
@alone
def test_a_fixed_key_repeats_in_a_child_and_a_shared_one_refuses() -> None:
    fixed = Keystream(KEY)
    assert first_words_in_children(fixed) == [repr(Keystream(KEY).words(4).tolist())] * 2
    shared = Keystream.from_shared_key(KEY)
    assert all("in each process" in said for said in first_words_in_children(shared))
    assert np.array_equal(shared.words(4), Keystream(KEY).words(4))  # its own process goes on


def test_a_process_number_that_changed_without_a_hook_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    keystream, parent = Keystream(), os.getpid()
    key = keystream._key
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    keystream.words(1)
    assert keystream._key != key


def test_a_shared_key_is_secret() -> None:
    shared = Keystream.from_shared_key(KEY)
    assert not shared.fixed
    with pytest.raises(InvalidArgument, match="32 bytes"):
        Keystream.from_shared_key(b"short")


def test_threads_get_different_streams() -> None:
    """Without a lock two threads now and then read the same position."""
    keystream, interval = Keystream(KEY), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: int(keystream.words(1)[0]), range(2000)))
    finally:
        sys.setswitchinterval(interval)
    assert len(set(found)) == 2000
    assert keystream.position == 2000


def test_its_text_does_not_show_the_key() -> None:
    assert repr(Keystream(KEY)) == "Keystream(position=0, fixed=True)"


def test_a_key_of_another_length_is_refused_without_being_shown() -> None:
    with pytest.raises(InvalidArgument, match=r"key='\.\.\.'.*32 bytes"):
        Keystream(b"secret")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
    with pytest.raises(InvalidArgument, match=r"pip install 'plrvo\[secure\]'"):
        Keystream()
