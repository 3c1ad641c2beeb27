# SPDX-License-Identifier: Apache-2.0
"""Stream-K division against a literal walk of every worker's share."""

from collections import Counter
from math import ceil, lcm
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from humming_conformance.kernels.humming_lib.stream_k import StreamK, stream_k


def _config(**changes: Any) -> dict[str, Any]:
    return {"block_shape": (16, 128, 128), "num_stages": 4, "num_sms": 132, "use_stream_k": True} | changes


def _slices(config: dict[str, Any], m_tiles: int, n: int, k: int, *, group_size: int = 0) -> StreamK:
    return stream_k(config, n=n, k=k, group_size=group_size, m_tiles=m_tiles, sm=90, sm_count=132, output_format="bf16")


def _walk(workers: int, tiles: int, k_blocks: int, step: int) -> int:
    """Give each worker its run of (tile, K block) units one by one; the most workers that any tile meets."""
    if tiles > workers:
        tiles %= workers
        if tiles and tiles * 10 <= workers:
            tiles += workers
    share = max(ceil(tiles * k_blocks / workers), ceil((k_blocks - 1) / 9))
    share = ceil(share / step) * step
    met: Counter[int] = Counter()
    for worker in range(workers):
        units = range(worker * share, min((worker + 1) * share, tiles * k_blocks))
        met.update({unit // k_blocks for unit in units})
    return max(met.values(), default=1)


@given(
    m_tiles=st.integers(1, 60),
    n_tiles=st.integers(1, 40),
    k_blocks=st.integers(1, 64),
    workers=st.integers(1, 140),
    stages=st.integers(2, 6),
)
def test_matches_a_literal_walk(m_tiles: int, n_tiles: int, k_blocks: int, workers: int, stages: int):
    """The closed form gives the slices that handing out the work unit by unit gives."""
    config = _config(num_sms=workers, num_stages=stages)
    found = _slices(config, m_tiles, n_tiles * 128, k_blocks * 128)
    assert found.slices == _walk(workers, m_tiles * n_tiles, k_blocks, lcm(1, stages))


def test_without_stream_k_nothing_is_divided():
    """A schedule without stream-K has one slice, in order."""
    assert _slices(_config(use_stream_k=False), 1, 4096, 4096) == StreamK(1, unordered=False)


def test_one_tile_is_divided_at_most_ten_times():
    """A single tile with a long K meets the scheduler's limit of ten slices since 0.1.17, and none before."""
    config = _config(num_stages=2)
    assert _slices(config, 1, 128, 128 * 400).slices == 9
    unlimited = stream_k(
        config,
        n=128,
        k=128 * 400,
        group_size=0,
        m_tiles=1,
        sm=90,
        sm_count=132,
        output_format="bf16",
        max_slices=None,
    )
    assert unlimited.slices == 100


def test_groups_longer_than_a_k_tile_are_not_cut():
    """With a group of four K tiles a slice is a multiple of the group."""
    config = _config(block_shape=(16, 128, 32), num_stages=2)
    assert _slices(config, 1, 128, 512).slices == 8
    assert _slices(config, 1, 128, 512, group_size=128).slices == 4


@pytest.mark.parametrize(
    ("slices", "use_tma", "sm", "output", "unordered"),
    [
        (2, True, 90, "bf16", False),
        (3, True, 90, "bf16", True),
        (3, False, 90, "bf16", False),
        (4, False, 90, "bf16", True),
        (4, False, 80, "bf16", False),
        (4, False, 80, "fp16", True),
    ],
)
def test_order(slices: int, use_tma: bool, sm: int, output: str, unordered: bool):  # noqa: FBT001
    """Two slices commute; more are unordered with TMA, more than three where 16-bit atomics are native."""
    config = _config(num_stages=2, use_tma=use_tma)
    found = stream_k(
        config,
        n=128,
        k=256 * slices,
        group_size=0,
        m_tiles=1,
        sm=sm,
        sm_count=132,
        output_format=output,
    )
    assert found == StreamK(slices, unordered=unordered)
