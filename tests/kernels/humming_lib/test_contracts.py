# SPDX-License-Identifier: Apache-2.0
"""Contracts of the paths: which fields a route weakens, and that each weak field can be looked up."""

from typing import Any

import pytest

from humming_conformance.kernels.humming_lib import contracts, kernel
from humming_conformance.oracle.contract import Contract
from humming_conformance.problems import parse_case
from humming_conformance.protocols import Route


def _contract(text: str, *, mma: str = "wgmma", split_k: int = 1, sm: int = 90, **layer_config: Any) -> Contract:
    case = parse_case(text)
    path = contracts.scale_path(case, layer_config)
    details = {"scale_path": path, "warp_shape": [64, 32, 64], "unordered": split_k > 2, "hardware_sm": sm}
    details["layer_config"] = {"sm_version": sm} | layer_config
    route = Route(f"{mma}_{path}", mma, (64, 256, 128), 4, split_k, case.activation.element, details)
    return kernel.contract(case, route)


def test_group_scales_round_the_16_bit_weight():
    """16-bit activations: the scaled weight is rounded to the output format; nothing else is weak."""
    contract = _contract("dense-w_int4.g128.fp16-a_fp16-m16.n256.k512-random")
    assert contract.weight_input == "fp16"
    assert contract.scale_application == "multiplier_input"
    assert (contract.step_length, contract.fraction_bits, contract.accumulator_bits) == (16, 25, 23)
    assert contract.promotion_interval is None
    assert contract.repeatable
    assert contract.k_tile == 128


def test_power_of_two_scales_stay_exact():
    """A ue8m0 scale doesn't excuse rounding the weight."""
    contract = _contract("dense-w_fp4_e2m1.g32.ue8m0-a_bf16-m16.n256.k512-random")
    assert contract.weight_input == "exact"


def test_channel_scale_is_applied_to_the_sum():
    """A channel scale multiplies the sum after that was rounded to the output format."""
    contract = _contract("dense-w_int4.channel.bf16-a_bf16-m16.n256.k512-random")
    assert contract.scale_application == "output"
    assert contract.weight_input == "exact"


@pytest.mark.parametrize(("group", "interval"), [(32, 32), (64, 64), (128, 64)])
def test_8_bit_group_scales_promote(group: int, interval: int):
    """8-bit activations: sums move to fp32 at the end of a group or of the warp's K, the first of them."""
    contract = _contract(f"dense-w_int4.g{group}.bf16-a_fp8_e4m3.token-m16.n256.k512-random")
    assert contract.promotion_interval == interval
    assert contract.scale_application == "accumulator"
    assert (contract.step_length, contract.fraction_bits, contract.accumulator_bits) == (32, 13, 13)
    assert "2412.19437" in contract.sources["accumulator_bits"]


def test_fused_scales_never_promote():
    """fp4 with ue8m0 x fp8: scales are in the weight, so 14-bit sums run over all of K."""
    contract = _contract("dense-w_fp4_e2m1.g32.ue8m0-a_fp8_e4m3.token-m16.n256.k512-random", use_fused_e8m0_scale=True)
    assert contract.promotion_interval is None
    assert contract.scale_application == "multiplier_input"
    assert contract.weight_input == "exact"
    assert contract.accumulator_bits == 13


def test_int8_accumulates_exactly():
    """int8 activations: integer sums are exact, with and without groups."""
    grouped = _contract("dense-w_int4.g128.bf16-a_int8.token-m16.n256.k512-random")
    assert (grouped.accumulator_format, grouped.promotion_interval) == ("int32", 64)
    channel = _contract("dense-w_int8.channel.bf16-a_int8.token-m16.n256.k512-random")
    assert (channel.accumulator_format, channel.promotion_interval) == ("int32", None)


def test_bias_and_stream_k():
    """Bias is added after rounding; slices add in the output format, and from three on in any order."""
    text = "dense-w_int4.g128.bf16-a_bf16-m16.n256.k512-bias-random"
    whole, divided = _contract(text), _contract(text, split_k=4)
    assert whole.bias_application == "after_rounding"
    assert (whole.split_k, whole.reduction_format, whole.repeatable) == (1, "fp32", True)
    assert (divided.split_k, divided.reduction_format, divided.repeatable) == (4, "bf16", False)


def test_older_code_is_held_to_the_core_that_executes():
    """The code of sm_75 adds 8 products a step on sm_90, that of sm_80 16, and fp8 of sm_89 runs on fp16 cores."""
    turing = _contract("dense-w_int4.g128.fp16-a_fp16-m16.n256.k512-random", mma="mma", sm_version=75)
    ampere = _contract("dense-w_int4.g128.fp16-a_fp16-m16.n256.k512-random", mma="mma", sm_version=80)
    ada = _contract("dense-w_int4.channel.bf16-a_fp8_e4m3.token-m16.n256.k512-random", mma="mma", sm_version=89)
    assert (turing.step_length, turing.fraction_bits) == (8, 25)
    assert (ampere.step_length, ampere.fraction_bits) == (16, 25)
    assert (ada.step_length, ada.fraction_bits, ada.accumulator_bits) == (16, 25, 23)
