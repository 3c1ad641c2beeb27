# SPDX-License-Identifier: Apache-2.0
"""Support follows from claims alone, and a refusal names what was nearest to being claimed."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from humming_conformance.devices import Device
from humming_conformance.problems import parse_case
from humming_conformance.protocols import Claim
from humming_conformance.support import NEUTRAL_OPERANDS, CannotJudge, support_from_claims

GPU = Device("h200", "cuda", sm=90)
KINDS = ("cuda", "cpu_interpreter")
INT4 = Claim(
    kinds=("dense",),
    weights=("int4",),
    granularities=("g*", "channel"),
    scale_formats=("bf16",),
    activations=("bf16",),
    bias=(False,),
    calls=("graph", "streams"),
    rules=(("N is a multiple of 16", lambda case: case.problem.n % 16 == 0), NEUTRAL_OPERANDS),
)
FP8 = Claim(
    kinds=("dense", "moe_indexed"),
    weights=("fp8_e4m3",),
    granularities=("b128x*",),
    scale_formats=("fp32",),
    activations=("fp8_e4m3",),
    activation_granularities=("token", "g128"),
)
CASE = "dense-w_int4.g128.bf16-a_bf16-m16.n64.k256-random"


def answer(case_id, device=GPU, claims=(INT4, FP8), **options):
    """What a kernel with these claims says."""
    return support_from_claims(claims, parse_case(case_id), device, KINDS, **options)


@pytest.mark.parametrize(
    "case_id",
    [
        CASE,
        "dense-w_int4.g32.bf16-a_bf16-m16.n64.k256-random",
        "dense-w_int4.channel.bf16-a_bf16-m16.n64.k256-random",
        "moe_indexed-w_fp8_e4m3.b128x64.fp32-a_fp8_e4m3.token-m4.n64.k256.e4.top2-bias-random",
        "dense-w_fp8_e4m3.b128x128.fp32-a_fp8_e4m3.g128-m16.n65.k256-random",
    ],
)
def test_a_case_within_one_claim_is_served(case_id):
    """Every field of one claim holds, patterns stand for all sizes, and rules bind only their own claim."""
    assert answer(case_id).answer == "yes"


@pytest.mark.parametrize(
    ("case_id", "reason"),
    [
        ("dense-w_int3.g128.bf16-a_bf16-m16.n64.k256-random", "weight element int3 is not claimed (int4)"),
        ("dense-w_int4.tensor.bf16-a_bf16-m16.n64.k256-random", "weight granularity tensor"),
        (
            "dense-w_int4.g128.fp16-a_bf16-m16.n64.k256-random",
            "weight scale format fp16 is not claimed (bf16)",
        ),
        ("dense-w_int4.g128.bf16-a_fp16-m16.n64.k256-random", "activation element fp16"),
        (CASE.replace("-random", "-bias-random"), "bias True is not claimed (False)"),
        ("dense-w_int4.g128.bf16-a_bf16-m16.n24.k256-random", "it must hold that N is a multiple of 16"),
        (CASE.replace("-random", "-src_gptq-random"), "operands are in neutral form"),
        (CASE.replace("-random", "-call_batch_invariant-random"), "batch_invariant is not claimed (graph, streams)"),
        (CASE.replace("-random", "-call_batch_invariant.graph-random"), "call option batch_invariant is not claimed"),
        (
            "dense-w_fp8_e4m3.b128x128.fp32-a_fp8_e4m3.tensor-m16.n64.k256-random",
            "activation granularity tensor is not claimed (token, g128)",
        ),
    ],
)
def test_a_refusal_names_the_one_thing_that_is_not_claimed(case_id, reason):
    """The reason is about the nearest claim: the field, the case's value and what is claimed, or the rule."""
    support = answer(case_id)
    assert support.answer == "no"
    assert reason in support.reason
    assert ";" not in support.reason


def test_a_refusal_names_every_failing_field():
    """Several fields of the nearest claim fail: all are named."""
    support = answer("dense-w_int4.tensor.fp16-a_bf16-m16.n64.k256-random")
    assert "weight granularity tensor" in support.reason
    assert "weight scale format fp16" in support.reason


def test_of_equally_near_claims_the_one_with_the_same_weights_is_named():
    """What comes first in a case id says most about what was meant."""
    uint4 = replace(INT4, weights=("uint4",), zero_points=("integer",))
    support = answer("dense-w_uint4.g128.fp32.fzp-a_bf16-m16.n64.k256-random", claims=(INT4, uint4))
    assert "zero point float is not claimed (integer)" in support.reason
    assert "weight element" not in support.reason


def test_rules_may_rely_on_the_fields_of_their_claim():
    """A rule is not asked about cases whose fields it isn't made for."""
    rule = ("the group size is even", lambda case: case.weight.granularity.group_size % 2 == 0)
    grouped = replace(INT4, granularities=("g*",), rules=(rule,))
    support = answer("dense-w_int4.channel.bf16-a_bf16-m16.n64.k256-random", claims=(grouped,))
    assert "weight granularity channel" in support.reason


def test_devices():
    """A claimed case needs a device of a claimed kind that is there and new enough."""
    assert answer(CASE, Device("cpu", "cpu")).answer == "no"
    assert "cuda, cpu_interpreter" in answer(CASE, Device("cpu", "cpu")).reason
    absent = answer(CASE, Device("no_gpu", "cuda", present=False), minimum_sm=80)
    assert (absent.answer, absent.mend) == ("absent", "run where there is a cuda device")
    assert "no_gpu" in absent.reason
    assert answer(CASE, minimum_sm=90).answer == "yes"
    assert answer(CASE, minimum_sm=100).reason == "h200 is sm_90; sm_100 and newer are claimed"
    assert answer(CASE, Device("cpu_interpreter", "cpu_interpreter"), minimum_sm=80).answer == "yes"


@pytest.mark.parametrize("call", ["graph", "streams", "graph.streams"])
def test_graphs_and_streams_need_a_cuda_device(call):
    """Claimed options are served together; those that need CUDA are refused on other devices."""
    case_id = CASE.replace("-random", f"-call_{call}-random")
    assert answer(case_id).answer == "yes"
    assert answer(case_id, Device("no_gpu", "cuda", present=False)).answer == "absent"
    refused = answer(case_id, Device("cpu_interpreter", "cpu_interpreter"))
    asked = call.replace(".", ", ")
    assert (refused.answer, refused.reason) == (
        "no",
        f"the call ({asked}) needs a CUDA device; this is cpu_interpreter",
    )
    adapters_own = replace(INT4, calls=("batch_invariant",))
    case_id = CASE.replace("-random", "-call_batch_invariant-random")
    assert answer(case_id, Device("cpu_interpreter", "cpu_interpreter"), claims=(adapters_own,)).answer == "yes"


def test_a_claim_without_calls_takes_plain_calls_alone():
    """No option is claimed unless it is named."""
    support = answer(CASE.replace("-random", "-call_graph-random"), claims=(replace(INT4, calls=()),))
    assert support.reason == "call option graph is not claimed (none is)"


def test_what_is_not_claimed_is_no_even_without_the_device():
    """A device that is missing doesn't turn a refusal into an absence."""
    assert answer(CASE.replace("int4", "int3"), Device("no_gpu", "cuda", present=False)).answer == "no"


def test_a_kernel_without_claims_serves_nothing():
    """No claim, no case."""
    assert answer(CASE, claims=()).answer == "no"


def test_cannot_judge_survives_a_process_border():
    """The exception keeps its parts when it is pickled, and its text holds both."""
    error = pickle.loads(pickle.dumps(CannotJudge("the interpreter is broken", "use another")))  # noqa: S301
    assert (error.reason, error.mend) == ("the interpreter is broken", "use another")
    assert str(error) == "the interpreter is broken; use another"
