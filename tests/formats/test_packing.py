# SPDX-License-Identifier: Apache-2.0
"""Bit packing against hand-written words and against one large Python integer per row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from humming_conformance.formats import pack_bits, packed_words, unpack_bits


@pytest.mark.parametrize(
    ("bits", "codes", "words"),
    [
        (3, [0, 1, 2, 3, 4, 5, 6, 7], [0x00FAC688]),
        (4, [1, 2, 3, 4, 5, 6, 7, 8, 9], [0x87654321, 0x00000009]),
        (5, [0, 0, 0, 0, 0, 0, 0b10110], [0x80000000, 0b101]),
        (6, [0, 0, 0, 0, 0, 0b110101], [0x40000000, 0b1101]),
        (7, [0x7F, 0, 0, 0, 0b1010110], [0x6000007F, 0b101]),
        (1, [1, 0, 0, 1], [0b1001]),
        (16, [0x1234, 0xABCD, 0xFFFF], [0xABCD1234, 0xFFFF]),
    ],
)
def test_words_written_by_hand(bits: int, codes: list[int], words: list[int]) -> None:
    """Elements fill words from the low bits up, and straddle words."""
    packed = pack_bits(np.array(codes, dtype=np.uint16), bits)
    assert packed.dtype == np.uint32
    assert packed.tolist() == words
    assert unpack_bits(packed, bits, len(codes)).tolist() == codes


@given(st.integers(1, 16), st.integers(0, 100), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_matches_one_long_integer(bits: int, count: int, rows: int, seed: int) -> None:
    """Each row is the little-endian integer sum of code << (k * bits), padded with zeros; and comes back."""
    codes = np.random.default_rng(seed).integers(0, 1 << bits, (2, rows, count))
    packed = pack_bits(codes, bits)
    assert packed.shape == (2, rows, packed_words(count, bits))
    for row in np.ndindex(2, rows):
        stream = sum(int(code) << (k * bits) for k, code in enumerate(codes[row]))
        assert packed[row].astype("<u4").tobytes() == stream.to_bytes(4 * packed_words(count, bits), "little")
    unpacked = unpack_bits(packed, bits, count)
    assert unpacked.dtype == (np.uint8 if bits <= 8 else np.uint16)
    assert np.array_equal(unpacked, codes)


def test_unpack_ignores_padding_bits() -> None:
    """Bits after the last element belong to nobody."""
    assert unpack_bits(np.array([0xFFFFFFF8 | 0b101], dtype=np.uint32), 3, 1).tolist() == [0b101]


def test_bad_input_is_refused() -> None:
    """Codes that do not fit, impossible widths, other word types and wrong lengths are named in errors."""
    with pytest.raises(ValueError, match=r"3-bit codes must lie in \[0, 2\^3\)"):
        pack_bits(np.array([8]), 3)
    with pytest.raises(ValueError, match="must be integers"):
        pack_bits(np.array([0.5]), 3)
    with pytest.raises(ValueError, match="must be 1…16, not 17"):
        pack_bits(np.array([1]), 17)
    with pytest.raises(ValueError, match="must be uint32, not int32"):
        unpack_bits(np.zeros(1, dtype=np.int32), 4, 8)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="9 elements of 4 bits take 2 words, not 1"):
        unpack_bits(np.zeros(1, dtype=np.uint32), 4, 9)
