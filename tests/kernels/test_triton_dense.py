# SPDX-License-Identifier: Apache-2.0
"""The dense Triton kernel computes what its contract says, in the interpreter and on a GPU."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from exact import assert_equal, assert_right

from humming_conformance.devices import Device
from humming_conformance.formats import element_format, parse_granularity
from humming_conformance.kernels.humming_lib.claims import CLAIMS
from humming_conformance.kernels.triton_fused import kernel
from humming_conformance.kernels.triton_fused.adapter import choose_schedule
from humming_conformance.problems import ActivationScheme, Case, Problem, WeightScheme, parse_case
from humming_conformance.protocols import Kernel, Route

KINDS = pytest.mark.parametrize("kind", ["cpu_interpreter", "cuda"])

#: Each with tails of its own: M of no tile, N of no tile, K of no tile and of no group.
TAILS = (
    "dense-w_int4.g128.bf16-a_bf16-m16.n256.k512-random",
    "dense-w_int4.g16.fp16-a_fp16-m1.n130.k200-random",
    "dense-w_uint4.g32.fp16.zp-a_fp16-m33.n136.k328-bias-random",
    "dense-w_uint4.g64.bf16.zp-a_bf16-m65.n8.k97-random",
    "dense-w_uint8.channel.bf16.zp-a_bf16-m5.n72.k200-bias-random",
    "dense-w_int8.g256.fp16-a_bf16-m130.n40.k600-random",
    "dense-w_fp4_e2m1.g32.ue8m0-a_bf16-m7.n64.k176-bias-random",
    "dense-w_fp4_e2m1.g32.ue8m0-a_fp16-m4.n64.k128-random",
    "dense-w_fp4_e2m1.g16.fp8_e4m3-a_bf16-m9.n40.k200-random",
    "dense-w_fp4_e2m1.g16.fp8_e4m3.s2tensor-a_fp16-m33.n130.k328-bias-random",
    "dense-w_fp4_e2m1.g16.fp8_e4m3.s2channel-a_bf16-m1.n72.k97-bias-random",
    "dense-w_fp8_e4m3.g32.ue8m0-a_bf16-m7.n64.k176-bias-random",
    "dense-w_fp8_e4m3.channel.fp16.s2tensor-a_fp16-m17.n130.k201-random",
    "dense-w_fp8_e4m3.tensor.fp32-a_bf16-m5.n136.k200-bias-random",
    "dense-w_fp8_e4m3.b128x128.fp32-a_bf16-m33.n264.k300-bias-random",
    "dense-w_fp8_e4m3.b48x40.fp32-a_fp16-m16.n130.k328-random",
    "dense-w_uint4.g64.bf16.fzp-a_bf16-m40.n40.k328-bias-random",
    "dense-w_int4.g128.bf16.s2channel-a_bf16-m7.n40.k300-bias-random",
    "dense-w_int3.g128.fp16-a_fp16-m7.n40.k201-random",
)

#: Every code and group in its place: what is read back must be equal, bit for bit.
EXACT = (
    "dense-w_int4.g32.bf16-a_bf16-m16.n24.k160-readout",
    "dense-w_uint8.g16.fp16.zp-a_fp16-m16.n24.k80-readout",
    "dense-w_int8.channel.fp16-a_fp16-m16.n24.k80-readout",
    "dense-w_fp4_e2m1.g32.ue8m0-a_bf16-m32.n24.k160-readout",
    "dense-w_fp4_e2m1.g32.ue8m0-a_bf16-m32.n24.k160-all_codes",
    "dense-w_uint4.g128.bf16.zp-a_bf16-m40.n24.k384-exact_grid",
    "dense-w_fp4_e2m1.g16.fp8_e4m3.s2channel-a_bf16-m32.n24.k80-readout",
    "dense-w_fp4_e2m1.g16.fp8_e4m3-a_fp16-m32.n24.k80-all_codes",
    "dense-w_fp8_e4m3.g32.ue8m0-a_bf16-m40.n264.k280-all_codes",
    "dense-w_fp8_e4m3.b128x128.fp32-a_bf16-m40.n264.k280-readout",
    "dense-w_int8.tensor.fp32-a_fp16-m40.n24.k280-readout",
    "dense-w_uint8.channel.fp16.fzp-a_fp16-m40.n24.k80-readout",
    "dense-w_int4.g128.bf16.s2tensor-a_bf16-m40.n24.k384-exact_grid",
    "dense-w_int4.g96.bf16-a_bf16-m40.n24.k440-readout",
    "dense-w_int4.g24.bf16-a_bf16-m40.n24.k280-readout",
    "dense-w_int3.g32.bf16-a_bf16-m40.n24.k81-all_codes",
)


@KINDS
@pytest.mark.parametrize("case_id", TAILS)
def test_tails_of_every_size_are_right(run_case, case_id, kind):
    """Rows, columns and groups that a tile cuts are neither lost nor mixed up with their neighbours."""
    found = run_case("triton_fused", case_id, kind)
    assert found["trouble"] == []
    assert_right(case_id, found["output"], scaled_sums=True)


@KINDS
@pytest.mark.parametrize("case_id", EXACT)
def test_exact_results_are_exact(run_case, case_id, kind):
    """Weights are rounded once and sums that fp32 holds are not rounded at all."""
    assert_equal(case_id, run_case("triton_fused", case_id, kind)["output"], scaled_sums=True)


@KINDS
def test_bits_depend_neither_on_the_batch_nor_on_the_run(run_case, kind):
    """Tokens have the same bits alone, in half of the batch, in all of it, and once more."""
    case_id = "dense-w_int4.g64.bf16-a_bf16-m100.n72.k520-random"
    found = run_case("triton_fused", case_id, kind, relations=True)
    np.testing.assert_array_equal(found["repeat"], found["output"])
    assert [few.shape[1] for few in found["fewer"]] == [1, 50]
    for few in found["fewer"]:
        np.testing.assert_array_equal(few[0], found["output"][0, : few.shape[1]])


def test_route_in_the_interpreter_is_no_gpu_route(run_case):
    """The interpreter has no tensor core, and its contract no tensor-core step."""
    found = run_case("triton_fused", TAILS[0], "cpu_interpreter")
    assert found["route"]["path"] == "dense_interpreted"
    assert found["route"]["mma_class"] == ""
    assert found["contract"]["step_length"] == 1
    assert found["contract"]["promotion_interval"] == found["route"]["tile"][2]


def test_second_level_scales_meet_the_accumulator():
    """They multiply sums in fp32; without one the contract doesn't mention them."""
    contracts = [
        kernel.contract(parse_case(f"dense-w_{weight}-a_bf16-m1.n16.k96-random"), Route("dense_interpreted"))
        for weight in ("fp4_e2m1.g16.fp8_e4m3", "fp4_e2m1.g16.fp8_e4m3.s2tensor")
    ]
    assert [contract.second_scale_application for contract in contracts] == [None, "accumulator"]


def test_contract_on_a_gpu_has_its_tensor_core_step():
    """Hopper's step is longer than Ampere's; both round weights once and depend on no batch."""
    case = parse_case(TAILS[0])
    steps = {sm: kernel.contract(case, Route("dense", details={"sm": sm})) for sm in (80, 90)}
    assert (steps[80].step_length, steps[80].fraction_bits) == (8, 24)
    assert (steps[90].step_length, steps[90].fraction_bits) == (16, 25)
    assert steps[90].weight_input == "bf16"
    assert steps[90].batch_invariant


@pytest.mark.parametrize(
    ("case_id", "sm", "reason"),
    [
        ("dense-w_int4.g32.bf16-a_bf16-m1.n16.k96-src_gptq-random", 90, "operands are in neutral form"),
        ("dense-w_fp4_e2m1.g32.fp8_e4m3.s2tensor-a_bf16-m1.n16.k96-random", 90, "weight granularity g32"),
        ("dense-w_fp6_e3m2.channel.bf16-a_bf16-m1.n16.k96-random", 90, "weight element fp6_e3m2"),
        ("dense-w_int4.g32.bf16-a_int8.token-m1.n16.k96-random", 90, "activation element int8"),
        ("dense-w_int4.g32.bf16-a_bf16-m1.n16.k96-random", 75, "sm_75"),
    ],
)
def test_what_it_does_not_serve_is_refused(case_id, sm, reason):
    """Outside its claims the answer is no, with the rule or format that the case breaks."""
    support = kernel.support(parse_case(case_id), Device("gpu", "cuda", sm=sm))
    assert support.answer == "no"
    assert reason in support.reason


@pytest.mark.parametrize("activation", ["bf16", "fp16"])
def test_it_serves_all_weights_that_humming_serves(activation):
    """With 16-bit activations nothing that Humming claims is refused, so that this kernel can stand in for it."""
    device = Device("gpu", "cuda", sm=80)
    schemes = [
        WeightScheme(element, parse_granularity(granularity), scale, zero_point, second)
        for claim in CLAIMS
        if activation in claim.activations
        for element, granularity, scale, zero_point, second in product(
            claim.weights, claim.granularities, claim.scale_formats, claim.zero_points, claim.second_scales
        )
    ]
    assert {scheme.scale_format for scheme in schemes} == {"bf16", "fp16", "fp32", "fp8_e4m3", "ue8m0"}
    problem = Problem("moe_indexed", 4, 256, 1024, 4, 2)
    for scheme in schemes:
        case = Case(scheme, ActivationScheme(activation), problem, "random")
        assert kernel.support(case, device).answer == "yes", case.id


@KINDS
@pytest.mark.parametrize(("element", "scale_format"), [("fp8_e4m3", "fp8_e4m3"), ("int8", "ue8m0"), ("uint8", "ue8m0")])
def test_every_byte_is_decoded(call_task, device_fields, kind, element, scale_format):
    """Subnormals, both zeros and NaN of weights and scales have their exact values."""
    device_fields(kind)  # skips where there is none
    device = "cuda" if kind == "cuda" else "cpu"
    found = call_task(kind, "triton_tasks:decode_bytes", element=element, scale_format=scale_format, device=device)
    codes = np.arange(256)
    for got, name in ((found["elements"], element), (found["scales"], scale_format)):
        expected = element_format(name).decode(codes)
        np.testing.assert_array_equal(got, expected, err_msg=name)
        number = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(expected[number]), err_msg=name)


def test_tiles_grow_with_the_batch_on_a_gpu_only():
    """A GPU tile is as narrow as the batch, at least 16; in the interpreter it is always the same."""
    assert isinstance(kernel, Kernel)
    gpu = [choose_schedule(m, interpreted=False).block_m for m in (1, 16, 17, 33, 64, 65, 4096)]
    assert gpu == [16, 16, 32, 64, 64, 64, 64]
    assert len({choose_schedule(m, interpreted=True) for m in (1, 64, 4096)}) == 1
