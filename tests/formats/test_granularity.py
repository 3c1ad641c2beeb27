# SPDX-License-Identifier: Apache-2.0
"""Granularity: text form, scale grids, and which element uses which scale."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from humming_conformance.formats import FormatError, Granularity, parse_granularity

GRANULARITIES = {
    "tensor": Granularity("tensor"),
    "channel": Granularity("channel"),
    "token": Granularity("token"),
    "g128": Granularity("group", group_size=128),
    "b64x128": Granularity("block", group_size=128, group_size_n=64),
}


@pytest.mark.parametrize("text", GRANULARITIES)
def test_text_form_round_trips(text: str) -> None:
    """Each granularity is written and read as its one text."""
    assert parse_granularity(text) == GRANULARITIES[text]
    assert str(GRANULARITIES[text]) == text


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("tensor", (1, 1)),
        ("channel", (130, 1)),
        ("token", (130, 1)),
        ("g128", (130, 3)),
        ("g512", (130, 1)),
        ("b64x128", (3, 3)),
        ("b1x1", (130, 300)),
    ],
)
def test_scale_shape_counts_cut_groups(text: str, shape: tuple[int, int]) -> None:
    """The scale grid of a 130x300 matrix has a place for groups and blocks that the end cuts."""
    assert parse_granularity(text).scale_shape(130, 300) == shape


@given(
    st.sampled_from(["tensor", "channel", "token", "g1", "g4", "g7", "b2x3", "b3x16", "b5x1"]),
    st.integers(1, 9),
    st.integers(1, 20),
)
def test_expand_and_maximum_follow_block_indices(text: str, rows: int, columns: int) -> None:
    """Element (n, k) uses scale (n // block rows, k // block columns), for a batch of matrices alike."""
    granularity = parse_granularity(text)
    grid = granularity.scale_shape(rows, columns)
    scales = np.arange(2 * grid[0] * grid[1]).reshape(2, *grid)
    expanded = granularity.expand(scales, rows, columns)
    assert expanded.shape == (2, rows, columns)
    size_n = {"tensor": rows, "block": granularity.group_size_n}.get(granularity.kind, 1)
    size_k = granularity.group_size or columns
    matrix = np.random.default_rng(rows * columns).integers(-9, 10, (2, rows, columns))
    highest = np.zeros((2, *grid), dtype=matrix.dtype)
    for batch, n, k in np.ndindex(2, rows, columns):
        place = (batch, n // size_n, k // size_k)
        assert expanded[batch, n, k] == scales[place]
        highest[place] = max(highest[place], matrix[batch, n, k])
    assert np.array_equal(granularity.maximum(matrix), highest)


def test_scales_of_another_shape_are_refused() -> None:
    """One group too few is named with the shape that was expected."""
    with pytest.raises(ValueError, match=r"g128 of a 4x300 matrix needs scales \(..., 4, 3\), not \(4, 2\)"):
        parse_granularity("g128").expand(np.ones((4, 2)), 4, 300)


@pytest.mark.parametrize("text", ["g0", "group128", "128", "b128", "g-1", "channels"])
def test_unknown_text_is_refused(text: str) -> None:
    """An unknown granularity is refused with the rule and a valid example."""
    with pytest.raises(FormatError, match=f"unknown granularity '{text}'.*nearest valid name"):
        parse_granularity(text)


@pytest.mark.parametrize(
    ("kind", "group_size", "group_size_n"),
    [("group", None, None), ("group", 0, None), ("group", 8, 8), ("block", 8, None), ("tensor", 8, None)],
)
def test_sizes_belong_to_their_kind(kind: str, group_size: int | None, group_size_n: int | None) -> None:
    """Sizes that a kind needs or cannot have are refused."""
    with pytest.raises(FormatError, match="group takes a positive group_size"):
        Granularity(kind, group_size, group_size_n)  # type: ignore[arg-type]


def test_unknown_kind_is_refused() -> None:
    """A kind that does not exist is refused with the nearest one."""
    with pytest.raises(FormatError, match=r"unknown granularity kind 'groups'.*nearest valid name: 'group'"):
        Granularity("groups", 8)  # type: ignore[arg-type]
