# SPDX-License-Identifier: Apache-2.0
"""The quality floor: how far a kernel may be from the exact result, whatever its contract says.

The yardstick is what a user gets without the kernel, QDQ and a bf16 GEMM: weights and activations dequantized
and rounded to bf16, summed in fp32 (modelled by float64), rounded once to the output format.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from humming_conformance.formats import element_format
from humming_conformance.oracle.bound import round_output
from humming_conformance.oracle.contract import Contract
from humming_conformance.oracle.dequantize import Array
from humming_conformance.oracle.reference import products
from humming_conformance.oracle.region import Region
from humming_conformance.problems import Case, Operands

#: A kernel's error in norm may be at most this many times that of QDQ.
FLOOR_FACTOR = 2.0
#: How much further a kernel may be whose bits differ from run to run, so that its verdict does not: this part of the
#: limit, and so many times the deviation of a norm over n such errors, which is about 1/sqrt(n) of it (docs/h200.md).
UNREPEATABLE_SLACK = 0.05
UNREPEATABLE_DEVIATIONS = 4.0
#: Below so many elements a ratio of two errors in norm is chance, and only an infinite error counts.
FEWEST_ELEMENTS = 256


@dataclass(frozen=True)
class Quality:
    """Errors in Euclidean norm over the judged elements with a finite exact result.

    Attributes:
        error: of the kernel, against exact dequantization and summation.
        qdq_error: of QDQ, against the same.
        limit: the larger of ``FLOOR_FACTOR`` * ``qdq_error`` and the norm of half the distance of output values,
            with the slack of an unrepeatable kernel. The second stands where QDQ happens to be exact; correct rounding
            never exceeds it.
        exact_norm: of the exact result.
        elements: how many were counted.
    """

    error: float
    qdq_error: float
    limit: float
    exact_norm: float
    elements: int

    @property
    def passed(self) -> bool:
        """Whether the kernel is above the floor."""
        few = self.elements < FEWEST_ELEMENTS
        return self.error <= self.limit or (few and self.error < float("inf"))


def judge_quality(case: Case, operands: Operands, region: Region, output: Array, *, repeatable: bool) -> Quality:
    """Judge output values (L, rows, columns) of the judged region; ``repeatable`` is the contract's word.

    A non-finite output where the exact result and QDQ's round to finite ones counts as an infinite error.
    """
    strict = Contract(case.output)
    exact = products(case, operands, strict, region)
    source = {"weight_input": "QDQ", "activation_input": "QDQ"}
    qdq_contract = Contract(case.output, weight_input="bf16", activation_input="bf16", sources=source)
    qdq = products(case, operands, qdq_contract, region)
    target = element_format(case.output)
    with np.errstate(invalid="ignore", over="ignore"):
        rounded_qdq = round_output(case, strict, qdq.product, qdq.bias)
        rounded_exact = round_output(case, strict, exact.product, exact.bias)
        counted = np.isfinite(rounded_exact) & np.isfinite(rounded_qdq)
        value = np.where(counted, exact.value, 0.0)
        error = np.where(counted, np.abs(output - value), 0.0)
        qdq_error = np.where(counted, np.abs(rounded_qdq - value), 0.0)
    error = np.where(np.isnan(error), np.inf, error)
    half_step = np.where(counted, target.spacing(value) / 2, 0.0)
    elements = int(np.count_nonzero(counted))
    return Quality(
        error=_norm(error),
        qdq_error=_norm(qdq_error),
        limit=max(FLOOR_FACTOR * _norm(qdq_error), _norm(half_step)) * (1 if repeatable else 1 + _slack(elements)),
        exact_norm=_norm(value),
        elements=elements,
    )


def _slack(elements: int) -> float:
    """What an unrepeatable kernel is given over so many elements, as a part of the limit."""
    return UNREPEATABLE_SLACK + UNREPEATABLE_DEVIATIONS / math.sqrt(max(elements, 1))


def _norm(values: Array) -> float:
    largest = float(np.abs(values).max(initial=0.0))
    if largest in (0.0, np.inf):
        return largest
    # Scaled, so that squares neither overflow nor vanish.
    return largest * float(np.sqrt(np.square(values / largest).sum()))
