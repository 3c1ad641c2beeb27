# SPDX-License-Identifier: Apache-2.0
"""How much a case must move and multiply at the least: the bytes and operations that roofs are held against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from humming_conformance.formats import element_format
from humming_conformance.problems import Case
from humming_conformance.problems.distributions import DISTRIBUTIONS


@dataclass(frozen=True)
class Work:
    """Of one launch.

    Attributes:
        weight_bytes: packed weights, scales and zero points of the experts that have rows.
        bytes: those, the activations with their scales, and the output.
        operations: 2 × rows × N × K.
    """

    weight_bytes: int
    bytes: int
    operations: int


def work_of(case: Case) -> Work:
    """The least work of a case's first launch: each operand is read once, each output written once."""
    problem, weight, activation = case.problem, case.weight, case.activation
    hit = 1
    if problem.experts:
        counts = DISTRIBUTIONS[problem.distribution](problem.rows, problem.experts)
        hit = int(np.count_nonzero(counts))
    groups = int(np.prod(weight.granularity.scale_shape(problem.n, problem.k)))
    bits = problem.n * problem.k * weight.format.bits + groups * element_format(weight.scale_format).bits
    if weight.zero_point != "none":
        zero_bits = weight.format.bits if weight.zero_point == "integer" else element_format(case.output).bits
        bits += groups * zero_bits
    weight_bytes = hit * bits // 8
    activation_bits = problem.m * problem.k * activation.format.bits
    if activation.granularity is not None:
        scales = int(np.prod(activation.granularity.scale_shape(problem.m, problem.k)))
        activation_bits += scales * element_format(activation.scale_format).bits
    output_bits = problem.rows * problem.n * element_format(case.output).bits
    return Work(
        weight_bytes=weight_bytes,
        bytes=weight_bytes + (activation_bits + output_bits) // 8,
        operations=2 * problem.rows * problem.n * problem.k,
    )
