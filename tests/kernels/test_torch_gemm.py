# SPDX-License-Identifier: Apache-2.0
"""The anchor multiplies rightly dequantized weights."""

from __future__ import annotations

import pytest
from exact import assert_equal, assert_right

from humming_conformance.devices import Device
from humming_conformance.formats import element_format
from humming_conformance.kernels.torch_gemm import SIGNED_WEIGHTS, UNSIGNED_WEIGHTS, kernel
from humming_conformance.problems import parse_case
from humming_conformance.protocols import Kernel, Route

WEIGHTS = (
    "int4.g128.bf16",
    "uint4.g32.bf16.zp",
    "uint3.channel.fp32.fzp",
    "fp8_e4m3.b64x32.fp32",
    "fp4_e2m1.g16.fp8_e4m3.s2tensor",
    "int8.channel.bf16.s2channel",
    "e0m5.tensor.fp16",
    "fp4_e2m1.g32.ue8m0",
)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("weight", WEIGHTS)
def test_every_scheme_is_dequantized_rightly(run_case, weight, kind):
    """Scales, zero points and second scales of every granularity meet the elements they belong to."""
    case_id = f"dense-w_{weight}-a_bf16-m5.n72.k200-bias-random"
    found = run_case("torch_gemm", case_id, kind)
    assert found["trouble"] == []
    assert_right(case_id, found["output"])


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_exact_sums_are_rounded_once(run_case, kind):
    """Where every partial sum is exact, so is the result."""
    case_id = "dense-w_int4.g128.fp16-a_fp16-m16.n64.k384-exact_grid"
    assert_equal(case_id, run_case("torch_gemm", case_id, kind)["output"])


def test_claims_every_weight_of_up_to_8_bits_and_dense_16_bit_activations():
    """The claims name formats that exist, each once, and nothing but dense 16-bit problems."""
    cpu = Device("cpu", "cpu")
    assert isinstance(kernel, Kernel)
    names = [*SIGNED_WEIGHTS, *UNSIGNED_WEIGHTS]
    assert len(set(names)) == len(names)
    assert all(element_format(name).name == name and element_format(name).bits <= 8 for name in names)
    assert kernel.support(parse_case("dense-w_int4.g128.bf16-a_bf16-m1.n8.k128-random"), cpu).answer == "yes"
    quantized = kernel.support(parse_case("dense-w_int4.g128.bf16-a_int8.token-m1.n8.k128-random"), cpu)
    assert quantized.answer == "no"
    assert "activation element int8" in quantized.reason


def test_contract_says_what_cublas_does():
    """On a GPU the tensor core's step is declared, and what weakens the contract has a source."""
    case = parse_case("dense-w_int4.g128.bf16-a_bf16-m1.n8.k128-bias-random")
    route = Route("cublas", details={"sm": 90})
    contract = kernel.contract(case, route)
    assert (contract.step_length, contract.fraction_bits, contract.reduction_format) == (16, 25, "fp32")
    assert (contract.weight_input, contract.activation_input) == ("bf16", "exact")
    assert contract.bias_application == "after_rounding"
    assert not contract.batch_invariant
