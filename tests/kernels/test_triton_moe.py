# SPDX-License-Identifier: Apache-2.0
"""The MoE Triton kernel gives each row its expert's weights, in all three kinds, and touches no row of nobody."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from exact import assert_equal, assert_right

from humming_conformance.devices import Device
from humming_conformance.kernels.triton_fused import adapter, kernel
from humming_conformance.oracle import Contract, compare
from humming_conformance.problems import build_operands, parse_case
from humming_conformance.protocols import Route

DEVICES = pytest.mark.parametrize("device", ["cpu_interpreter", "cuda"])
KINDS = ("moe_indexed", "moe_grouped_contiguous", "moe_grouped_masked")

WEIGHTS = (
    "int4.g32.bf16-a_bf16",
    "int8.channel.fp16-a_fp16",
    "uint4.g16.fp16.zp-a_fp16",
    "uint8.g128.bf16.zp-a_bf16",
    "fp4_e2m1.g32.ue8m0-a_bf16",
    "fp4_e2m1.g16.fp8_e4m3.s2tensor-a_bf16",
    "fp8_e4m3.b128x128.fp32-a_bf16",
    "uint4.g96.fp16.fzp-a_fp16",
    "int3.channel.bf16.s2channel-a_bf16",
)

#: Rows over experts and sizes, each with tails of its own: N and K of no tile, K odd or of no group.
SHAPES = (
    "m16.n130.k200.e4.top2-bias",
    "m17.n40.k97.e4.top1.empty_middle",
    "m33.n24.k176.e8.top2.empty_first-bias",
    "m37.n24.k160.e3.top3.one",
    "m50.n16.k64.e6.top2.tile_edges-bias",
    "m1.n24.k272.e8.top1",
)


@DEVICES
@pytest.mark.parametrize("regime", ["readout", "exact_grid"])
@pytest.mark.parametrize(("kind", "weight"), list(product(KINDS, WEIGHTS)))
def test_exact_results_are_exact(run_case, kind, weight, regime, device):
    """Every expert's codes, groups and bias are read back from their places, bit for bit."""
    case_id = f"{kind}-w_{weight}-m20.n24.k40.e4.top2.skewed-bias-{regime}"
    found = run_case("triton_fused", case_id, device)
    assert found["trouble"] == []
    assert_equal(case_id, found["output"], scaled_sums=True)


@DEVICES
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize(("kind", "shape"), list(product(KINDS, SHAPES)))
def test_tails_and_distributions_are_right(run_case, kind, shape, weight, device):
    """Empty experts, one expert, tile edges and tails stay within the contract, and rows of nobody untouched."""
    case_id = f"{kind}-w_{weight}-{shape}-random"
    found = run_case("triton_fused", case_id, device)
    assert found["trouble"] == []
    assert_right(case_id, found["output"], scaled_sums=True)
    case = parse_case(case_id)
    assert compare(case, build_operands(case), Contract(**found["contract"]), found["output"], exact=False).passed


@DEVICES
@pytest.mark.parametrize("kind", KINDS)
def test_experts_without_rows_are_not_read(run_case, kind, device):
    """NaN scales and biases of experts that no token chose reach no output."""
    case_id = f"{kind}-w_uint4.g32.bf16.zp-a_bf16-m20.n24.k96.e8.top2.empty_middle-bias-poison"
    assert_right(case_id, run_case("triton_fused", case_id, device)["output"], scaled_sums=True)


@DEVICES
@pytest.mark.parametrize("weight", WEIGHTS[:3])
def test_bits_depend_on_the_token_alone(call_task, device_fields, weight, device):
    """A token has the same bits in every kind, in another place, alone, and once more."""
    found = call_task(
        device,
        "triton_tasks:moe_relations",
        case_id=f"moe_indexed-w_{weight}-m41.n72.k328.e4.top2.skewed-bias-random",
        device=device_fields(device),
    )
    expected = found.pop("moe_indexed")
    assert set(found) == {*KINDS[1:], "permuted", "alone", "again"}
    assert len(np.unique(expected)) > 100
    for what, codes in found.items():
        np.testing.assert_array_equal(codes, expected[: len(codes)], err_msg=what)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_nobody_are_poisoned_and_not_listed(kind):
    """A launch lists every row once, under its expert; all other rows of activations are NaN."""
    case = parse_case(f"{kind}-w_int4.g32.bf16-a_bf16-m21.n16.k32.e4.top2.skewed-random")
    operands = build_operands(case)
    (launch,) = adapter._launches(case, operands, Device("cpu", "cpu"), 16)
    blocks = launch.row_ids[: launch.blocks * 16].reshape(-1, 16)
    listed = blocks[blocks < launch.rows].numpy()
    row_of = np.arange(42) if launch.row_of is None else launch.row_of
    assert sorted(listed) == sorted(row_of)
    expert_of = dict(zip(row_of, operands.expert.reshape(-1), strict=True))
    for block, expert in zip(blocks.numpy(), launch.expert_ids.numpy(), strict=False):
        assert {expert_of[row] for row in block if row < launch.rows} == {expert}
    read = torch.from_numpy(np.unique(listed // launch.top_k))
    assert not launch.activation[read].isnan().any()
    nobody = np.delete(launch.activation.float().numpy(), read, axis=0)
    assert np.isnan(nobody).all()
    assert len(nobody) >= (0 if kind == "moe_indexed" else 3)


def test_route_and_contract_are_those_of_the_moe_kernel(run_case):
    """The route names the kernel and its tile; sums are rounded as in the dense one, whatever the batch."""
    case_id = f"moe_grouped_masked-w_{WEIGHTS[0]}-{SHAPES[1]}-random"
    found = run_case("triton_fused", case_id, "cpu_interpreter")
    assert found["route"]["path"] == "moe_interpreted"
    assert found["route"]["tile"] == [16, 128, 128]
    assert found["contract"]["promotion_interval"] == 128
    case = parse_case(case_id)
    contract = kernel.contract(case, Route("moe", details={"sm": 90}))
    assert (contract.step_length, contract.fraction_bits) == (16, 25)
    assert contract.batch_invariant
    assert contract.repeatable


def test_any_top_k_is_claimed():
    """All kinds are claimed for every number of experts and slots; other formats are refused here too."""
    device = Device("h200", "cuda", sm=90)
    for kind, experts in product(KINDS, ("e1.top1", "e8.top8", "e256.top8")):
        case = parse_case(f"{kind}-w_{WEIGHTS[0]}-m1.n16.k96.{experts}-random")
        assert kernel.support(case, device).answer == "yes"
    refused = kernel.support(parse_case(f"{KINDS[0]}-w_int4.g32.fp32-a_bf16-m1.n16.k96.e2.top1-random"), device)
    assert refused.answer == "no"
    assert "weight scale format fp32" in refused.reason
