# SPDX-License-Identifier: Apache-2.0
"""What our own kernels must compute, in float64 from the codes, element by element and without the oracle."""

from __future__ import annotations

import numpy as np

from humming_conformance.formats import element_format
from humming_conformance.problems import build_operands, parse_case


def grid_index(granularity, rows, columns):
    """Row and column in the scale grid of every element of a matrix."""
    row, column = np.indices((rows, columns))
    return {
        "tensor": (0 * row, 0 * column),
        "channel": (row, 0 * column),
        "token": (row, 0 * column),
        "group": (row, column // (granularity.group_size or 1)),
        "block": (row // (granularity.group_size_n or 1), column // (granularity.group_size or 1)),
    }[granularity.kind]


def second_scale(case, operands, expert):
    """Second-level scales (N,) of an expert; 1 without one."""
    if operands.weight_scale_2 is None:
        return np.ones(case.problem.n)
    stored = "fp32" if case.weight.second_scale == "tensor" else case.output
    return np.broadcast_to(element_format(stored).decode(operands.weight_scale_2[expert]), case.problem.n)


def dequantized_weight(case, operands, expert):
    """Weight (N, K) of an expert, but for second-level scales, not yet rounded."""
    scheme, output = case.weight, element_format(case.output)
    row, column = grid_index(scheme.granularity, case.problem.n, case.problem.k)
    values = scheme.format.decode(operands.weight[expert])
    if operands.zero_point is not None:
        stored = operands.zero_point[expert]
        stored = stored.astype(float) if scheme.zero_point == "integer" else output.decode(stored)
        values = values - stored[np.indices(values.shape)[0], column]
    return values * element_format(scheme.scale_format).decode(operands.weight_scale[expert])[row, column]


def dequantized_activation(case, operands, launch):
    """Activations (M, K) of a launch, quantized ones rounded to the output format."""
    scheme = case.activation
    values = scheme.format.decode(operands.activation[launch])
    if scheme.granularity is None:
        return values
    scale = element_format(scheme.scale_format).decode(operands.activation_scale[launch])
    return element_format(case.output).round(values * scale[grid_index(scheme.granularity, *values.shape)])


def exact_output(case, operands, *, scaled_sums):
    """Results (L, rows, N) of rounded weights, and how far they may be off before the last rounding.

    That is what fp32 accumulation does to a sum, and rounding it before a bias is added. All our kernels round
    weights to the output format: with second-level scales, or (`scaled_sums`) before these multiply the sums.
    """
    problem, output = case.problem, element_format(case.output)
    results = np.zeros((operands.launches, problem.rows, problem.n))
    slack = np.zeros_like(results)
    experts = range(max(1, problem.experts))
    scales = [second_scale(case, operands, expert) for expert in experts]
    weights = [dequantized_weight(case, operands, expert) for expert in experts]
    if not scaled_sums:
        weights = [weight * scale[:, None] for weight, scale in zip(weights, scales, strict=True)]
        scales = [np.ones_like(scale) for scale in scales]
    weights = [output.round(weight) for weight in weights]
    for launch in range(operands.launches):
        activation = dequantized_activation(case, operands, launch)
        for row in range(problem.rows):
            token, slot = divmod(row, problem.top_k)
            expert = 0 if operands.expert is None else operands.expert[launch, token, slot]
            with np.errstate(invalid="ignore"):  # 0 * inf and inf - inf are NaN, as in a kernel
                products = weights[expert] * activation[token] * scales[expert][:, None]
                total = products.sum(axis=1)
            slack[launch, row] = problem.k * 2.0**-23 * np.abs(products).sum(axis=1)
            if operands.bias is not None:
                slack[launch, row] += output.spacing(total)
                total = total + output.decode(operands.bias[expert])
            results[launch, row] = total
    return results, slack


def assert_right(case_id, codes, *, scaled_sums=False):
    """Codes (L, rows, N) are the exact results but for fp32 accumulation and rounding."""
    case = parse_case(case_id)
    output = element_format(case.output)
    expected, slack = exact_output(case, build_operands(case), scaled_sums=scaled_sums)
    got = output.decode(codes)
    error = np.abs(got - expected)
    wrong = error > slack + output.spacing(np.maximum(np.abs(expected), np.abs(got)))
    assert got.shape == expected.shape
    assert not wrong.any(), f"{case_id}: {wrong.sum()} wrong, first at {np.argwhere(wrong)[0]}"


def assert_equal(case_id, codes, *, scaled_sums=False):
    """Codes (L, rows, N) are the exact results, rounded once."""
    case = parse_case(case_id)
    output = element_format(case.output)
    expected, _ = exact_output(case, build_operands(case), scaled_sums=scaled_sums)
    np.testing.assert_array_equal(output.decode(codes), output.round(expected), err_msg=case_id)
