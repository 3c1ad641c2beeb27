# SPDX-License-Identifier: Apache-2.0
"""MoE row and index layouts against their definitions, read slot by slot."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from humming_conformance.kernels import _moe_layout as moe_layout


@st.composite
def routings(draw: st.DrawFn) -> tuple[NDArray[np.int32], int]:
    """Experts of (tokens, top_k) and the number of experts; some experts may have no rows."""
    experts = draw(st.integers(1, 9))
    tokens, top_k = draw(st.integers(1, 40)), draw(st.integers(1, 3))
    flat = draw(st.lists(st.integers(0, experts - 1), min_size=tokens * top_k, max_size=tokens * top_k))
    return np.array(flat, dtype=np.int32).reshape(tokens, top_k), experts


@given(routings(), st.sampled_from([8, 16, 24, 64]))
def test_indexed_tiles_hold_each_row_once_under_its_expert(routing: tuple[NDArray[np.int32], int], block_m: int):
    """Within the padded count every logical row appears once, in a tile of its expert."""
    expert, experts = routing
    index = moe_layout.indexed(expert, experts, block_m)
    rows = expert.size
    assert index.sorted_ids.size == index.expert_ids.size * block_m
    assert index.num_tokens_padded == index.sorted_ids.size - block_m
    seen = []
    for slot in range(index.num_tokens_padded):
        row = index.sorted_ids[slot]
        if row < rows:
            assert expert.reshape(-1)[row] == index.expert_ids[slot // block_m]
            seen.append(int(row))
        else:
            assert row == rows
    assert sorted(seen) == list(range(rows))
    tiles = sum(-(-int(count) // block_m) for count in moe_layout.expert_counts(expert, experts))
    assert index.num_tokens_padded == tiles * block_m


@given(routings())
def test_indexed_trap_would_be_noticed(routing: tuple[NDArray[np.int32], int]):
    """The tile behind the padded count names real rows and, with two experts, a wrong one for row 0."""
    expert, experts = routing
    index = moe_layout.indexed(expert, experts, 8)
    trap = index.sorted_ids[index.num_tokens_padded :]
    assert trap[0] == 0
    assert (trap < expert.size).all()
    assert 0 <= index.expert_ids[-1] < experts
    assert (index.expert_ids[-1] != expert[0, 0]) == (experts > 1)


@given(routings())
def test_contiguous_rows_lie_between_their_experts_offsets(routing: tuple[NDArray[np.int32], int]):
    """Every logical row has a physical row of its own between its expert's offsets; spare rows lie behind."""
    expert, experts = routing
    grouped = moe_layout.grouped_contiguous(expert, experts)
    offsets = grouped.expert_layout
    assert offsets.shape == (experts + 1,)
    assert offsets[-1] == expert.size == grouped.physical_rows - moe_layout.SPARE_ROWS
    assert sorted(grouped.row_of) == list(range(expert.size))
    for row, physical in enumerate(grouped.row_of):
        owner = expert.reshape(-1)[row]
        assert offsets[owner] <= physical < offsets[owner + 1]


@given(routings())
def test_masked_rows_are_the_first_of_their_expert(routing: tuple[NDArray[np.int32], int]):
    """Every logical row is one of its expert's first count rows."""
    expert, experts = routing
    counts = moe_layout.expert_counts(expert, experts)
    max_tokens = int(counts.max()) + moe_layout.SPARE_ROWS
    grouped = moe_layout.grouped_masked(expert, experts, max_tokens)
    assert grouped.physical_rows == experts * max_tokens
    assert np.array_equal(grouped.expert_layout, counts)
    assert len(set(grouped.row_of.tolist())) == expert.size
    for row, physical in enumerate(grouped.row_of):
        owner = expert.reshape(-1)[row]
        assert 0 <= physical - owner * max_tokens < counts[owner]
