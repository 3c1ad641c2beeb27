# SPDX-License-Identifier: Apache-2.0
"""Token distributions: counts sum to the rows and do what their name says, however few rows there are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from humming_conformance.problems import build_operands, parse_case
from humming_conformance.problems.distributions import DISTRIBUTIONS, TILE_EDGES

HOLES = {
    "empty_first": lambda experts: range(max(1, experts // 4)),
    "empty_middle": lambda experts: range(experts // 2, experts // 2 + max(1, experts // 4)),
    "empty_last": lambda experts: range(experts - max(1, experts // 4), experts),
    "high": lambda experts: range(experts - max(1, experts // 4)),
    "one": lambda experts: range(experts - 1),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@given(rows=st.integers(1, 3000), experts=st.integers(1, 300))
def test_counts_sum_to_rows(name, rows, experts):
    """Every expert has a count, none is negative, and all rows are given away."""
    counts = DISTRIBUTIONS[name](rows, experts)
    assert len(counts) == experts
    assert min(counts) >= 0
    assert sum(counts) == rows


@pytest.mark.parametrize("name", HOLES)
@given(rows=st.integers(1, 3000), experts=st.integers(2, 300))
def test_holes_are_empty_and_nothing_else(name, rows, experts):
    """The experts of a named hole have no rows; the others share them evenly."""
    counts = DISTRIBUTIONS[name](rows, experts)
    hole = HOLES[name](experts)
    assert not any(counts[expert] for expert in hole)
    others = [count for expert, count in enumerate(counts) if expert not in hole]
    assert max(others) - min(others) <= 1


@given(rows=st.integers(1, 3000), experts=st.integers(1, 300))
def test_balanced(rows, experts):
    """Counts differ by one at most."""
    counts = DISTRIBUTIONS["balanced"](rows, experts)
    assert max(counts) - min(counts) <= 1


@given(rows=st.integers(1, 3000), experts=st.integers(1, 300))
def test_skewed(rows, experts):
    """Counts fall with the expert's number; the first of many has at least twice its even share."""
    counts = DISTRIBUTIONS["skewed"](rows, experts)
    assert counts == sorted(counts, reverse=True)
    if experts >= 8:
        assert counts[0] >= min(rows, 2 * rows / experts)


@given(rows=st.integers(1, 3000), experts=st.integers(1, 300))
def test_tile_edges_come_in_order(rows, experts):
    """Experts get 1, 7, 8, 9, 15… rows while they last; what is left goes to the last one."""
    counts = DISTRIBUTIONS["tile_edges"](rows, experts)
    wanted = [TILE_EDGES[expert % len(TILE_EDGES)] for expert in range(experts)]
    left = rows
    for expert, edge in enumerate(wanted[:-1]):
        assert counts[expert] == min(edge, left)
        left -= counts[expert]
    assert counts[-1] == left


def test_tile_edges_all_hit():
    """With enough rows and experts, every count beside a tile boundary occurs."""
    assert set(TILE_EDGES) <= set(DISTRIBUTIONS["tile_edges"](sum(TILE_EDGES), len(TILE_EDGES)))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_operands_follow_the_counts(name):
    """The routing of a case sends each expert as many rows as the distribution says, in shuffled order."""
    suffix = "" if name == "balanced" else f".{name}"
    case = parse_case(f"moe_indexed-w_int4.g32.bf16-a_bf16-m40.n8.k32.e6.top3{suffix}-random")
    expert = build_operands(case).expert
    assert expert.shape == (1, 40, 3)
    assert np.bincount(expert.reshape(-1), minlength=6).tolist() == DISTRIBUTIONS[name](120, 6)
    if name not in ("one", "high"):  # there one expert has all rows
        assert not np.all(np.diff(expert.reshape(-1)) >= 0)
