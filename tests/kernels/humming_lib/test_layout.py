# SPDX-License-Identifier: Apache-2.0
"""Operands as the tensors that Humming documents: words written by hand."""

import numpy as np
import pytest
import torch

from humming_conformance.kernels.humming_lib import layout
from humming_conformance.problems import Case, Operands, build_operands, parse_case


def _case(weight: str, activation: str = "bf16", kind: str = "dense", n: int = 8, experts: str = "") -> Case:
    return parse_case(f"{kind}-w_{weight}-a_{activation}-m4.n{n}.k32{experts}-random")


def _operands(weight: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None = None) -> Operands:
    return Operands(
        weight=weight,
        weight_scale=scale,
        zero_point=zero_point,
        weight_scale_2=None,
        activation=np.zeros((1, 4, 32), np.uint16),
        activation_scale=None,
        expert=None,
        bias=None,
    )


def _words(tensor: torch.Tensor) -> list[int]:
    """The words of a tensor as unsigned numbers, flattened."""
    return [word & 0xFFFFFFFF for word in tensor.flatten().tolist()]


def test_int4_codes_become_offset_binary_along_k():
    """Two's complement codes 0…15 in order become offset binary 8…15, 0…7, first code in the lowest bits."""
    codes = np.tile(np.arange(16, dtype=np.uint8), (1, 8, 2))
    scale = np.full((1, 8, 1), 0x3F80, np.uint16)
    tensors = layout.weight_tensors(_case("int4.g32.bf16"), _operands(codes, scale))
    assert tensors["weight"].dtype == torch.int32
    assert tensors["weight"].shape == (8, 4)
    assert _words(tensors["weight"][0]) == [0xFEDCBA98, 0x76543210, 0xFEDCBA98, 0x76543210]
    assert tensors.keys() == {"weight", "weight_scale"}


def test_int8_codes_become_offset_binary():
    """The bytes -128, -1, 0 and 127 become 0, 127, 128 and 255."""
    codes = np.zeros((1, 8, 32), np.uint8)
    codes[0, 0, :4] = [0x80, 0xFF, 0x00, 0x7F]
    scale = np.full((1, 8, 1), 0x3F80, np.uint16)
    tensors = layout.weight_tensors(_case("int8.channel.bf16"), _operands(codes, scale))
    assert _words(tensors["weight"][0])[:2] == [0xFF807F00, 0x80808080]


def test_uint4_codes_stay_and_zero_points_are_packed_along_n():
    """With a zero point codes stay as they are, and eight rows' zero points share a word of each group."""
    codes = np.tile(np.arange(16, dtype=np.uint8), (1, 16, 4))
    zero_point = np.stack([np.arange(16, dtype=np.uint8), np.arange(16, dtype=np.uint8)[::-1]], axis=1)[None]
    case = parse_case("dense-w_uint4.g32.bf16.zp-a_bf16-m4.n16.k64-random")
    tensors = layout.weight_tensors(case, _operands(codes, np.full((1, 16, 2), 0x3F80, np.uint16), zero_point))
    assert _words(tensors["weight"][0])[:2] == [0x76543210, 0xFEDCBA98]
    assert tensors["zero_point"].shape == (2, 2)
    assert _words(tensors["zero_point"]) == [0x76543210, 0x89ABCDEF, 0xFEDCBA98, 0x01234567]


def test_floating_codes_and_scales_keep_their_bits():
    """fp4 codes are packed as they are and ue8m0 scales keep every byte, 0 and NaN among them."""
    codes = np.tile(np.arange(16, dtype=np.uint8), (1, 8, 2))
    scale = np.array([0, 1, 126, 127, 128, 200, 254, 255], np.uint8).reshape(1, 8, 1)
    tensors = layout.weight_tensors(_case("fp4_e2m1.g32.ue8m0"), _operands(codes, scale))
    assert _words(tensors["weight"][3])[:2] == [0x76543210, 0xFEDCBA98]
    assert tensors["weight_scale"].dtype == torch.float8_e8m0fnu
    assert tensors["weight_scale"].view(torch.uint8).flatten().tolist() == [
        0,
        1,
        126,
        127,
        128,
        200,
        254,
        255,
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "moe_indexed-w_int4.g32.bf16-a_bf16-m4.n8.k32.e3.top2-bias-random",
            {"weight", "weight_scale", "bias"},
        ),
        (
            "moe_grouped_masked-w_uint4.g32.fp16.zp-a_fp16-m4.n8.k32.e3.top2-random",
            {"weight", "weight_scale", "zero_point"},
        ),
    ],
)
def test_experts_lead_every_tensor(text: str, names: set[str]):
    """A MoE layer's tensors have a leading expert axis and keep each expert's scales."""
    case = parse_case(text)
    operands = build_operands(case)
    tensors = layout.weight_tensors(case, operands)
    assert tensors.keys() == names
    assert all(tensor.shape[0] == 3 for tensor in tensors.values())
    scale = tensors["weight_scale"].view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(scale, operands.weight_scale)


def test_activation_codes_keep_their_bits():
    """Each activation format becomes the torch dtype of the same bits; poison is NaN, or 127 for int8."""
    for name in ("bf16", "fp16", "fp8_e4m3", "int8"):
        width = np.uint16 if name in ("bf16", "fp16") else np.uint8
        tensor = layout.as_torch(np.array([layout.POISON_CODES[name]], dtype=width), name)
        value = float(tensor.float())
        assert value == 127 if name == "int8" else value != value  # noqa: PLR0124  # NaN
    assert layout.as_torch(np.array([[0x3F800000]], np.uint32), "fp32").item() == 1.0
    assert layout.as_torch(np.array([0xFF, 0x80], np.uint8), "int8").tolist() == [-1, -128]


def test_configs_name_what_the_library_documents():
    """The layer's two configurations, new dictionaries at every call."""
    case = _case("uint4.g32.bf16.zp")
    assert layout.weight_config(case) == {
        "quant_method": "humming",
        "dtype": "uint4",
        "group_size": 32,
        "has_zero_point": True,
    }
    assert layout.weight_config(case) is not layout.weight_config(case)
    assert layout.input_config(case) is None
    mx = _case("fp4_e2m1.g32.ue8m0", "fp8_e4m3.token")
    assert layout.weight_config(mx)["scale_dtype"] == "float8e8m0"
    assert layout.input_config(mx) == {"quant_method": "humming", "dtype": "float8e4m3"}
    assert layout.input_config(_case("int8.channel.bf16", "int8.token")) == {
        "quant_method": "humming",
        "dtype": "int8",
    }
