# SPDX-License-Identifier: Apache-2.0
"""Operands: the same bits on every machine and back end, in the shapes and dtypes that are promised."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import cases

from humming_conformance.formats import element_format
from humming_conformance.problems import REGIMES, build_operands, parse_case
from humming_conformance.problems.case import PROBLEM_KINDS

#: Digests as this code made them. They pin the bits: a change of any means that stored baselines are of other
#: data.
DIGESTS = {
    "dense-w_int4.g32.bf16-a_bf16-m4.n16.k64-readout": (
        "46f59b5d94827e75c5eef4fd75af2d796397b41f2963893a0fe50d1acc30f735"
    ),
    "dense-w_uint4.g32.fp16.zp-a_fp16-m5.n24.k96-bias-exact_grid": (
        "568d4a9cece3dd86c1da8840a68895e28e2f229f1306fa66184fc7ba0b3254fc"
    ),
    "dense-w_fp8_e4m3.b16x32.fp32-a_fp8_e4m3.g32-m7.n20.k72-exact_grid_wide": (
        "92d1d9e010c6fe01b5a5b8a5b10235d9206a94b0604b3e48b3807221c72b6f35"
    ),
    "dense-w_fp4_e2m1.g16.fp8_e4m3.s2tensor-a_bf16-m3.n16.k48-random": (
        "7e74d6c88645e5eeb690a0f66f208bbeacf0c46d62761cd6dde20f1b8916beef"
    ),
    "dense-w_int8.channel.bf16-a_int8.token-m9.n12.k100-random-s1": (
        "a4a6343a0e7d2e4d778078802e9a7aa76a1dc4c4f7140bf7ae0679a5aba85706"
    ),
    "dense-w_fp6_e3m2.g32.ue8m0-a_fp8_e5m2.g32.ue8m0-o_fp16-m8.n48.k64-all_codes": (
        "a2ccd362cce0d77114243615c40ff2f6015d2c794d21486ecd9af548622adc83"
    ),
    "dense-w_e0m3.tensor.fp32-a_bf16-m4.n16.k64-same_sign": (
        "b9dce2ae11e3e51d01a9761eb69df055b3cd9b1766ca137bd17bf72690f7488a"
    ),
    "dense-w_fp4_e2m1.g32.ue8m0-a_fp4_e2m1.g32.fp8_e4m3-m4.n16.k64-scale_spread": (
        "473c485555b97b705b39b4b9bd8ca3c6126f51de700fd37905626fe04614c1bd"
    ),
    "dense-w_int3.g16.fp8_e5m2-a_fp8_e5m2.token-m8.n16.k64-nonfinite": (
        "6e1041b5d23ac68eb33fd52ef664dee98d070ac72245e75c20a5ddbc5ef5a563"
    ),
    "moe_indexed-w_uint3.channel.bf16.fzp.s2channel-a_fp8_e4m3.token-m5.n12.k40.e4.top2.high-bias-readout": (
        "8b600198e8ec9b4627c036a8324291238d7e44b4a914bddbf3acaf4d262e3809"
    ),
    "moe_grouped_contiguous-w_int4.g16.bf16-a_bf16-m9.n8.k40.e4.top2.tile_edges-exact_grid": (
        "3be6bffe4d3e40ebaee249f3ef23657736e5f2474d802b26700bdcc89e036017"
    ),
    "moe_grouped_masked-w_uint8.g32.bf16.zp-a_int8.g32-m6.n8.k64.e8.top2.empty_middle-poison": (
        "1920f58f35f3b577e1638137074e445b9e75fb21eb95ea78e213c577c98d2169"
    ),
    "moe_indexed-w_int4.channel.fp16-a_fp16-m6.n8.k64.e4.top1.one-poison": (
        "e98f62de400ee51cfb3308ffa13de57da434730eb18e7614345562bf59350630"
    ),
    "moe_grouped_masked-w_fp6_e2m3.g32.bf16-a_bf16-m3.n16.k64.e3.top2.high-all_codes": (
        "00803d4b31814386bff2bf29b689901b7d28f8060693e55400255b9066387a1e"
    ),
    "moe_indexed-w_fp4_e2m1.g32.ue8m0-a_fp8_e4m3.g32-m6.n12.k64.e3.top2.high-readout_wide": (
        "ee3f3b01c92226018b3e0bc284b13aecb7ee103e710bf7f9467c4119f1fedb4c"
    ),
}

EVERY_TENSOR = "moe_indexed-w_uint4.g16.bf16.zp.s2tensor-a_fp8_e4m3.g16-m3.n4.k40.e2.top2-bias-random"


@pytest.mark.parametrize("text", DIGESTS)
def test_golden_digests(text):
    """Committed ids keep their operands, bit for bit, across Python, NumPy and machine."""
    assert build_operands(parse_case(text)).digest() == DIGESTS[text]


def test_golden_digests_cover():
    """Some golden id is of every regime and of every kind."""
    golden = [parse_case(text) for text in DIGESTS]
    assert {case.regime for case in golden} == set(REGIMES)
    assert {case.problem.kind for case in golden} == set(PROBLEM_KINDS)


def scheme_texts():
    """Weights with activations such that every tensor, scale format and wide or narrow code occurs."""
    return (
        "w_int4.g16.bf16-a_bf16",
        "w_uint8.g32.fp16.zp-a_fp16",
        "w_uint3.channel.bf16.fzp.s2channel-a_fp8_e4m3.token",
        "w_fp4_e2m1.g16.fp8_e4m3.s2tensor-a_fp8_e5m2.g32-o_fp16",
        "w_fp8_e4m3.b16x32.fp32-a_int8.g32.ue8m0",
        "w_fp6_e3m2.g32.ue8m0-a_fp4_e2m1.g32.fp8_e4m3",
        "w_int8.tensor.fp8_e5m2-a_int8.tensor.bf16",
    )


def regime_texts():
    """Every regime on every kind and scheme that it doesn't refuse."""
    for kind in PROBLEM_KINDS:
        shape = "m5.n20.k72" if kind == "dense" else "m5.n20.k72.e3.top2.one"
        for scheme in scheme_texts():
            for regime in REGIMES:
                bias = "" if regime == "readout_wide" else "-bias"
                text = f"{kind}-{scheme}-{shape}{bias}-{regime}"
                plain = parse_case(text.removesuffix(regime) + "random")
                if not REGIMES[regime].refuses(plain):
                    yield text


def test_regimes_meet_every_kind():
    """The comparison below covers every regime, on every kind where it makes sense."""
    met = {(parse_case(text).problem.kind, parse_case(text).regime) for text in regime_texts()}
    assert met == {(k, r) for k in PROBLEM_KINDS for r in REGIMES} - {("dense", "poison")}


@pytest.mark.parametrize("kind", PROBLEM_KINDS)
def test_torch_is_bit_equal(kind):
    """The device generator makes the same bits as NumPy, on every regime and scheme."""
    import torch

    from humming_conformance.problems.torch_arrays import TorchArrays, to_numpy

    device = "cuda" if torch.cuda.is_available() else "cpu"
    for text in regime_texts():
        if text.startswith(kind):
            case = parse_case(text)
            on_device = to_numpy(build_operands(case, TorchArrays(device)))
            assert on_device.digest() == build_operands(case).digest(), text


@settings(max_examples=60)
@given(cases())
def test_shapes_and_dtypes(case):
    """Every tensor has the shape and code dtype that `Operands` promises, and codes fit the format."""
    operands, problem, weight = build_operands(case), case.problem, case.weight
    experts = max(problem.experts, 1)
    launches = operands.launches
    grid = weight.granularity.scale_shape(problem.n, problem.k)
    zero_point_format = weight.element if weight.zero_point == "integer" else case.output
    second_tensor = weight.second_scale == "tensor"
    activation_granularity = case.activation.granularity
    expected = {
        "weight": ((experts, problem.n, problem.k), weight.element),
        "weight_scale": ((experts, *grid), weight.scale_format),
        "zero_point": ((experts, problem.n, grid[1]), zero_point_format),
        "weight_scale_2": (
            (experts, 1 if second_tensor else problem.n),
            "fp32" if second_tensor else case.output,
        ),
        "activation": ((launches, problem.m, problem.k), case.activation.element),
        "bias": ((experts, problem.n), case.output),
    }
    if activation_granularity is not None:
        shape = activation_granularity.scale_shape(problem.m, problem.k)
        expected["activation_scale"] = ((launches, *shape), case.activation.scale_format)
    absent = {
        "zero_point": weight.zero_point == "none",
        "weight_scale_2": weight.second_scale == "none",
        "bias": not problem.bias,
    }
    for name, (shape, element) in expected.items():
        value = getattr(operands, name)
        if absent.get(name):
            assert value is None
            continue
        assert (value.shape, value.dtype) == (shape, element_format(element).code_dtype), name
        element_format(element).decode(value)  # raises on a code that is too wide
    if problem.kind == "dense":
        assert operands.expert is None
    else:
        assert operands.expert.shape == (launches, problem.m, problem.top_k)
        assert 0 <= operands.expert.min() <= operands.expert.max() < experts


def test_digest_sees_every_element():
    """A change of any single element of any tensor changes the digest."""
    operands = build_operands(parse_case(EVERY_TENSOR))
    digests = {operands.digest()}
    changes = 0
    for item in fields(operands):
        value = getattr(operands, item.name)
        for index in np.ndindex(value.shape):
            changed = value.copy()
            changed[index] ^= 1
            digests.add(replace(operands, **{item.name: changed}).digest())
            changes += 1
    assert changes > 400
    assert len(digests) == changes + 1


def test_digest_sees_shape_dtype_and_absence():
    """The same bytes in another shape or dtype, or a tensor left out, are other operands."""
    operands = build_operands(parse_case(EVERY_TENSOR))
    others = [
        replace(operands, weight=operands.weight.reshape(2, 2, 80)),
        replace(operands, expert=operands.expert.view(np.uint32)),
        replace(operands, bias=None),
        replace(operands, zero_point=None, bias=None),
    ]
    assert len({other.digest() for other in (operands, *others)}) == 5


@pytest.mark.parametrize("change", ["-s1", "-bias-random"])
def test_any_change_draws_anew(change):
    """Another seed, or another part of the id, draws all tensors anew."""
    text = "dense-w_int8.g16.bf16-a_bf16-m8.n16.k64-random"
    first = build_operands(parse_case(text))
    other = build_operands(parse_case(text + change if change == "-s1" else text.replace("-random", change)))
    assert np.mean(first.weight == other.weight) < 0.05
    assert np.mean(first.activation == other.activation) < 0.05
