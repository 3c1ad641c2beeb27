# SPDX-License-Identifier: Apache-2.0
"""Philox gives the published words, and a stream depends on nothing but its key and the index."""

import hashlib

import numpy as np
import pytest

from humming_conformance.problems.words import Draw, NumpyArrays, philox

#: kat_vectors of Random123 (Salmon, Moraes, Dror, Shaw), philox4x32 with 10 rounds: counter, key, result.
KNOWN_ANSWERS = {
    "zero": ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    "ones": (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    "pi": (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
}


def python_philox(counter, key):
    """Philox4x32-10 in Python's unbounded integers, as the paper writes it."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 % 2**32, (p0 >> 32) ^ c3 ^ k1, p0 % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS.values(), ids=KNOWN_ANSWERS)
def test_known_answers(counter, key, expected):
    """The published known-answer vectors come out of arrays as of single numbers."""
    arrays = tuple(np.full(3, word, dtype=np.int64) for word in counter)
    assert [word.tolist() for word in philox(arrays, key)] == [[word] * 3 for word in expected]


def test_stream_is_philox_of_the_index():
    """Word i is word i % 4 of counter i // 4, under a key from SHA-256 of case id and tensor name."""
    digest = hashlib.sha256(b"some-case\nweight").digest()
    key = (int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little"))
    words = Draw("some-case", NumpyArrays()).words("weight", (41,))
    expected = [word for block in range(11) for word in python_philox((block, 0, 0, 0), key)]
    assert words.tolist() == expected[:41]


@pytest.mark.parametrize("chunk", [1, 3, 64, 1 << 20])
def test_words_do_not_depend_on_chunks(chunk):
    """However many counters are made at a time, the words are the same."""
    arrays = NumpyArrays()
    arrays.chunk = chunk
    words = Draw("some-case", arrays).words("weight", (6, 41))
    assert np.array_equal(words, Draw("some-case", NumpyArrays()).words("weight", (6, 41)))


def test_words_do_not_depend_on_shape():
    """The words of a smaller or reshaped tensor are the first words of the larger one."""
    draw = Draw("some-case", NumpyArrays())
    flat = draw.words("weight", (240,))
    assert np.array_equal(draw.words("weight", (2, 3, 40)).reshape(-1), flat)
    assert np.array_equal(draw.words("weight", (7, 5)).reshape(-1), flat[:35])


@pytest.mark.parametrize(("case_id", "tensor"), [("other-case", "weight"), ("some-case", "bias")])
def test_streams_differ(case_id, tensor):
    """Another case or another tensor has other words."""
    words = Draw("some-case", NumpyArrays()).words("weight", (64,))
    assert not np.any(words == Draw(case_id, NumpyArrays()).words(tensor, (64,)))


def test_words_are_spread():
    """Each of the 32 bits of 65536 words is set about half the time (six standard deviations)."""
    words = Draw("some-case", NumpyArrays()).words("weight", (1 << 16,))
    counts = ((words[:, None] >> np.arange(32)) & 1).sum(axis=0)
    assert np.all(np.abs(counts - (1 << 15)) < 6 * 128)
