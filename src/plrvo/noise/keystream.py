"""Random bits that nobody can predict: AES-256 in counter mode, keyed by the operating system.

A keystream is cut into numbered streams of 2^68 bytes. Stream j begins at the counter block (j, 0), so that no two
streams overlap, and each can be written by a thread of its own: what is drawn depends on the key and on how much was
drawn before, not on the number of threads.

The key never leaves the object: it is not printed, not pickled and not written to checkpoints. Whoever had it could
subtract the noise, past and future. A run that is resumed draws a fresh one, which is as good as the old one; the
resumed run is then not the very run that was interrupted. A fixed key makes runs repeatable, for tests: such a run is
not private.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plrvo.validate import InvalidArgument

Words = NDArray[np.uint64]

_KEY_BYTES = 32
_ZEROS = bytes(1 << 18)  # what is encrypted: the ciphertext of zeros is the keystream itself


class Keystream:
    """Hands out streams of random words. Needs the package `cryptography` (`pip install 'plrvo[secure]'`)."""

    def __init__(self, key: bytes | None = None) -> None:
        if key is not None and len(key) != _KEY_BYTES:
            raise InvalidArgument("key", "...", f"{_KEY_BYTES} bytes, or None to ask the operating system")
        _ciphers()
        self._key = os.urandom(_KEY_BYTES) if key is None else key
        self.fixed = key is not None  # whoever knows the key knows the noise
        self.position = 0  # streams handed out so far
        self._process = os.getpid()

    @staticmethod
    def from_seed(seed: int, purpose: str) -> Keystream:
        """A fixed key made from a seed and a name, so that one seed gives unrelated streams for noise and batches."""
        import hashlib

        return Keystream(hashlib.sha256(f"plrvo {purpose} {seed}".encode()).digest())

    def streams(self, count: int) -> list[Stream]:
        """The next `count` streams, which nobody else will get."""
        if os.getpid() != self._process:  # a forked process would draw the noise that its parent draws
            raise RuntimeError("a Keystream belongs to the process that made it: make one in each process")
        first, self.position = self.position, self.position + count
        return [Stream(self._key, first + i) for i in range(count)]

    def words(self, count: int) -> Words:
        """So many words, from a stream of their own."""
        (stream,) = self.streams(1)
        return stream.words(count)

    def skip_to(self, position: int) -> None:
        """Go on where a run of the same fixed key stopped; never back, which would repeat noise."""
        self.position = max(self.position, position)

    def __repr__(self) -> str:
        return f"Keystream(position={self.position}, fixed={self.fixed})"

    def __reduce__(self) -> Any:
        raise TypeError("a Keystream is not pickled or copied: the copy would repeat its noise")


class Stream:
    """One numbered stream, read from its beginning."""

    def __init__(self, key: bytes, number: int) -> None:
        cipher, aes, ctr = _ciphers()
        self._encryptor = cipher(aes(key), ctr(number.to_bytes(8, "big") + bytes(8))).encryptor()

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


def _ciphers() -> tuple[Any, Any, Any]:
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    except ImportError:
        raise InvalidArgument(
            "exact", True, "the package cryptography, which exact noise needs: pip install 'plrvo[secure]'"
        ) from None
    return Cipher, algorithms.AES, modes.CTR
