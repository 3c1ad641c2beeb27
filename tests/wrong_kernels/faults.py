# SPDX-License-Identifier: Apache-2.0
"""Deliberately wrong kernels, at least one for each contract field and fault class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from humming_conformance.formats import element_format
from humming_conformance.oracle.contract import Contract
from humming_conformance.problems import Case, Operands
from tests.wrong_kernels import misreadings
from tests.wrong_kernels.bases import (
    FP4,
    FP8,
    FP8_GROUPS,
    INT4,
    INT4_HALF,
    INT4_LONG,
    INT4_TAIL,
    INT8,
    INTEGER,
    MOE,
    NVFP4,
    NVFP4_CHANNEL,
    OUTPUT_SCALED,
    PROMOTED,
    ROUNDED,
    ROUNDED_HALF,
    STEP,
    TENSOR_CORE,
    ZERO_POINT,
    contract,
)
from tests.wrong_kernels.kernels import Launched, ModelKernel

Array = NDArray[np.float64]


_SPLIT = contract(**STEP, weight_input="bf16", split_k=4, k_tile=64, reduction_format="bf16")


def _always(executed: Contract) -> Callable[[int], Contract]:
    return lambda _m: executed


def _one_element_zeroed(sums: Array, launched: Launched) -> Array:  # noqa: ARG001
    spoiled = sums.copy()
    spoiled[:, sums.shape[1] // 2, sums.shape[2] // 2] = 0
    return spoiled


def _last_row_zeroed(sums: Array, launched: Launched) -> Array:  # noqa: ARG001
    spoiled = sums.copy()
    spoiled[:, -1] = 0
    return spoiled


def _one_per_cent_up(sums: Array, launched: Launched) -> Array:  # noqa: ARG001
    return sums * 1.01


def _one_in_a_thousand_half_summed(sums: Array, launched: Launched) -> Array:
    place = np.arange(sums.size).reshape(sums.shape) % 1009 == 500
    return np.where(place, launched.first_half(), sums)


def _one_more_ulp_every_other_call(sums: Array, launched: Launched) -> Array:
    spoiled = sums.copy()
    if launched.call % 2:
        spoiled[0, 0, 0] *= 1 + 2.0**-7
    return spoiled


def _saturates(sums: Array, launched: Launched) -> Array:
    limit = element_format(launched.case.output).maximum
    return np.clip(sums, -limit, limit)


def _adds_unhit_experts_times_zero(sums: Array, launched: Launched) -> Array:
    scales = element_format(launched.case.weight.scale_format).decode(launched.operands.weight_scale)
    return sums + 0.0 * scales.sum()


def _scale_products_rounded(sums: Array, launched: Launched) -> Array:
    """Of a dense problem whose weights and activations have groups of one size."""
    case, operands = launched.case, launched.operands
    granularity = case.activation.granularity
    assert granularity is not None
    assert granularity.group_size is not None
    assert granularity == case.weight.granularity
    assert operands.activation_scale is not None
    size, bf16 = granularity.group_size, element_format("bf16")
    weight = case.weight.format.decode(operands.weight[0])
    activation = case.activation.format.decode(operands.activation)
    weight_scale = element_format(case.weight.scale_format).decode(operands.weight_scale[0])
    activation_scale = element_format(case.activation.scale_format).decode(operands.activation_scale)
    spoiled = sums.copy()
    for group in range(weight_scale.shape[1]):
        columns = slice(group * size, (group + 1) * size)
        product = activation_scale[:, :, group, None] * weight_scale[:, group]
        partial_sum = activation[:, :, columns] @ weight[:, columns].T
        spoiled += (bf16.decode(bf16.encode(product)) - product) * partial_sum
    return spoiled


def _wrong(name: str, what: str, fault_class: str, base: str, declared: Contract, **fields: Any) -> ModelKernel:
    return ModelKernel(name, what, base, declared, fault_class=fault_class, **fields)


def _misreads(
    read: Callable[[Case, Operands], Operands], fault_class: str, base: str, declared: Contract
) -> ModelKernel:
    what = (read.__doc__ or "").rstrip(".")
    return ModelKernel(read.__name__, what, base, declared, read=read, fault_class=fault_class)


WRONG_KERNELS = (
    _misreads(misreadings.nibbles_swapped, "layout", INT4, ROUNDED),
    _misreads(misreadings.order_swapped_in_one_group, "layout", INT4, ROUNDED),
    _misreads(misreadings.tokens_swapped, "layout", INT4, ROUNDED),
    _misreads(misreadings.lowest_code_is_highest, "layout", INT4, ROUNDED),
    _misreads(misreadings.subnormal_is_zero, "layout", FP4, TENSOR_CORE),
    _misreads(misreadings.neighbours_scale, "scale index", INT4, ROUNDED),
    _misreads(misreadings.last_group_from_previous, "scale index", INT4, ROUNDED),
    _misreads(misreadings.one_scale_doubled, "scale index", FP4, TENSOR_CORE),
    _misreads(misreadings.second_scale_of_first_expert, "scale index", NVFP4, ROUNDED),
    _misreads(misreadings.token_scale_of_next, "scale index", FP8, PROMOTED),
    _misreads(misreadings.scales_cut_to_range, "precision", FP4, TENSOR_CORE),
    _misreads(misreadings.scales_cut_to_eight_binades, "scale index", FP4, TENSOR_CORE),
    _wrong(
        "scale_product_rounded",
        "Rounds the product of activation and weight scale to bf16, declares it exact",
        "scale index",
        FP8_GROUPS,
        PROMOTED,
        spoil=_scale_products_rounded,
    ),
    _misreads(misreadings.zero_point_off_by_one, "zero point", ZERO_POINT, ROUNDED),
    _misreads(misreadings.zero_point_of_previous_group, "zero point", ZERO_POINT, ROUNDED),
    _misreads(misreadings.drops_k_tail, "tail", INT4_TAIL, ROUNDED),
    _misreads(misreadings.last_column_from_left, "tail", INT4, ROUNDED),
    _wrong("last_row_zeroed", "Leaves the last row zero", "tail", INT4, ROUNDED, spoil=_last_row_zeroed),
    _misreads(misreadings.wrong_expert_for_last_rows, "wrong expert", MOE, ROUNDED),
    _wrong(
        "adds_unhit_experts",
        "Adds zero times the scales of every expert, those without rows included",
        "wrong expert",
        MOE,
        ROUNDED,
        spoil=_adds_unhit_experts_times_zero,
    ),
    _misreads(misreadings.nan_read_as_zero, "precision", INT4, ROUNDED),
    _misreads(misreadings.bias_twice, "race", ZERO_POINT, ROUNDED),
    _wrong(
        "half_summed",
        "Leaves out the second half of K in one element of a thousand",
        "race",
        INT4,
        ROUNDED,
        spoil=_one_in_a_thousand_half_summed,
    ),
    _wrong("one_element_zeroed", "Zeroes one element", "race", INT4, ROUNDED, spoil=_one_element_zeroed),
    _wrong("one_per_cent_up", "Multiplies all by 1.01", "precision", INT4, ROUNDED, spoil=_one_per_cent_up),
    replace(_misreads(misreadings.activations_in_fp8, "precision", INT4, ROUNDED), violates="activation_input"),
    _wrong(
        "weight_rounded",
        "Rounds scaled weights to bf16, declares them exact",
        "precision",
        INT4,
        TENSOR_CORE,
        executed=_always(ROUNDED),
        violates="weight_input",
    ),
    _wrong(
        "weight_in_fp8",
        "Rounds scaled weights to fp8, declares bf16",
        "precision",
        INT4,
        ROUNDED,
        executed=_always(replace(ROUNDED, weight_input="fp8_e4m3")),
        violates="weight_input",
    ),
    _wrong(
        "scale_before_product",
        "Multiplies the scale into the rounded weight, declares it on the exact sum",
        "precision",
        INT4,
        contract(**STEP, weight_input="bf16", scale_application="accumulator"),
        executed=_always(ROUNDED),
        violates="scale_application",
    ),
    _wrong(
        "rounded_before_scale",
        "Rounds the sum to bf16 before the channel scale, declares the scale on the fp32 sum",
        "precision",
        INT8,
        INTEGER,
        executed=_always(OUTPUT_SCALED),
        violates="scale_application",
    ),
    _wrong(
        "rounded_before_second_scale",
        "Rounds the sum to bf16 before the second-level scale, declares that scale on the fp32 sum",
        "precision",
        NVFP4_CHANNEL,
        contract(**STEP, second_scale_application="accumulator"),
        executed=_always(contract(**STEP, second_scale_application="output")),
        violates="second_scale_application",
    ),
    _wrong(
        "fraction_13_bits",
        "Aligns terms to 13 fraction bits, declares 25",
        "precision",
        INT4_LONG,
        ROUNDED,
        executed=_always(contract(step_length=16, fraction_bits=13, weight_input="bf16")),
        violates="fraction_bits",
    ),
    _wrong(
        "accumulator_13_bits",
        "Keeps 13 fraction bits between steps, declares 23",
        "precision",
        INT4_LONG,
        ROUNDED,
        executed=_always(contract(**STEP, weight_input="bf16", accumulator_bits=13)),
        violates="accumulator_bits",
    ),
    _wrong(
        "fp16_accumulator",
        "Accumulates in fp16, declares fp32",
        "precision",
        INT4_HALF,
        ROUNDED_HALF,
        executed=_always(contract("fp16", **STEP, weight_input="fp16", accumulator_format="fp16")),
        violates="accumulator_format",
    ),
    _wrong(
        "fp32_for_int32",
        "Accumulates integers in tensor-core steps of 13 bits, declares int32",
        "precision",
        INT8,
        INTEGER,
        executed=_always(
            contract(scale_application="accumulator", step_length=32, fraction_bits=13, accumulator_bits=13)
        ),
        violates="accumulator_format",
    ),
    _wrong(
        "unpromoted",
        "Keeps 13 bits over all of K, declares promotion every 128",
        "precision",
        FP8,
        PROMOTED,
        executed=_always(replace(PROMOTED, promotion_interval=None)),
        violates="promotion_interval",
    ),
    _wrong(
        "bf16_between_k_blocks",
        "Adds the sums of K blocks of 64 in bf16, declares one fp32 sum",
        "precision",
        INT4,
        ROUNDED,
        executed=_always(_SPLIT),
        violates="split_k",
    ),
    _wrong(
        "bf16_reduction",
        "Splits K in 4 as declared, reduces in bf16, declares fp32",
        "precision",
        INT4,
        contract(**STEP, weight_input="bf16", split_k=4, k_tile=64),
        executed=_always(_SPLIT),
        violates="reduction_format",
    ),
    _wrong(
        "bias_after_rounding",
        "Rounds, adds the bias, rounds again; declares one rounding",
        "precision",
        ZERO_POINT,
        ROUNDED,
        executed=_always(contract(**STEP, weight_input="bf16", bias_application="after_rounding")),
        violates="bias_application",
    ),
    _wrong(
        "output_truncated",
        "Truncates its output instead of rounding it",
        "precision",
        INT4,
        ROUNDED,
        truncate=True,
        violates="output_format",
    ),
    _wrong(
        "overflow_saturates",
        "Clamps its output to the largest finite value",
        "precision",
        INT4_HALF,
        ROUNDED_HALF,
        spoil=_saturates,
        violates="output_format",
    ),
    _wrong(
        "not_repeatable",
        "Moves one element by an ulp in every other call",
        "race",
        INT4,
        ROUNDED,
        spoil=_one_more_ulp_every_other_call,
        violates="repeatable",
        shown_by="repeat",
    ),
    _wrong(
        "batch_dependent",
        "Splits K in 4 as declared, but not for a single token",
        "race",
        INT4,
        _SPLIT,
        executed=lambda m: _SPLIT if m > 1 else ROUNDED,
        violates="batch_invariant",
        shown_by="fewer",
    ),
    _wrong(
        "small_batch_dependent",
        "Splits K in 4 as declared, but not for 2 to 16 tokens",
        "race",
        INT4,
        _SPLIT,
        executed=lambda m: ROUNDED if 1 < m <= 16 else _SPLIT,
        violates="batch_invariant",
        shown_by="fewer",
    ),
    _wrong(
        "row_past_the_count",
        "Writes the row behind its last one",
        "unowned write",
        INT4,
        ROUNDED,
        shown_by="guard",
    ),
)
