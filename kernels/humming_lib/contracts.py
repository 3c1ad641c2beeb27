# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of Humming's paths, read from its headers.

Line numbers are those of humming-kernels 0.1.20, below ``humming/include/humming/``. Where the weight scale
goes depends on the activation's width and the scale's granularity:

| path | weight scale | partial sums |
|---|---|---|
| `scaled_weight` (16-bit activations, group) | into the 16-bit weight, which rounds | fp32 |
| `channel_scale` (any activations, channel) | on the stored result | fp32, or int32 for int8 |
| `scaled_partial_sum` (8-bit activations, group) | on each group's sum, in fp32 | fp32 from there |
| `fused_e8m0` (8-bit activations, fp4, ue8m0) | into the 8-bit weight | fp32, or int32 for int8 |
| `integer_scale` (int8 activations, group) | as int16 on each group's sum | int32 |

Not in the contract, because no document covers them (they count against the kernel): `fused_e8m0` keeps only
11 (fp8) or 3 (int8) binades of scales; `integer_scale` rounds scales to 1024 steps of one maximum.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from humming_conformance.oracle import tensor_core
from humming_conformance.oracle.contract import Contract
from humming_conformance.problems import Case
from humming_conformance.protocols import Route

ScalePath = Literal["scaled_weight", "channel_scale", "scaled_partial_sum", "fused_e8m0", "integer_scale"]

_HEADERS = "humming-kernels 0.1.20, humming/include/humming"
_DOCS = "github.com/vllm-project/humming, docs/config.md"
_SCALED_WEIGHT = (
    f"{_HEADERS}/arith/mainloop_arith.cuh:172,231: with 16-bit activations __hmul2 multiplies the 16-bit "
    "weight by its group scale before the MMA"
)
_BIAS = (
    f"{_HEADERS}/epilogue/smem_writer.cuh:156,163 round the accumulator to the output format, then "
    "arith/epilogue_arith.cuh:218,222 add the bias in it"
)
_CHANNEL_SCALE = (
    f"{_HEADERS}/epilogue/smem_writer.cuh:156,163 round the accumulator to the output format, then "
    "arith/epilogue_arith.cuh:218-220 multiply by the channel scale in it, with the bias in one __hfma2"
)
_REDUCTION = (
    f"{_HEADERS}/epilogue/gmem_writer.cuh:150,198,200: later stream-K slices add to the output tensor; "
    f"{_DOCS}: 'the first slice stores each chunk, later slices reduce into it'; "
    "github.com/inclusionAI/humming/issues/31"
)
_UNORDERED = (
    f"{_HEADERS}/epilogue/pipeline.cuh:114: with TMA, or more than three slices and atomics, all slices but "
    "the first add in any order"
)
_BATCH = (
    f"{_DOCS}: batch invariance is use_batch_invariant, off by default; tiles and slices follow M "
    "(humming-kernels 0.1.20, humming/tune/base.py:522)"
)
_INTEGER = "humming-kernels 0.1.20, humming/kernel/humming.py:308: int8 activations accumulate in int32"
_NO_PROMOTION = (
    "DeepSeek-V3 (arXiv:2412.19437), section 3.5.2, measured about 14 bits; sums move to fp32 at group ends "
    f"only ({_HEADERS}/mma/wgmma.cuh:257)"
)


def scale_path(case: Case, layer_config: Mapping[str, Any]) -> ScalePath:
    """Where the weight scale goes for a case and the library's own ``LayerConfig`` of it, as a dictionary."""
    if layer_config.get("use_fused_e8m0_scale"):
        return "fused_e8m0"
    if layer_config.get("use_int_weight_scale"):
        return "integer_scale"
    if case.weight.granularity.kind != "group":
        return "channel_scale"
    return "scaled_weight" if case.activation.granularity is None else "scaled_partial_sum"


def contract(case: Case, route: Route) -> Contract:
    """The contract of a route that the adapter reported: see the module docstring."""
    details = route.details
    path: ScalePath = details["scale_path"]
    fields: dict[str, Any] = {"k_tile": route.tile[2] if route.tile else 0, "batch_invariant": False}
    sources = {"batch_invariant": _BATCH}

    if path == "scaled_weight" and case.weight.scale_format != "ue8m0":
        # A ue8m0 scale only moves the exponent of a 4-bit weight: exact, so nothing weaker is claimed.
        fields["weight_input"] = case.output
        sources["weight_input"] = _SCALED_WEIGHT
    if path in ("scaled_partial_sum", "integer_scale"):
        fields["scale_application"] = "accumulator"
    if path == "channel_scale":
        fields["scale_application"] = "output"
        sources["scale_application"] = _CHANNEL_SCALE
    if path == "scaled_partial_sum":
        # arith/mainloop_arith.cuh:460,591, at the end of a group or of the warp's part of a K tile.
        fields["promotion_interval"] = min(case.weight.granularity.group_size or 0, details["warp_shape"][2])

    if case.activation.element == "int8":
        fields["accumulator_format"] = "int32"
        sources["accumulator_format"] = _INTEGER
    else:
        step = tensor_core.tensor_core_step(details["hardware_sm"], case.activation.format.bits, route.mma_class)
        where = f"{route.mma_class} on sm_{details['hardware_sm']}"
        fields |= {"step_length": step.step_length, "fraction_bits": step.fraction_bits}
        sources["step_length"] = f"L={step.step_length}, {where}: {tensor_core.SOURCE}"
        sources["fraction_bits"] = f"F={step.fraction_bits}, {where}: {tensor_core.SOURCE}"
        if step.accumulator_bits != 23:
            fields["accumulator_bits"] = step.accumulator_bits
            sources["accumulator_bits"] = f"P={step.accumulator_bits}, {where}: {tensor_core.SOURCE}; {_NO_PROMOTION}"

    if case.problem.bias:
        fields["bias_application"] = "after_rounding"
        sources["bias_application"] = _BIAS
    if route.split_k > 1:
        fields |= {"split_k": route.split_k, "reduction_format": case.output}
        sources |= {"split_k": _REDUCTION, "reduction_format": _REDUCTION}
    if details["unordered"]:
        fields["repeatable"] = False
        sources["repeatable"] = _UNORDERED
    return Contract(output_format=case.output, sources=sources, **fields)
