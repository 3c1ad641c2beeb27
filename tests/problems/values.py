# SPDX-License-Identifier: Apache-2.0
"""Exact values of operands by the formats' own decoders, for tests that check what a regime promises."""

import numpy as np

from humming_conformance.formats import element_format


def weights(case, operands):
    """Dequantized weights (E, N, K), scales and zero points applied, float64."""
    weight, granularity = case.weight, case.weight.granularity
    n, k = case.problem.n, case.problem.k
    values = weight.format.decode(operands.weight)
    if operands.zero_point is not None:
        code_format = weight.format if weight.zero_point == "integer" else element_format(case.output)
        _, group = granularity.block_shape(n, k)
        values = values - np.repeat(code_format.decode(operands.zero_point), group, axis=2)[:, :, :k]
    values = values * granularity.expand(scales(case, operands), n, k)
    if operands.weight_scale_2 is not None:
        second = element_format("fp32" if weight.second_scale == "tensor" else case.output)
        values = values * second.decode(operands.weight_scale_2)[:, :, None]
    return values


def scales(case, operands):
    """Weight scales, as the granularity lays them out, float64."""
    return element_format(case.weight.scale_format).decode(operands.weight_scale)


def activation_scales(case, operands):
    """Activation scale of every element (L, M, K), 1 for 16-bit activations."""
    shape = operands.activation.shape
    if operands.activation_scale is None:
        return np.ones(shape)
    decoded = element_format(case.activation.scale_format).decode(operands.activation_scale)
    return case.activation.granularity.expand(decoded, shape[1], shape[2])


def activations(case, operands):
    """Activations (L, M, K) with their scales, float64."""
    with np.errstate(invalid="ignore"):
        return case.activation.format.decode(operands.activation) * activation_scales(case, operands)


def biases(case, operands):
    """Bias (E, N), 0 where there is none."""
    if operands.bias is None:
        return np.zeros((operands.weight.shape[0], case.problem.n))
    return element_format(case.output).decode(operands.bias)


def experts(operands):
    """Expert of each token and slot (L, M, top_k); 0 for dense problems."""
    if operands.expert is None:
        return np.zeros((*operands.activation.shape[:2], 1), dtype=np.int32)
    return operands.expert
