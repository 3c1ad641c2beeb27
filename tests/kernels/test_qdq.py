# SPDX-License-Identifier: Apache-2.0
"""The fallback serves every scheme and every kind of problem rightly."""

from __future__ import annotations

import pytest
from exact import assert_equal, assert_right

from humming_conformance.devices import Device
from humming_conformance.kernels.qdq import kernel
from humming_conformance.problems import parse_case
from humming_conformance.protocols import Kernel, Route

WEIGHTS = (
    "int4.g128.bf16",
    "uint4.channel.fp32.zp",
    "uint3.g32.fp32.fzp",
    "fp8_e4m3.b64x32.fp32",
    "fp4_e2m1.g16.fp8_e4m3.s2tensor",
    "int8.channel.bf16.s2channel",
    "e0m5.tensor.fp16",
    "fp4_e2m1.g32.ue8m0",
)
PROBLEMS = (
    ("moe_indexed", "m16.n24.k160.e4.top2-bias"),
    ("moe_grouped_contiguous", "m16.n24.k160.e8.top2.skewed-bias"),
    ("moe_grouped_masked", "m16.n24.k160.e8.top2.empty_middle-bias"),
)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("activation", ["bf16", "int8.token", "fp8_e4m3.g32", "fp4_e2m1.tensor"])
@pytest.mark.parametrize("weight", WEIGHTS)
def test_every_scheme_is_dequantized_rightly(run_case, weight, activation, kind):
    """Scales and zero points of every granularity meet the weights and activations they belong to."""
    case_id = f"dense-w_{weight}-a_{activation}-m5.n72.k200-bias-random"
    found = run_case("qdq", case_id, kind)
    assert found["trouble"] == []
    assert_right(case_id, found["output"])


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize(("problem", "shape"), PROBLEMS)
def test_every_row_meets_its_expert(run_case, problem, shape, kind):
    """Rows are multiplied by their expert's weight, and rows that belong to nobody stay untouched."""
    case_id = f"{problem}-w_uint4.g32.bf16.zp-a_int8.token-{shape}-random"
    found = run_case("qdq", case_id, kind)
    assert found["trouble"] == []
    assert_right(case_id, found["output"])


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_readout_gives_the_weights_back(run_case, kind):
    """One-hot activations of several launches read every expert's weights back, bit for bit."""
    case_id = "moe_grouped_masked-w_int4.g32.fp16-a_fp16-m16.n24.k96.e4.top2-readout"
    assert_equal(case_id, run_case("qdq", case_id, kind)["output"])


def test_claims_all_problem_kinds_and_refuses_calls_it_ignores():
    """QDQ serves everything in the plain call; options that it would ignore are outside its claims."""
    cpu = Device("cpu", "cpu")
    assert isinstance(kernel, Kernel)
    for problem, shape in PROBLEMS:
        case = parse_case(f"{problem}-w_e3m3.b128x128.fp32-a_fp8_e5m2.g64-{shape}-random")
        assert kernel.support(case, cpu).answer == "yes"
    case = parse_case("dense-w_int4.g128.bf16-a_bf16-m1.n8.k128-call_batch_invariant-random")
    refused = kernel.support(case, cpu)
    assert refused.answer == "no"
    assert "call" in refused.reason


def test_contract_declares_rounded_activations_only_where_they_are_quantized():
    """Quantized activations are rounded to 16 bits; 16-bit ones are multiplied as they are."""
    route = Route("cpu_fp32", details={"sm": 0})
    plain = parse_case("dense-w_int4.g128.bf16-a_bf16-m1.n8.k128-random")
    quantized = parse_case("dense-w_int4.g128.bf16-a_int8.token-m1.n8.k128-random")
    assert kernel.contract(plain, route).activation_input == "exact"
    assert kernel.contract(quantized, route).activation_input == "bf16"
    assert kernel.contract(quantized, route).step_length == 1
