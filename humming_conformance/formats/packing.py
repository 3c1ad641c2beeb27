# SPDX-License-Identifier: Apache-2.0
"""Dense bit packing: element k of a row occupies bits [k * bits, (k + 1) * bits) of a little-endian stream.

Bit i of the stream is bit i % 32 of word i // 32. Elements may straddle words. For packing along another
axis, swap that axis to the end first.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from humming_conformance.formats.codec import Codes
from humming_conformance.formats.errors import require_codes

WORD_BITS = 32


def _check_bits(bits: int) -> None:
    if not 1 <= bits <= 16:
        raise ValueError(f"bits per element must be 1…16, not {bits}")


def packed_words(count: int, bits: int) -> int:
    """Return how many 32-bit words hold `count` elements of `bits` bits."""
    return -(-count * bits // WORD_BITS)


def pack_bits(codes: ArrayLike, bits: int) -> NDArray[np.uint32]:
    """Pack codes (..., count) of `bits` bits (1…16) into uint32 words (..., packed_words(count, bits)).

    The last word of each row is filled up with zero bits. Raises `ValueError` for codes that are not
    integers or do not fit.
    """
    _check_bits(bits)
    array = np.asarray(codes)
    require_codes(f"{bits}-bit", array, bits)
    rows, count = array.shape[:-1], array.shape[-1]
    if bits in (1, 2, 4, 8):
        return _pack_into_bytes(array, bits)
    # 32 elements fill exactly `bits` words, so each position within such a block has one word and shift.
    blocks = -(-count // WORD_BITS)
    elements = np.zeros((*rows, blocks * WORD_BITS), dtype=np.uint32)
    elements[..., :count] = array
    elements = elements.reshape(*rows, blocks, WORD_BITS)
    words = np.zeros((*rows, blocks, bits), dtype=np.uint32)
    for position in range(WORD_BITS):
        word, shift = divmod(position * bits, WORD_BITS)
        words[..., word] |= elements[..., position] << shift
        if shift + bits > WORD_BITS:
            words[..., word + 1] |= elements[..., position] >> (WORD_BITS - shift)
    return words.reshape(*rows, blocks * bits)[..., : packed_words(count, bits)]


def _pack_into_bytes(codes: NDArray[np.integer], bits: int) -> NDArray[np.uint32]:
    """As :func:`pack_bits` for elements of which a byte holds a whole number: several times as fast."""
    *rows, count = codes.shape
    elements = np.zeros((*rows, packed_words(count, bits) * WORD_BITS // bits), dtype=np.uint8)
    elements[..., :count] = codes
    packed = elements[..., :: 8 // bits].copy()
    for position in range(1, 8 // bits):
        packed |= elements[..., position :: 8 // bits] << np.uint8(position * bits)
    return packed.view("<u4")


def unpack_bits(words: NDArray[np.uint32], bits: int, count: int) -> Codes:
    """Return the first `count` codes of each row of uint32 `words` (..., packed_words(count, bits)).

    The result (..., count) is uint8 up to 8 bits and uint16 above. Raises `ValueError` if `words` is not
    uint32 or its rows are not exactly as long as `count` elements need.
    """
    _check_bits(bits)
    if words.dtype != np.uint32:
        raise ValueError(f"words must be uint32, not {words.dtype}: take a view of the same bytes")
    row_words = packed_words(count, bits)
    if words.shape[-1] != row_words:
        raise ValueError(f"{count} elements of {bits} bits take {row_words} words, not {words.shape[-1]}")
    rows = words.shape[:-1]
    blocks = -(-count // WORD_BITS)
    padded = np.zeros((*rows, blocks * bits), dtype=np.uint32)
    padded[..., :row_words] = words
    padded = padded.reshape(*rows, blocks, bits)
    elements = np.zeros((*rows, blocks, WORD_BITS), dtype=np.uint8 if bits <= 8 else np.uint16)
    mask = np.uint32((1 << bits) - 1)
    for position in range(WORD_BITS):
        word, shift = divmod(position * bits, WORD_BITS)
        element = padded[..., word] >> shift
        if shift + bits > WORD_BITS:
            element = element | (padded[..., word + 1] << (WORD_BITS - shift))
        elements[..., position] = element & mask
    return elements.reshape(*rows, blocks * WORD_BITS)[..., :count]
