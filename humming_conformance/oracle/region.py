# SPDX-License-Identifier: Apache-2.0
"""Which part of an output is judged: all of it, or, above a stated size, its edges and a sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from humming_conformance.problems import Case, Operands

#: Products (rows x N x K) up to which every element is judged; the float64 reference of that many takes
#: seconds.
WHOLE_UP_TO = 1 << 32
#: Rows and columns judged at each edge of a larger output, and at least how many more are sampled.
EDGE = 64
SAMPLE = 192


@dataclass(frozen=True, eq=False)
class Region:
    """Rows (token * top_k + slot) and columns of every launch's output; what is in both is judged.

    Attributes:
        rows: ascending row indices.
        columns: ascending column indices.
    """

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]

    @classmethod
    def whole(cls, case: Case) -> Region:
        """Every element."""
        return cls(np.arange(case.problem.rows), np.arange(case.problem.n))


def judged_region(case: Case, operands: Operands) -> Region:
    """Return the whole output up to ``WHOLE_UP_TO`` products, else its edges and a sample.

    Those are the first and last ``EDGE`` rows and columns, the last row of every expert, and an even spread.
    A case of several launches reads one-hot rows, which costs no multiplication, and is always judged whole.
    """
    problem = case.problem
    if operands.launches > 1 or problem.rows * problem.n * problem.k <= WHOLE_UP_TO:
        return Region.whole(case)
    last_of_expert = np.empty(0, dtype=np.int64)
    if operands.expert is not None:
        reversed_experts = operands.expert[0].ravel()[::-1]
        last_of_expert = problem.rows - 1 - np.unique(reversed_experts, return_index=True)[1]
    rows = np.union1d(_edges_and_sample(problem.rows), last_of_expert)
    return Region(rows, _edges_and_sample(problem.n))


def _edges_and_sample(length: int) -> NDArray[np.int64]:
    edge = np.arange(min(EDGE, length))
    # An odd stride meets every residue of the power-of-two tiles.
    stride = max(1, length // SAMPLE) | 1
    return np.unique(np.concatenate([edge, length - 1 - edge, np.arange(0, length, stride)]))
