# SPDX-License-Identifier: Apache-2.0
"""Granularity: which elements of a matrix share one scale.

A matrix (rows, columns) is a weight (N, K) or activations (M, K). Scales always form a two-dimensional grid
over it, so that one rule expands every kind:

| text | one scale for | scale grid |
|---|---|---|
| `tensor` | the whole matrix | (1, 1) |
| `channel` | an output channel of a weight | (rows, 1) |
| `token` | a row of activations | (rows, 1) |
| `g128` | 128 columns of one row | (rows, ceil(columns / 128)) |
| `b128x64` | 128 rows by 64 columns | (ceil(rows / 128), ceil(columns / 64)) |

The last group or block of a row or column may be cut by the end of the matrix.
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from humming_conformance.formats.errors import FormatError, require_choice, unknown_name

Kind = Literal["tensor", "channel", "token", "group", "block"]
Scalar = TypeVar("Scalar", bound=np.generic)

_SIZELESS: dict[str, Kind] = {"tensor": "tensor", "channel": "channel", "token": "token"}


@dataclass(frozen=True)
class Granularity:
    """What shares one scale. `group_size` counts columns (K); `group_size_n` counts rows (N).

    `group` has a `group_size`, `block` has both, the other kinds have neither; else `FormatError`.
    """

    kind: Kind
    group_size: int | None = None
    group_size_n: int | None = None

    def __post_init__(self) -> None:
        require_choice("granularity kind", self.kind, get_args(Kind))
        sizes = (self.group_size, self.group_size_n)
        given = tuple(size is not None for size in sizes)
        wanted = {"group": (True, False), "block": (True, True)}.get(self.kind, (False, False))
        if given != wanted or any(size is not None and size < 1 for size in sizes):
            raise FormatError(
                f"granularity {self.kind} with group_size={sizes[0]}, group_size_n={sizes[1]}: group takes "
                "a positive group_size, block takes both positive sizes, other kinds take none"
            )

    def __str__(self) -> str:
        if self.kind == "group":
            return f"g{self.group_size}"
        if self.kind == "block":
            return f"b{self.group_size_n}x{self.group_size}"
        return self.kind

    def block_shape(self, rows: int, columns: int) -> tuple[int, int]:
        """Return how many rows and columns share one scale in a matrix (rows, columns)."""
        block_rows = rows if self.kind == "tensor" else self.group_size_n or 1
        return block_rows, self.group_size or columns

    def scale_shape(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the shape of the scale grid of a matrix (rows, columns)."""
        block_rows, block_columns = self.block_shape(rows, columns)
        return -(-rows // block_rows), -(-columns // block_columns)

    def expand(self, scales: NDArray[Scalar], rows: int, columns: int) -> NDArray[Scalar]:
        """Repeat scales (..., *scale_shape(rows, columns)) to one per element, (..., rows, columns).

        Raises `ValueError` if the scale grid does not fit the matrix.
        """
        grid = self.scale_shape(rows, columns)
        if scales.shape[-2:] != grid:
            raise ValueError(
                f"granularity {self} of a {rows}x{columns} matrix needs scales (..., {grid[0]}, {grid[1]}), "
                f"not {scales.shape}"
            )
        block_rows, block_columns = self.block_shape(rows, columns)
        by_row = np.repeat(scales, block_rows, axis=-2)
        return np.repeat(by_row, block_columns, axis=-1)[..., :rows, :columns]

    def maximum(self, matrix: NDArray[Scalar]) -> NDArray[Scalar]:
        """Return max(0, `matrix`) (..., rows, columns) over what shares a scale, (..., *scale grid)."""
        *batch, rows, columns = matrix.shape
        block_rows, block_columns = self.block_shape(rows, columns)
        grid_rows, grid_columns = self.scale_shape(rows, columns)
        padded = np.zeros((*batch, grid_rows * block_rows, grid_columns * block_columns), dtype=matrix.dtype)
        padded[..., :rows, :columns] = matrix
        blocks = padded.reshape(*batch, grid_rows, block_rows, grid_columns, block_columns)
        return np.asarray(blocks.max(axis=(-3, -1), initial=0))


@cache
def parse_granularity(text: str) -> Granularity:
    """Return the granularity written as `text`: the inverse of `str`. Raises `FormatError`."""
    if text in _SIZELESS:
        return Granularity(_SIZELESS[text])
    if group := re.fullmatch(r"g([1-9]\d*)", text):
        return Granularity("group", group_size=int(group[1]))
    if block := re.fullmatch(r"b([1-9]\d*)x([1-9]\d*)", text):
        return Granularity("block", group_size=int(block[2]), group_size_n=int(block[1]))
    rule = "tensor, channel, token, gK (g128) or bNxK (b128x128)"
    raise unknown_name("granularity", text, rule, (*_SIZELESS, "g128", "b128x128"))
