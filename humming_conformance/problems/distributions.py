# SPDX-License-Identifier: Apache-2.0
"""Token distributions: how many rows each expert of a MoE problem gets.

An entry maps (rows, experts) to counts that sum to ``rows``; which rows go where is a permutation keyed by
the case. A token may meet one expert in two of its slots (when one expert takes all rows, it must): a GEMM
doesn't mind.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

#: Row counts at both sides of the M tiles that kernels use.
TILE_EDGES = (1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)


def _spread(rows: int, experts: int, weights: list[int]) -> list[int]:
    """Counts proportional to integer weights, rounded down, the rest to the heaviest experts first."""
    total = sum(weights)
    counts = [rows * weight // total for weight in weights]
    order = sorted((e for e in range(experts) if weights[e]), key=lambda e: -weights[e])
    for expert in cycle(order):
        if sum(counts) == rows:
            return counts
        counts[expert] += 1
    raise AssertionError("at least one expert has a weight")


def _tile_edges(rows: int, experts: int) -> list[int]:
    counts = [0] * experts
    left = rows
    for expert, edge in zip(range(experts), cycle(TILE_EDGES), strict=False):
        counts[expert] = min(edge, left)
        left -= counts[expert]
    counts[experts - 1] += left
    return counts


def _without(hole: Callable[[int], range]) -> Callable[[int, int], list[int]]:
    """Balanced over all experts but those in ``hole(experts)``; with one expert there is no hole."""

    def counts(rows: int, experts: int) -> list[int]:
        empty = hole(experts) if experts > 1 else range(0)
        return _spread(rows, experts, [0 if e in empty else 1 for e in range(experts)])

    return counts


DISTRIBUTIONS: dict[str, Callable[[int, int], list[int]]] = {
    "balanced": lambda rows, experts: _spread(rows, experts, [1] * experts),
    "skewed": lambda rows, experts: _spread(rows, experts, [840 // (e + 1) + 1 for e in range(experts)]),
    "one": lambda rows, experts: [0] * (experts - 1) + [rows],
    "empty_first": _without(lambda experts: range(max(1, experts // 4))),
    "empty_middle": _without(lambda experts: range(experts // 2, experts // 2 + max(1, experts // 4))),
    "empty_last": _without(lambda experts: range(experts - max(1, experts // 4), experts)),
    "tile_edges": _tile_edges,
    "high": _without(lambda experts: range(experts - max(1, experts // 4))),
}
