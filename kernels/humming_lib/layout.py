# SPDX-License-Identifier: Apache-2.0
"""Neutral operands as the tensors that Humming documents for a layer before ``transform()``.

Codes and scales are ours, bit for bit; nothing is quantized by the library. Shapes, with a leading E for MoE:

| tensor | shape, dtype | layout |
|---|---|---|
| `weight` | (N, K * bits / 32) int32 | little-endian bit stream along K |
| `weight_scale` | group (N, K / group), channel (N, 1), the scale's dtype | |
| | block (N / rows, K / columns), tensor (1,), fp32 | |
| `weight_scale_2` | tensor (1,) fp32; channel (N,), the output's dtype | |
| `zero_point` | integer (N * bits / 32, K / group) int32 | little-endian bit stream along N |
| | float (N, K / group), the output's dtype | |
| `bias` | (N,), the output's dtype | |

What has one number a matrix is (E,) for MoE.

Integer weights are offset binary: a code without zero point stands for code - 2^(bits - 1), so a two's
complement code has its top bit flipped. Sources: `HummingWeightSchema.get_tensors_attrs` (schema/humming.py
of humming-kernels 0.1.20) for names, shapes and dtypes; the comment in `convert_symmetric_integer_weight`
there for offset binary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from humming_conformance.formats import IntegerFormat, pack_bits
from humming_conformance.problems import Case, Operands

if TYPE_CHECKING:
    import torch

#: Our format names to Humming's.
DTYPES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "int3": "uint3",
    "int4": "uint4",
    "uint4": "uint4",
    "int8": "uint8",
    "uint8": "uint8",
    "fp4_e2m1": "float4e2m1",
    "fp8_e4m3": "float8e4m3",
    "ue8m0": "float8e8m0",
}

#: Our format names to torch dtypes, for what torch can hold.
TORCH_DTYPES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "int8": "int8",
    "fp8_e4m3": "float8_e4m3fn",
    "ue8m0": "float8_e8m0fnu",
}

#: What fills activation rows that belong to nobody: NaN, or for int8 its largest value (its scale is NaN).
POISON_CODES = {"bf16": 0x7FC0, "fp16": 0x7E00, "fp8_e4m3": 0x7F, "int8": 0x7F}

#: N's padding by the activation's width: what 16-bit activations need on sm_90, else the least that
#: ``transform_humming_weight`` takes.
_PAD_N = {16: 128, 8: 64, 4: 64}


def padding(case: Case) -> tuple[int, int]:
    """Multiples that a layer's N and K are padded to; for K the least that ``transform_humming_weight`` takes."""
    bits = case.activation.format.bits
    return _PAD_N[bits], 512 // bits


def as_torch(codes: NDArray[Any], format_name: str) -> torch.Tensor:
    """Codes of any shape as a CPU tensor of the format's torch dtype with the same bits."""
    import torch

    signed = np.ascontiguousarray(codes).view(f"i{codes.dtype.itemsize}")
    dtype: torch.dtype = getattr(torch, TORCH_DTYPES[format_name])
    return torch.from_numpy(signed).view(dtype)


def weight_config(case: Case) -> dict[str, Any]:
    """The ``weight_config`` of ``HummingLayer``; a new one at every call, because the layer changes it."""
    weight = case.weight
    config: dict[str, Any] = {
        "quant_method": "humming",
        "dtype": DTYPES[weight.element],
        "group_size": weight.granularity.group_size or 0,
        "has_zero_point": weight.zero_point != "none",
    }
    if weight.zero_point == "float":
        config["is_fp_zero_point"] = True
    if weight.granularity.kind == "tensor":
        config["scale_type"] = "tensor"
    if weight.granularity.group_size_n is not None:
        config["group_size_n"] = weight.granularity.group_size_n
    if weight.scale_format not in (case.output, "fp32"):
        config["scale_dtype"] = DTYPES[weight.scale_format]
    if weight.second_scale != "none":
        config["scale_2_type"] = weight.second_scale
    return config


def input_config(case: Case) -> dict[str, Any] | None:
    """The ``input_config`` of ``HummingLayer``: None for 16-bit activations, else scales per token or group."""
    granularity = case.activation.granularity
    if granularity is None:
        return None
    dtype = {"int8": "int8"}.get(case.activation.element) or DTYPES[case.activation.element]
    config: dict[str, Any] = {"quant_method": "humming", "dtype": dtype}
    if granularity.group_size is not None:
        config["group_size"] = granularity.group_size
    return config


def weight_tensors(case: Case, operands: Operands) -> dict[str, torch.Tensor]:
    """The layer's tensors by their documented names, on the CPU."""
    import torch

    element = case.weight.format
    codes = operands.weight
    if isinstance(element, IntegerFormat) and element.signed:
        codes = codes ^ (1 << (element.bits - 1))
    tensors = {
        "weight": torch.from_numpy(pack_bits(codes, element.bits).view(np.int32)),
        "weight_scale": as_torch(operands.weight_scale, case.weight.scale_format),
    }
    if case.weight.granularity.kind == "tensor":
        tensors["weight_scale"] = tensors["weight_scale"].flatten(1)  # (E, 1, 1) to (E, 1)
    if operands.weight_scale_2 is not None:
        second_format = "fp32" if case.weight.second_scale == "tensor" else case.output
        tensors["weight_scale_2"] = as_torch(operands.weight_scale_2, second_format)
    if operands.zero_point is not None and case.weight.zero_point == "float":
        tensors["zero_point"] = as_torch(operands.zero_point, case.output)
    elif operands.zero_point is not None:
        along_n = pack_bits(operands.zero_point.swapaxes(-1, -2), element.bits)
        tensors["zero_point"] = torch.from_numpy(np.ascontiguousarray(along_n.swapaxes(-1, -2)).view(np.int32))
    if operands.bias is not None:
        tensors["bias"] = as_torch(operands.bias, case.output)
    if not case.problem.experts:
        return {name: tensor[0] for name, tensor in tensors.items()}
    one_a_matrix = [name for name, tensor in tensors.items() if tensor.shape[1:] == (1,)]
    return tensors | {name: tensors[name].flatten() for name in one_a_matrix}
