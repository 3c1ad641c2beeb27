# SPDX-License-Identifier: Apache-2.0
"""Correct kernels, most of them with looser contracts than the strictest."""

from __future__ import annotations

from dataclasses import replace

from tests.wrong_kernels.bases import (
    FP4,
    FP8,
    FP8_BLOCK,
    INT4,
    INT4_HALF,
    INT4_LONG,
    INT8,
    INTEGER,
    MOE,
    NVFP4,
    NVFP4_CHANNEL,
    OUTPUT_SCALED,
    PROMOTED,
    ROUNDED,
    STEP,
    TENSOR_CORE,
    ZERO_POINT,
    contract,
)
from tests.wrong_kernels.kernels import ModelKernel

CORRECT_KERNELS = (
    ModelKernel("strict", "fp32 fused multiply-add, exact weights", INT4, contract()),
    ModelKernel("tensor_core", "Steps of 16 products, 25 fraction bits", FP4, TENSOR_CORE),
    ModelKernel("declares_rounded_weight", "Weights rounded to bf16, declared", INT4_LONG, ROUNDED),
    ModelKernel(
        "declares_bf16_split",
        "K split in 4, partial results in bf16, declared",
        INT4_LONG,
        contract(**STEP, weight_input="bf16", split_k=4, k_tile=64, reduction_format="bf16"),
    ),
    ModelKernel("declares_promotion", "fp8, 13 bits, promoted every 128, declared", FP8, PROMOTED),
    ModelKernel(
        "scaled_partial_sums",
        "fp8, 13 bits, block scales on the sums of groups",
        FP8_BLOCK,
        replace(PROMOTED, promotion_interval=None),
    ),
    ModelKernel("declares_int32", "int32 accumulator, scales on the result", INT8, INTEGER),
    ModelKernel(
        "declares_output_scale",
        "int32 accumulator, channel scale on the rounded result, declared",
        INT8,
        OUTPUT_SCALED,
    ),
    ModelKernel(
        "declares_split_output_scale",
        "the same with K split in 4, bf16 partial results and a bias",
        f"{INT8}-bias",
        contract(
            scale_application="output",
            accumulator_format="int32",
            split_k=4,
            k_tile=32,
            reduction_format="bf16",
            bias_application="after_rounding",
        ),
    ),
    ModelKernel(
        "declares_second_output_scale",
        "nvfp4, second-level scale on the rounded result, declared",
        f"{NVFP4_CHANNEL}-bias",
        contract(**STEP, second_scale_application="output", bias_application="after_rounding"),
    ),
    ModelKernel(
        "declares_second_accumulator_scale",
        "nvfp4, second-level scale on the fp32 sum",
        NVFP4,
        contract(**STEP, second_scale_application="accumulator"),
    ),
    ModelKernel(
        "declares_fp16_accumulator",
        "fp16 accumulator, declared",
        INT4_HALF,
        contract("fp16", **STEP, weight_input="fp16", accumulator_format="fp16"),
    ),
    ModelKernel(
        "declares_late_bias",
        "Bias added to the rounded result, declared",
        ZERO_POINT,
        contract(**STEP, weight_input="bf16", bias_application="after_rounding"),
    ),
    ModelKernel("mixture_of_experts", "MoE, weights rounded to bf16, declared", MOE, ROUNDED),
)

#: Kernels that violate a field which no output shows by itself: the bound counts one truncation for each
#: product, however they fall into steps, and partial results are no larger when cut inside tiles.
UNSEEN_KERNELS = (
    ModelKernel(
        "short_steps",
        "Adds 4 products a step, declares 16",
        INT4_LONG,
        ROUNDED,
        executed=lambda _m: replace(ROUNDED, step_length=4),
        violates="step_length",
    ),
    ModelKernel(
        "cut_inside_tiles",
        "Cuts K in 3 at multiples of 8, declares multiples of 128",
        INT4_LONG,
        contract(**STEP, weight_input="bf16", split_k=3, k_tile=128, reduction_format="bf16"),
        executed=lambda _m: contract(**STEP, weight_input="bf16", split_k=3, k_tile=8, reduction_format="bf16"),
        violates="k_tile",
    ),
)
