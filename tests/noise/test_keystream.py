"""The keystream is AES in counter mode, its streams do not overlap, and its key stays inside."""

import copy
import os
import pickle
import sys

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from plrvo.noise import Keystream
from plrvo.validate import InvalidArgument

KEY = bytes(range(32))


def blocks(first: int, count: int) -> np.ndarray:
    """AES of the counter itself, block by block: counter mode written out."""
    encryptor = Cipher(algorithms.AES(KEY), modes.ECB()).encryptor()
    text = b"".join((first + i).to_bytes(16, "big") for i in range(count))
    return np.frombuffer(encryptor.update(text), np.uint64)


def test_stream_j_is_the_cipher_of_the_counters_from_j_times_2_to_the_64() -> None:
    one, other = Keystream(KEY).streams(2)
    assert np.array_equal(one.words(6), blocks(0, 3))
    assert np.array_equal(other.words(40_000), blocks(1 << 64, 20_000))


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


def test_a_forked_process_does_not_repeat_its_parents_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    keystream, parent = Keystream(), os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    with pytest.raises(RuntimeError, match="in each process"):
        keystream.words(1)


def test_its_text_does_not_show_the_key() -> None:
    assert repr(Keystream(KEY)) == "Keystream(position=0, fixed=True)"


def test_a_key_of_another_length_is_refused_without_being_shown() -> None:
    with pytest.raises(InvalidArgument, match=r"key='\.\.\.'.*32 bytes"):
        Keystream(b"secret")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
    with pytest.raises(InvalidArgument, match=r"pip install 'plrvo\[secure\]'"):
        Keystream()
