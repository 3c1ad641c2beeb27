# SPDX-License-Identifier: Apache-2.0
"""Cases and contracts that model kernels share."""

from __future__ import annotations

from typing import Any

from humming_conformance.oracle.contract import Contract

INT4 = "dense-w_int4.g32.bf16-a_bf16-m17.n48.k256"
INT4_TAIL = "dense-w_int4.g32.bf16-a_bf16-m17.n48.k232"
INT4_LONG = "dense-w_int4.g128.bf16-a_bf16-m32.n8.k2048"
INT4_HALF = "dense-w_int4.g32.fp16-a_fp16-m17.n48.k256"
ZERO_POINT = "dense-w_uint4.g32.bf16.zp-a_bf16-m17.n48.k256-bias"
FP4 = "dense-w_fp4_e2m1.g32.ue8m0-a_bf16-m17.n48.k256"
NVFP4 = "moe_indexed-w_fp4_e2m1.g16.fp8_e4m3.s2tensor-a_bf16-m24.n40.k64.e4.top2"
NVFP4_CHANNEL = "dense-w_fp4_e2m1.g16.fp8_e4m3.s2channel-a_bf16-m17.n48.k256"
FP8 = "dense-w_fp8_e4m3.channel.fp32-a_fp8_e4m3.token-m32.n8.k2048"
FP8_BLOCK = "dense-w_fp8_e4m3.b128x128.fp32-a_fp8_e4m3.g128-m17.n48.k384"
FP8_GROUPS = "dense-w_int4.g64.bf16-a_fp8_e4m3.g64-m17.n48.k256"
INT8 = "dense-w_int8.channel.fp32-a_int8.token-m17.n48.k256"
MOE = "moe_indexed-w_int4.g32.bf16-a_bf16-m24.n40.k64.e4.top2.empty_last"

_SCALES = ("scale_application", "second_scale_application")
_HERE = "tests/wrong_kernels: the model executes it"


def contract(output: str = "bf16", **fields: Any) -> Contract:
    """A contract that names this model as the source of whatever it weakens."""
    sources = {name: _HERE for name in fields if name in (*Contract.NEEDS_SOURCE, *_SCALES)}
    return Contract(output, sources=sources, **fields)


STEP = {"step_length": 16, "fraction_bits": 25}
TENSOR_CORE = contract(**STEP)
ROUNDED = contract(**STEP, weight_input="bf16")
ROUNDED_HALF = contract("fp16", **STEP, weight_input="fp16")
PROMOTED = contract(
    scale_application="accumulator",
    step_length=32,
    fraction_bits=13,
    accumulator_bits=13,
    promotion_interval=128,
)
INTEGER = contract(scale_application="accumulator", accumulator_format="int32")
OUTPUT_SCALED = contract(scale_application="output", accumulator_format="int32")
