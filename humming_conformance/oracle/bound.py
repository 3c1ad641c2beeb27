# SPDX-License-Identifier: Apache-2.0
"""The largest error that a contract allows, per element, from five sources.

Notation: u_f is the unit roundoff of format f; p ranges over the exact products a*w of one element, S = sum
|p|, and P = max(sum of positive p, sum of |negative p|) = (S + |sum p|) / 2. Whatever the order, the tiling
and the number of accumulators, every exact partial sum lies in [-P, P], and partial sums of disjoint sets add
up to at most S in magnitude.

**E1, accumulation.** A tensor-core step aligns L products and the accumulator to the largest exponent,
truncates each to F fraction bits, adds exactly and truncates the sum to P_a bits (Fasi et al., PeerJ CS
7:e330, 2021; MMA-Sim, arXiv 2511.10909). All its terms are at most P in magnitude, so a step adds at most
alpha * P of error, with alpha = (L + 1) 2^-F (1 + 2^-P_a) + 2^-P_a. A fused multiply-add (L = 1) rounds once:
alpha = 2^-(P_a + 1). As computed terms carry the errors so far, T steps give P ((1 + alpha)^T - 1). T is
ceil(K / L) + 1, K rounded up to whole tiles: the extra step covers w accumulators that share K and are added
in fp32. (Their chains give at most S ((1 + alpha)^(T/w) - 1) <= 2/w P ((1 + alpha)^T - 1), their w - 1
additions (w - 1) u_fp32 P; for w <= T that is at most the bound.) It likewise covers separate products and
additions in any tree when L = 1. If partial sums of at most p products (the promotion interval, or the groups
of scales applied to partial sums) move to an fp32 accumulator, the chains give S ((1 + alpha)^ceil(p/L) - 1)
and the fp32 additions, one per partial sum and one spare as above, S ((1 + u_fp32)^n - 1). An int32
accumulator is exact.

**E2, multiplier inputs.** Their rounding is part of the reference. What remains is the choice that rounding
to fp32 before the input format leaves to the kernel: ``reference.doubt``.

**E3, scales of sums and bias.** n multiplications of a whole sum: ((1 + u_fp32)^n - 1)(|sum p| + E1); n of
partial sums: ((1 + u_fp32)^n - 1) S; a bias added before rounding: u_fp32 of the result. An int32 sum turned
into fp32 counts as one multiplication.

**E4, split K.** Each of s partial results is a union of K tiles, rounded to format r; then s - 1 additions in
r, in any order. With Q+ and Q- the sums of the positive and of the |negative| tile sums and Q = max(Q+, Q-),
a union is at most Q in magnitude, the unions of a partition add up to at most Q+ + Q-, and running sums,
unions too, are at most Q: so u_r (Q+ + Q- + (s - 1) Q), with (1 + u_r)^(s-1) for the errors carried along,
and half the smallest subnormal of r for each of the 2s - 1 roundings. The sharper this is, the larger the
tiles: ``contract.k_tile``.

Where scales are applied to rounded outputs, every slice is rounded once more before its scale, which adds u_o
(Q+ + Q-) to what is carried. A bias added before rounding is in one slice; one added after rounding counts as
a partial result of its own, since slices may carry it or it may be added at the end: |bias| joins Q and Q+ +
Q-.

**E5, output.** Half the distance of neighbouring output values. Rounding to nearest is monotonic, so an
output is right if and only if it lies between the roundings of (reference - E) and (reference + E), E = E1 +
... + E4. A scale or bias applied to the rounded sum in the output format is monotonic as well, and part of
that rounding (but for a split K, where E4 has it).

Where the contract's narrow accumulator or reduction format may overflow, nothing is promised: E is infinite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from humming_conformance.formats import element_format
from humming_conformance.oracle.contract import Contract
from humming_conformance.oracle.dequantize import Array
from humming_conformance.oracle.reference import Reference
from humming_conformance.problems import Case

_FP32_ROUNDOFF = 2.0**-24
_FP16_FRACTION_BITS = 10


@dataclass(frozen=True, eq=False)
class Bound:
    """Error terms (L, rows, columns) of the judged region; the module docstring derives them.

    Attributes:
        accumulation: E1.
        multiplier_input: E2.
        scaling: E3.
        reduction: E4.
        reference: how far the float64 reference itself may be off.
        output: E5 for results larger in magnitude than the reference.
        output_below: E5 for results smaller in magnitude; less where the reference is near a power of two.
        lower, upper: the smallest and largest right output; -inf and inf where nothing is promised.
    """

    accumulation: Array
    multiplier_input: Array
    scaling: Array
    reduction: Array
    reference: Array
    output: Array
    output_below: Array
    lower: Array
    upper: Array

    @property
    def before_rounding(self) -> Array:
        """E1 + E2 + E3 + E4 and the reference's own error."""
        return self.accumulation + self.multiplier_input + self.scaling + self.reduction + self.reference

    @property
    def total(self) -> Array:
        """E1 + ... + E5."""
        return self.before_rounding + self.output


def round_output(
    case: Case, contract: Contract, product: Array, bias: Array, output_scale: Array | None = None
) -> Array:
    """Output values for exact products: rounded to nearest, overflow to infinity.

    Scale and bias join where the contract applies them; ``output_scale`` is :attr:`Reference.output_scale`.
    """
    output = element_format(contract.output_format)
    if output_scale is not None:
        return output.round(output.round(product / output_scale) * output_scale + bias)
    if contract.bias_application == "after_rounding" and case.problem.bias:
        return output.round(output.round(product) + bias)
    return output.round(product + bias)


def bound(case: Case, contract: Contract, reference: Reference) -> Bound:
    """The bound of every judged element. Elements with a non-finite reference get NaN terms."""
    with np.errstate(invalid="ignore", over="ignore"):
        return _bound(case, contract, reference)


def _bound(case: Case, contract: Contract, reference: Reference) -> Bound:
    product, bias = reference.product, reference.bias
    output = element_format(contract.output_format)
    accumulation = accumulation_error(case, contract, reference)
    scaling = _scaling_error(case, contract, reference, accumulation)
    so_far = accumulation + reference.doubt + scaling
    reduction = np.zeros_like(product)
    if contract.split_k > 1:
        reduction = reduction_error(case, contract, reference, so_far)
    if case.problem.bias and not _late_bias(case, contract):
        scaling = scaling + _FP32_ROUNDOFF * (np.abs(product + bias) + so_far + reduction)
    before = accumulation + reference.doubt + scaling + reduction + reference.error
    unlimited = np.isinf(before)
    finite = np.where(unlimited, 0.0, before)

    value = np.abs(product + bias)
    above, below = output.spacing(value + finite) / 2, output.spacing(np.maximum(value - before, 0.0)) / 2
    if contract.split_k > 1:
        lower, upper = output.round(product - finite + bias), output.round(product + finite + bias)
    else:
        first_rounding = _first_rounding(case, contract, reference, finite)
        above, below = above + first_rounding, below + first_rounding
        lower = round_output(case, contract, product - finite, bias, reference.output_scale)
        upper = round_output(case, contract, product + finite, bias, reference.output_scale)
    return Bound(
        accumulation=accumulation,
        multiplier_input=reference.doubt,
        scaling=scaling,
        reduction=reduction,
        reference=reference.error,
        output=above,
        output_below=below,
        lower=np.where(unlimited, -np.inf, lower),
        upper=np.where(unlimited, np.inf, upper),
    )


def _late_bias(case: Case, contract: Contract) -> bool:
    """Whether the bias meets a sum that was rounded to the output format."""
    late = contract.bias_application == "after_rounding" or any(contract.applies("output", case.weight.second_scale))
    return case.problem.bias and late


def _first_rounding(case: Case, contract: Contract, reference: Reference, before: Array) -> Array:
    """Half the distance of neighbouring outputs where a sum is rounded before its scale or bias; else 0."""
    output = element_format(contract.output_format)
    largest = np.abs(reference.product) + before
    if reference.output_scale is not None:
        scale = np.abs(reference.output_scale)
        return output.spacing(largest / scale) * scale / 2
    return output.spacing(largest) / 2 if _late_bias(case, contract) else np.zeros_like(largest)


def accumulation_error(case: Case, contract: Contract, reference: Reference) -> Array:
    """E1."""
    total = reference.magnitude
    peak = (total + np.abs(reference.product)) / 2
    segments, longest = _segments(case, contract)
    steps = math.ceil(longest / contract.step_length) + (segments == 1)
    growth = math.expm1(steps * math.log1p(_step_error(contract)))
    error = peak * growth
    if segments > 1:
        promotion = math.expm1((segments + 1) * math.log1p(_FP32_ROUNDOFF))
        error = total * (growth * (1 + promotion) + promotion)
    if reference.peak is not None and reference.unit is not None:
        fp16 = element_format("fp16")
        underflow = segments * steps * fp16.smallest_subnormal
        error = error + underflow * reference.unit
        error = np.where(reference.peak * (1 + growth) + underflow > fp16.maximum, np.inf, error)
    return np.where(peak > element_format("fp32").maximum, np.inf, error)


def reduction_error(case: Case, contract: Contract, reference: Reference, before: Array) -> Array:
    """E4, for partial results that are off by ``before`` in all."""
    target, output = element_format(contract.reduction_format), element_format(contract.output_format)
    roundoff, partials = target.unit_roundoff, contract.split_k + _late_bias(case, contract)
    bias = np.abs(reference.bias)
    largest = np.maximum(reference.positive, reference.negative) + bias
    together = reference.positive + reference.negative + bias
    arriving = before
    if reference.output_scale is not None:
        arriving = arriving + output.unit_roundoff * (together + before)
        arriving = arriving + partials * output.smallest_subnormal / 2 * np.abs(reference.output_scale)
    elif _late_bias(case, contract):
        arriving = arriving + output.unit_roundoff * (together + before) + partials * output.smallest_subnormal / 2
    carried = arriving + roundoff * (together + arriving)
    growth = math.expm1((partials - 1) * math.log1p(roundoff))
    after = carried * (1 + growth) + largest * growth + (2 * partials - 1) * target.smallest_subnormal / 2
    return np.where(largest + after > target.maximum, np.inf, after - np.where(np.isinf(before), 0.0, before))


def _scaling_error(case: Case, contract: Contract, reference: Reference, accumulation: Array) -> Array:
    """E3 without the bias."""
    of_sums, of_partial_sums = _scales_at_accumulator(case, contract)
    if contract.accumulator_format == "int32":
        if of_partial_sums:
            of_partial_sums += 1
        else:
            of_sums += 1
    arriving = np.abs(reference.product) + np.where(np.isinf(accumulation), 0.0, accumulation)
    whole = math.expm1(of_sums * math.log1p(_FP32_ROUNDOFF)) * arriving
    partial = math.expm1(of_partial_sums * math.log1p(_FP32_ROUNDOFF)) * reference.magnitude
    return whole + partial


def _step_error(contract: Contract) -> float:
    """Largest error of one accumulation step, relative to the largest partial sum."""
    if contract.accumulator_format == "int32":
        return 0.0
    bits = contract.accumulator_bits
    if contract.accumulator_format == "fp16":
        bits = min(bits, _FP16_FRACTION_BITS)
    if contract.step_length == 1:
        return 2.0 ** -(bits + 1)
    return (contract.step_length + 1) * 2.0**-contract.fraction_bits * (1 + 2.0**-bits) + 2.0**-bits


def _segments(case: Case, contract: Contract) -> tuple[int, int]:
    """Into how many partial sums K falls before an fp32 accumulator, and the length of the longest."""
    k = case.problem.k
    intervals = [interval for interval in _group_sizes(case, contract) if interval < k]
    if contract.promotion_interval is not None:
        intervals.append(contract.promotion_interval)
    if not intervals:
        # The order within a tile is free, so that a cut tile's terms may be spread over all its steps.
        tile = max(contract.k_tile, 1)
        return 1, -(-k // tile) * tile
    starts = {start for interval in intervals for start in range(0, k, interval)}
    return len(starts), min(*intervals, k)


def _group_sizes(case: Case, contract: Contract) -> list[int]:
    """Group sizes along K of the scales that are applied to partial sums."""
    sizes = []
    if contract.scale_application == "accumulator":
        sizes.append(case.weight.granularity.group_size)
    if contract.activation_input == "exact" and case.activation.granularity is not None:
        sizes.append(case.activation.granularity.group_size)
    return [size for size in sizes if size is not None]


def _scales_at_accumulator(case: Case, contract: Contract) -> tuple[int, int]:
    """How many scales multiply whole sums, and how many partial sums."""
    of_partial_sums = len(_group_sizes(case, contract))
    every = sum(contract.applies("accumulator", case.weight.second_scale))
    if contract.activation_input == "exact" and case.activation.granularity is not None:
        every += 1
    return every - of_partial_sums, of_partial_sums
