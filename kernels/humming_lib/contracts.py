# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of Humming's paths, read from its headers.

Line numbers are those of humming-kernels 0.1.20, below ``humming/include/humming/``. Where the weight scale
goes depends on the activation's width and the scale's granularity:

| path | weight scale | partial sums |
|---|---|---|
| `scaled_weight` (16-bit activations, group or block) | into the 16-bit weight, which rounds | fp32 |
| `channel_scale` (any activations, channel) | on the stored result | fp32, or int32 for int8 |
| `tensor_scale` (any activations, tensor) | on the whole sum, in fp32 | fp32, or int32 for int8 |
| `scaled_partial_sum` (8-bit activations, group or block) | on each group's sum, in fp32 | fp32 from there |
| `fused_e8m0` (8-bit activations, fp4, ue8m0) | into the 8-bit weight | fp32, or int32 for int8 |
| `integer_scale` (int8 activations, group) | as int16 on each group's sum | int32 |

A second-level scale of the matrix multiplies the whole sum in fp32, one of each channel the stored result.
Scales of activations in groups multiply each group's sum in fp32, whatever the path.

Not in the contract, because no document covers them (they count against the kernel): `fused_e8m0` keeps only
11 (fp8) or 3 (int8) binades of scales; `integer_scale` rounds scales to 1024 steps of one maximum; block
scales are rounded to 16 bits before they meet a 16-bit weight (arith/mainloop_arith.cuh:118).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from humming_conformance.oracle import tensor_core
from humming_conformance.oracle.contract import Contract
from humming_conformance.problems import Case
from humming_conformance.protocols import Route

ScalePath = Literal[
    "scaled_weight", "channel_scale", "tensor_scale", "scaled_partial_sum", "fused_e8m0", "integer_scale"
]

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
_SECOND_SCALE = (
    f"{_HEADERS}/epilogue/smem_writer.cuh:156,163 round the accumulator to the output format, then "
    "arith/epilogue_arith.cuh:218-220 multiply by the second-level channel scale in it"
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
    whole: dict[str, ScalePath] = {"channel": "channel_scale", "tensor": "tensor_scale"}
    if case.weight.granularity.kind in whole:
        return whole[case.weight.granularity.kind]
    return "scaled_weight" if case.activation.granularity is None else "scaled_partial_sum"


#: Fields of a contract, each with the source of its weakness (empty where it is none).
_Fields = dict[str, tuple[Any, str]]


def contract(case: Case, route: Route) -> Contract:
    """The contract of a route that the adapter reported: see the module docstring."""
    path: ScalePath = route.details["scale_path"]
    fields = _scales(case, path) | _accumulation(case, route, path) | _reduction(case, route)
    if case.problem.bias:
        fields["bias_application"] = ("after_rounding", _BIAS)
    if "batch_invariant" not in case.call:
        fields["batch_invariant"] = (False, _BATCH)
    sources = {name: source for name, (_, source) in fields.items() if source}
    return Contract(case.output, sources=sources, **{name: value for name, (value, _) in fields.items()})


def _scales(case: Case, path: ScalePath) -> _Fields:
    """Where scales meet the weight, and what they round."""
    fields: _Fields = {}
    if path == "scaled_weight" and case.weight.scale_format != "ue8m0":
        # A ue8m0 scale only moves the exponent: exact, so nothing weaker is claimed.
        fields["weight_input"] = (case.output, _SCALED_WEIGHT)
    if path in ("scaled_partial_sum", "integer_scale", "tensor_scale"):
        fields["scale_application"] = ("accumulator", "")
    if path == "channel_scale":
        fields["scale_application"] = ("output", _CHANNEL_SCALE)
    if case.weight.second_scale == "tensor":
        # arith/epilogue_arith.cuh:121-155.
        fields["second_scale_application"] = ("accumulator", "")
    if case.weight.second_scale == "channel":
        fields["second_scale_application"] = ("output", _SECOND_SCALE)
    return fields


def _accumulation(case: Case, route: Route, path: ScalePath) -> _Fields:
    """How products add up to a slice's sum."""
    fields: _Fields = {}
    activation = case.activation.granularity
    groups = [activation.group_size] if activation is not None else []
    groups += [case.weight.granularity.group_size] if path == "scaled_partial_sum" else []
    lengths = [length for length in groups if length is not None]
    if lengths:
        # arith/mainloop_arith.cuh:460,591, at the end of a group or of the warp's part of a K tile.
        fields["promotion_interval"] = (min(*lengths, route.details["warp_shape"][2]), "")
    if case.activation.element == "int8":
        return fields | {"accumulator_format": ("int32", _INTEGER)}
    sm = route.details["hardware_sm"]
    # kernel/humming.py:321: the code of sm_75 has mma.m16n8k8, wherever it executes.
    instruction_k = 8 if route.details["layer_config"]["sm_version"] == 75 else None
    step = tensor_core.tensor_core_step(sm, case.activation.format.bits, route.mma_class, instruction_k)
    where = f"{route.mma_class} on sm_{sm}: {tensor_core.SOURCE}"
    fields["step_length"] = (step.step_length, f"L={step.step_length}, {where}")
    fields["fraction_bits"] = (step.fraction_bits, f"F={step.fraction_bits}, {where}")
    if step.accumulator_bits != 23:
        source = f"P={step.accumulator_bits}, {where}; {_NO_PROMOTION}"
        fields["accumulator_bits"] = (step.accumulator_bits, source)
    return fields


def _reduction(case: Case, route: Route) -> _Fields:
    """How the slices of stream-K add up."""
    fields: _Fields = {"k_tile": (route.tile[2] if route.tile else 0, "")}
    if route.split_k > 1:
        fields["split_k"] = (route.split_k, _REDUCTION)
        fields["reduction_format"] = (case.output, _REDUCTION)
    if route.details["unordered"]:
        fields["repeatable"] = (False, _UNORDERED)
    return fields
