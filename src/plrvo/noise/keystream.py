"""Random bits that nobody can predict: AES-256 in counter mode, keyed by the operating system.

A keystream is cut into numbered streams of 64 GB less two blocks. Stream j begins at the counter block (j, 2), so that
no two streams overlap, and each can be written by a thread of its own: what is drawn depends on the key and on how much
was drawn before, not on the number of threads.

It is also what Galois/counter mode encrypts with, under the nonce j and zeros, whose blocks are counted from 2. On
processors with ciphers in vectors OpenSSL computes that mode two and a half times as fast as counter mode alone, its
unused tag included. Both give the same bits.

The key never leaves the object: it is not printed, not pickled and not written to checkpoints. Whoever had it could
subtract the noise, past and future. A run that is resumed draws a fresh one, which is as good as the old one; the
resumed run is then not the very run that was interrupted.

There are three kinds, which differ in where the key comes from and in what happens after a fork, when parent and child
hold the same object:

- `Keystream()`: the operating system gives the key. A child takes a fresh one at its first draw.
- `Keystream.from_shared_key(key)`: the operating system gave the key to one process, which sent it to others, so that
  they draw the same. It is secret; a forked child, which nobody has told what to draw, raises.
- `Keystream(key)`, `Keystream.from_seed(...)`: *fixed*, for repeatable runs, in a child as in its parent. Whoever knows
  the key or the seed knows the noise: such a run is not private.

A copy of a whole virtual machine is not noticed: machines that go on from one snapshot draw the same.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plrvo.noise import processor
from plrvo.validate import InvalidArgument, installing

Words = NDArray[np.uint64]

_KEY_BYTES = 32
_FIRST = 2  # blocks 0 and 1 of a nonce are for the tag of Galois/counter mode
_ZEROS = bytes(1 << 18)  # what is encrypted: the ciphertext of zeros is the keystream itself
_HANDING_OUT = threading.Lock()  # two threads never get the same stream


class _Forks:
    """How many forks lie between the start of Python and this process: process numbers alone may come again."""

    count = 0


def _in_child() -> None:
    _Forks.count += 1
    _HANDING_OUT.release()


if hasattr(os, "register_at_fork"):  # a fork waits until nobody holds the lock, which no one in a child would release
    os.register_at_fork(before=_HANDING_OUT.acquire, after_in_parent=_HANDING_OUT.release, after_in_child=_in_child)


def this_process() -> tuple[int, int]:
    """Tells this process from all others, from its parent and its children too."""
    return os.getpid(), _Forks.count


class Keystream:
    """Hands out streams of random words. Needs the package `cryptography`."""

    def __init__(self, key: bytes | None = None) -> None:
        _ciphers()
        self._key = os.urandom(_KEY_BYTES) if key is None else _checked(key)
        self.fixed = key is not None  # whoever knows the key knows the noise
        self.position = 0  # streams handed out so far
        self._shared = False
        self._process = this_process()

    @staticmethod
    def from_seed(seed: int, purpose: str) -> Keystream:
        """A fixed key made from a seed and a name, so that one seed gives unrelated streams for noise and batches."""
        import hashlib

        return Keystream(hashlib.sha256(f"plrvo {purpose} {seed}".encode()).digest())

    @staticmethod
    def from_shared_key(key: bytes) -> Keystream:
        """A keystream that several processes hold, of 32 secret bytes that one of them had from `os.urandom`."""
        keystream = Keystream(_checked(key))
        keystream.fixed, keystream._shared = False, True
        return keystream

    def streams(self, count: int) -> list[Stream]:
        """The next `count` streams, which nobody else will get."""
        with _HANDING_OUT:
            self._follow_fork()
            first, self.position = self.position, self.position + count
            key = self._key
        return [Stream(key, first + i) for i in range(count)]

    def beforehand(self) -> Keystream:
        """Another that hands out what this one will: for nothing that is used without `claim`."""
        with _HANDING_OUT:
            self._follow_fork()
            other = Keystream(self._key)
            other.position = self.position
        return other

    def claim(self, first: int, other: Keystream) -> bool:
        """Take over what `beforehand` has handed out from `first` on; False if this one stands elsewhere by now.

        Streams that were handed out here in between, or skipped, are never handed out again: nor are those of `other`.
        """
        with _HANDING_OUT:
            self._follow_fork()
            if self.position != first or self._key != other._key:
                return False
            self.position = other.position
            return True

    def _follow_fork(self) -> None:
        """In a child that holds its parent's keystream: part from it, unless repetition is what was asked for."""
        process = this_process()
        if process == self._process or self.fixed:
            return
        if self._shared:
            raise RuntimeError("a forked process holds its parent's shared Keystream: make one in each process")
        self._key, self._process = os.urandom(_KEY_BYTES), process

    @property
    def fingerprint(self) -> bytes:
        """A digest of a fixed key, by which processes can tell whether they hold the same."""
        import hashlib

        return hashlib.sha256(b"plrvo fingerprint" + self._key).digest() if self.fixed else b""

    def words(self, count: int) -> Words:
        """So many words, from a stream of their own."""
        (stream,) = self.streams(1)
        return stream.words(count)

    def skip_to(self, position: int) -> None:
        """Go on where a run of the same fixed key stopped; never back, which would repeat noise."""
        with _HANDING_OUT:
            self.position = max(self.position, position)

    def __repr__(self) -> str:
        return f"Keystream(position={self.position}, fixed={self.fixed})"

    def __reduce__(self) -> Any:
        raise TypeError("a Keystream is not pickled or copied: the copy would repeat its noise")


class Stream:
    """One numbered stream, read from its beginning."""

    def __init__(self, key: bytes, number: int) -> None:
        cipher, algorithms, modes = _ciphers()
        nonce = number.to_bytes(8, "big") + bytes(4)
        mode = modes.GCM(nonce) if _has_ciphers_in_vectors() else modes.CTR(nonce + _FIRST.to_bytes(4, "big"))
        self._encryptor = cipher(algorithms.AES(key), mode).encryptor()

    def words(self, count: int) -> Words:
        """The next words, as unsigned 64-bit numbers."""
        out = np.empty(count + 2, np.uint64)  # the cipher wants room for one block more
        self.fill(out)
        return out[:count]

    def fill(self, buffer: Words) -> None:
        """Write the next `len(buffer) - 2` words to the front of a buffer; what the last two hold means nothing."""
        into, size = buffer.data.cast("B"), 8 * (len(buffer) - 2)
        for start in range(0, size, len(_ZEROS)):
            part = memoryview(_ZEROS)[: min(len(_ZEROS), size - start)]
            self._encryptor.update_into(part, into[start:])


def _checked(key: bytes) -> bytes:
    if len(key) != _KEY_BYTES:
        raise InvalidArgument("key", "...", f"{_KEY_BYTES} bytes, or None to ask the operating system")
    return key


def _ciphers() -> tuple[Any, Any, Any]:
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    except ImportError:
        raise InvalidArgument(
            "cryptography", None, f"the package cryptography, which noise is drawn with: {installing('secure')}"
        ) from None
    return Cipher, algorithms, modes


def _has_ciphers_in_vectors() -> bool:
    return processor.has("VAES") and processor.has("AVX512_SKX")
