# SPDX-License-Identifier: Apache-2.0
"""Counter-based random words: Philox4x32-10, the same bits on any machine, in NumPy or on a device.

Word ``i`` of a stream depends on nothing but the stream's key and ``i``, so tensors can be made in any order,
in pieces, or on a GPU. Reference: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011.

All arithmetic is int64 with 32-bit values, because NumPy and torch agree on it: a 64-bit product wraps, and
its high half is recovered by a shift and a mask.
"""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

#: An int64 array of a back end (NumPy array or torch tensor); only shared operators are used on it.
Array = Any


class Arrays(Protocol):
    """The few array functions operand construction needs; the rest are operators."""

    #: Counters made at a time: small enough for a CPU cache, large enough to fill a GPU.
    chunk: int

    def arange(self, start: int, stop: int) -> Array:
        """int64 [start, stop)."""

    def constant(self, values: NDArray[Any]) -> Array:
        """A small int64 table on this back end."""

    def where(self, condition: Array, yes: Array, no: Array) -> Array:
        """Elementwise choice, broadcasting."""

    def interleave(self, words: tuple[Array, Array, Array, Array]) -> Array:
        """(n,) x 4 to (4n,): word j of counter i at 4i + j."""

    def concatenate(self, pieces: list[Array]) -> Array:
        """Join 1-D arrays."""

    def broadcast(self, array: Array, shape: tuple[int, ...]) -> Array:
        """A view or copy of ``array`` with this shape."""

    def store(self, array: Array, dtype: Any) -> Array:
        """Cast to the NumPy dtype that operands keep (contiguous)."""


class NumpyArrays:
    """:class:`Arrays` on NumPy."""

    chunk = 1 << 15

    def arange(self, start: int, stop: int) -> Array:
        return np.arange(start, stop, dtype=np.int64)

    def constant(self, values: NDArray[Any]) -> Array:
        return np.asarray(values).astype(np.int64)

    def where(self, condition: Array, yes: Array, no: Array) -> Array:
        return np.where(condition, yes, no)

    def interleave(self, words: tuple[Array, Array, Array, Array]) -> Array:
        return np.stack(words, axis=-1).reshape(-1)

    def concatenate(self, pieces: list[Array]) -> Array:
        return np.concatenate(pieces)

    def broadcast(self, array: Array, shape: tuple[int, ...]) -> Array:
        return np.broadcast_to(array, shape)

    def store(self, array: Array, dtype: Any) -> Array:
        return np.ascontiguousarray(array).astype(dtype)


def philox(counters: tuple[Array, Array, Array, Array], key: tuple[int, int]) -> tuple[Array, Array, Array, Array]:
    """Philox4x32-10 on int64 arrays of 32-bit values; returns four arrays of 32-bit words."""
    c0, c1, c2, c3 = counters
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0 = c0 * _MULTIPLIERS[0]
        p1 = c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = ((p1 >> 32) & MASK) ^ c1 ^ k0, p1 & MASK, ((p0 >> 32) & MASK) ^ c3 ^ k1, p0 & MASK
        k0, k1 = (k0 + _KEY_STEPS[0]) & MASK, (k1 + _KEY_STEPS[1]) & MASK
    return c0, c1, c2, c3


class Draw:
    """The words of one case: a stream for each tensor name."""

    def __init__(self, case_id: str, arrays: Arrays) -> None:
        self.arrays = arrays
        self._case_id = case_id

    def words(self, tensor: str, shape: tuple[int, ...]) -> Array:
        """int64 array of 32-bit words; flat index i holds word i of the stream (case id, tensor)."""
        digest = hashlib.sha256(f"{self._case_id}\n{tensor}".encode()).digest()
        key = (int.from_bytes(digest[0:4], "little"), int.from_bytes(digest[4:8], "little"))
        count = int(np.prod(shape))
        blocks = -(-count // 4)
        pieces = []
        for start in range(0, blocks, self.arrays.chunk):
            index = self.arrays.arange(start, min(start + self.arrays.chunk, blocks))
            zero = index & 0
            pieces.append(self.arrays.interleave(philox((index & MASK, index >> 32, zero, zero), key)))
        return self.arrays.concatenate(pieces)[:count].reshape(shape)
