# SPDX-License-Identifier: Apache-2.0
"""An independent reference: scalar loops over `fractions.Fraction`, scales found by index arithmetic."""

from __future__ import annotations

from fractions import Fraction

from humming_conformance.formats import element_format
from humming_conformance.problems import Case, Operands


def weight(case: Case, operands: Operands, expert: int, n: int, k: int) -> Fraction:
    """One exact dequantized weight."""
    scheme, problem = case.weight, case.problem
    block_n, group = scheme.granularity.block_shape(problem.n, problem.k)
    value = _value(case.weight.element, operands.weight[expert, n, k])
    if operands.zero_point is not None:
        code = operands.zero_point[expert, n, k // group]
        value -= int(code) if scheme.zero_point == "integer" else _value(case.output, code)
    value *= _value(scheme.scale_format, operands.weight_scale[expert, n // block_n, k // group])
    if scheme.second_scale == "tensor":
        value *= _value("fp32", operands.weight_scale_2[expert, 0])
    elif scheme.second_scale == "channel":
        value *= _value(case.output, operands.weight_scale_2[expert, n])
    return value


def activation(case: Case, operands: Operands, launch: int, token: int, k: int) -> Fraction:
    """One exact dequantized activation."""
    scheme, problem = case.activation, case.problem
    value = _value(scheme.element, operands.activation[launch, token, k])
    if scheme.granularity is not None:
        block, group = scheme.granularity.block_shape(problem.m, problem.k)
        value *= _value(scheme.scale_format, operands.activation_scale[launch, token // block, k // group])
    return value


def expert_of(case: Case, operands: Operands, launch: int, row: int) -> int:
    """The expert of a row, 0 for dense problems."""
    token, slot = divmod(row, case.problem.top_k)
    return 0 if operands.expert is None else int(operands.expert[launch, token, slot])


def terms(case: Case, operands: Operands, launch: int, row: int, column: int) -> list[Fraction]:
    """The exact products of one output element."""
    expert, token = expert_of(case, operands, launch, row), row // case.problem.top_k
    return [
        activation(case, operands, launch, token, k) * weight(case, operands, expert, column, k)
        for k in range(case.problem.k)
    ]


def _value(name: str, code: int) -> Fraction:
    return Fraction(float(element_format(name).decode(code)))
