# SPDX-License-Identifier: Apache-2.0
"""Exact values of weights and activations in float64, and the same values split the way a contract uses them.

A factor of a GEMM is what enters the multiplier, times scales that a kernel may keep back and apply to
partial or whole sums. Every stored code has at most 24 significant bits, so that decoding is exact in
float64; a product of several of them is off by at most 2^-53 of itself for each multiplication.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from humming_conformance.formats import Granularity, element_format
from humming_conformance.oracle.contract import Contract
from humming_conformance.problems import Case, Operands

Array = NDArray[np.float64]
Index = NDArray[np.int64]

#: Unit roundoff of fp32, in which a kernel multiplies scales before it rounds to a narrower multiplier input.
_FP32_ROUNDOFF = 2.0**-24


@dataclass(frozen=True, eq=False)
class Factor:
    """One matrix (rows, K) as a contract's kernel uses it: ``multiplier * group_scale * row_scale``.

    Attributes:
        multiplier: (rows, K) what enters the multiplier, rounded if the contract says so.
        group_scale: (rows, K) scales of partial sums, one per element; None where no scale varies along K.
        row_scale: (rows,) product of the scales of whole sums, or None.
        output_scale: (rows,) that part of ``row_scale`` which meets the rounded result, or None.
        doubt: (rows, K) by how much an element of ``multiplier`` may differ because the kernel's product of
            scales was rounded to fp32 before it was rounded to the input format; None where it can't.
    """

    multiplier: Array
    group_scale: Array | None = None
    row_scale: Array | None = None
    output_scale: Array | None = None
    doubt: Array | None = None

    @property
    def along_k(self) -> Array:
        """(rows, K) multiplier times the scales that vary along K."""
        return self.multiplier if self.group_scale is None else self.multiplier * self.group_scale


def weight_factor(case: Case, operands: Operands, contract: Contract, expert: int, columns: Index) -> Factor:
    """Output columns ``columns`` of one expert's weight, as the contract's kernel multiplies them.

    Raises ValueError if the contract applies a scale that varies along K to outputs.
    """
    scheme, k = case.weight, case.problem.k
    values = scheme.format.decode(operands.weight[expert][columns])
    if operands.zero_point is not None:
        values = values - _zero_points(case, operands.zero_point[expert][columns])
    scale_codes = operands.weight_scale[expert]
    block_rows, _ = scheme.granularity.block_shape(case.problem.n, k)
    scale = _along_k(
        element_format(scheme.scale_format).decode(scale_codes[columns // block_rows]), scheme.granularity, k
    )
    second = _second_scale(case, operands, expert, columns)
    first_at_input, second_at_input = contract.applies("multiplier_input", scheme.second_scale)
    values = values * (scale if first_at_input else 1.0) * (second[:, None] if second_at_input else 1.0)
    rounded = _rounded(values, contract.weight_input, first_at_input + second_at_input)
    at_output = contract.applies("output", scheme.second_scale)
    group_scale = row_scale = output_scale = None
    if not first_at_input and _varies_along_k(scheme.granularity):
        if at_output[0]:
            raise ValueError("scale_application='output' needs channel or tensor scales, not group or block")
        group_scale = scale
    whole = [scale[:, 0]] if not first_at_input and group_scale is None else []
    whole += [second] if scheme.second_scale != "none" and not second_at_input else []
    if whole:
        row_scale = np.prod(whole, axis=0)
    if any(at_output):
        output_scale = (scale[:, 0] if at_output[0] else 1.0) * (second if at_output[1] else np.ones(len(columns)))
    return replace(rounded, group_scale=group_scale, row_scale=row_scale, output_scale=output_scale)


def activation_factor(case: Case, operands: Operands, contract: Contract, launch: Index, token: Index) -> Factor:
    """Activation rows (``launch[i]``, ``token[i]``), as the contract's kernel multiplies them.

    A scale of quantized activations meets the accumulator, unless the contract rounds activations: then the scaled
    value is what is rounded.
    """
    scheme, k = case.activation, case.problem.k
    values = scheme.format.decode(operands.activation[launch, token])
    if scheme.granularity is None or operands.activation_scale is None:
        return _rounded(values, contract.activation_input, multiplications=0)
    block_rows, _ = scheme.granularity.block_shape(case.problem.m, k)
    codes = operands.activation_scale[launch, token // block_rows]
    scale = _along_k(element_format(scheme.scale_format).decode(codes), scheme.granularity, k)
    if contract.activation_input != "exact":
        return _rounded(values * scale, contract.activation_input, multiplications=1)
    if _varies_along_k(scheme.granularity):
        return Factor(values, scale)
    return Factor(values, None, scale[:, 0])


def exact_weight(case: Case, operands: Operands) -> Array:
    """All dequantized weights, (E, N, K); experts that no token chose included."""
    strict, columns = Contract(case.output), np.arange(case.problem.n)
    experts = range(operands.weight.shape[0])
    return np.stack([weight_factor(case, operands, strict, e, columns).multiplier for e in experts])


def exact_activation(case: Case, operands: Operands) -> Array:
    """All dequantized activations, (L, M, K)."""
    launch, token = (index.ravel() for index in np.indices((operands.launches, case.problem.m)))
    factor = activation_factor(case, operands, Contract(case.output), launch, token)
    values = factor.along_k if factor.row_scale is None else factor.along_k * factor.row_scale[:, None]
    return values.reshape(operands.launches, case.problem.m, case.problem.k)


def bias_values(case: Case, operands: Operands) -> Array | None:
    """Bias (E, N), or None."""
    return None if operands.bias is None else element_format(case.output).decode(operands.bias)


def round_input(values: Array, name: str) -> Array:
    """Values rounded to a multiplier's input format; with fewer than 16 bits they saturate on overflow."""
    if name == "exact":
        return values
    target = element_format(name)
    return target.decode(target.encode(values, overflow="native" if target.bits >= 16 else "saturate"))


def _rounded(values: Array, name: str, multiplications: int) -> Factor:
    if name == "exact":
        return Factor(values)
    with np.errstate(over="ignore"):
        exact_in_fp32 = values.astype(np.float32).astype(np.float64) == values
    rounded = round_input(values, name)
    if multiplications == 0 or (exact_in_fp32 | ~np.isfinite(values)).all():
        return Factor(rounded)
    slack = np.where(exact_in_fp32, 0.0, multiplications * _FP32_ROUNDOFF)
    low, high = round_input(values * (1 - slack), name), round_input(values * (1 + slack), name)
    finite = np.isfinite(low) & np.isfinite(high)
    doubt = np.where(finite, np.abs(np.where(finite, high, 0.0) - np.where(finite, low, 0.0)), 0.0)
    return Factor(rounded, doubt=doubt if doubt.any() else None)


def _along_k(scales: Array, granularity: Granularity, k: int) -> Array:
    """Scales (rows, columns of the grid) repeated to (rows, K)."""
    _, block_columns = granularity.block_shape(1, k)
    return np.repeat(scales, block_columns, axis=1)[:, :k]


def _varies_along_k(granularity: Granularity) -> bool:
    return granularity.kind in ("group", "block")


def _zero_points(case: Case, codes: NDArray[np.unsignedinteger]) -> Array:
    integer = case.weight.zero_point == "integer"
    values = codes.astype(np.float64) if integer else element_format(case.output).decode(codes)
    return _along_k(values, case.weight.granularity, case.problem.k)


def _second_scale(case: Case, operands: Operands, expert: int, columns: Index) -> Array:
    if operands.weight_scale_2 is None:
        return np.ones(len(columns))
    if case.weight.second_scale == "tensor":
        value = element_format("fp32").decode(operands.weight_scale_2[expert])
        return np.broadcast_to(value, (len(columns),))
    return element_format(case.output).decode(operands.weight_scale_2[expert][columns])
