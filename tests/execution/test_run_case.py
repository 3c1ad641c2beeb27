# SPDX-License-Identifier: Apache-2.0
"""The task that runs a case: what it brings back beside the output."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from types import ModuleType

import numpy as np
import pytest

from humming_conformance.devices import Device
from humming_conformance.execution.run_case import REPEATS, run_case
from humming_conformance.kernels.qdq import Qdq
from humming_conformance.oracle import differing_bits
from humming_conformance.support import CannotJudge

CPU = Device("cpu", "cpu")
MOE = "moe_indexed-w_int4.g32.bf16-a_bf16-m4.n32.k64.e4.top2-random"
DENSE = "dense-w_int8.channel.bf16-a_bf16-m4.n8.k32-random"


class ByBatch(Qdq):
    """QDQ that declares batch invariance; with more than ``fault_above`` tokens it adds an eighth."""

    def __init__(self, fault_above):
        self.fault_above = fault_above

    def run(self, state, launch, buffer):
        """The output of QDQ, a little off in large batches."""
        output = super().run(state, launch, buffer)
        if state.case.problem.m > self.fault_above:
            output.tensor.add_(0.125)
        return output

    def contract(self, case, route):
        """That of QDQ, but for batch invariance."""
        return replace(super().contract(case, route), batch_invariant=True)


@pytest.fixture
def adapter(monkeypatch):
    """Makes an adapter reachable by reference."""

    def register(name, kernel):
        module = ModuleType(name)
        module.kernel = kernel
        monkeypatch.setitem(sys.modules, name, module)
        return f"{name}:kernel"

    return register


@pytest.mark.parametrize(("case", "top_k"), [(DENSE, 1), (MOE, 2)])
@pytest.mark.parametrize(
    ("fault_above", "equal"), [(1000, [True, True]), (1, [False, True]), (2, [False, False])], ids=["never", "1", "2"]
)
def test_fewer_tokens(adapter, case, top_k, fault_above, equal):
    """The first token alone and half of them, routed as they were, have the same bits if the kernel keeps its word."""
    reference = adapter(f"by_batch_{fault_above}_{case[:3]}", ByBatch(fault_above))
    found = run_case(kernel=reference, case=case, device=asdict(CPU), relations=True)
    output = found["output"]
    assert [few.shape for few in found["fewer"]] == [(1, tokens * top_k, output.shape[2]) for tokens in (1, 2)]
    assert [len(differing_bits(output[:1, : few.shape[1]], few)) == 0 for few in found["fewer"]] == equal


def test_one_of_two_tokens_is_also_half_of_them(adapter):
    """No batch is run twice, and one token has no smaller one."""
    for m, tokens in ((1, []), (2, [1]), (3, [1, 2])):
        reference = adapter(f"by_batch_of_{m}", ByBatch(1000))
        found = run_case(kernel=reference, case=DENSE.replace("m4", f"m{m}"), device=asdict(CPU), relations=True)
        assert [few.shape[1] for few in found["fewer"]] == tokens


class Sometimes(Qdq):
    """QDQ that is a little off in its ``fault_at``-th run of a state."""

    def __init__(self, fault_at):
        self.fault_at = fault_at
        self.runs = 0

    def run(self, state, launch, buffer):
        """The output of QDQ, or a little more."""
        output = super().run(state, launch, buffer)
        self.runs += 1
        if self.runs == self.fault_at:
            output.tensor.add_(0.125)
        return output


@pytest.mark.parametrize("fault_at", [2, 5, 1 + REPEATS["cpu"]])
def test_any_of_the_repeats_shows_a_difference(adapter, fault_at):
    """The run that differs is the one that comes back, whichever it is."""
    found = run_case(
        kernel=adapter(f"sometimes_{fault_at}", Sometimes(fault_at)), case=DENSE, device=asdict(CPU), relations=True
    )
    assert found["repeat"].shape == found["output"][:1].shape
    assert len(differing_bits(found["repeat"], found["output"][:1])) > 0


def test_relations_run_only_where_asked_and_declared():
    """Without the request, or the word of the contract, nothing is run twice; a repeat is the same launch again."""
    qdq = "humming_conformance.kernels.qdq:kernel"
    plain = run_case(kernel=qdq, case=DENSE, device=asdict(CPU), relations=False)
    assert (plain["repeat"], plain["fewer"]) == (None, [])
    asked = run_case(kernel=qdq, case=DENSE, device=asdict(CPU), relations=True)
    assert asked["fewer"] == []  # QDQ doesn't declare batch invariance
    assert np.array_equal(asked["repeat"], asked["output"][:1])
    assert asked["unwritten"] == 0
    assert (asked["replayed"], asked["concurrent"]) == ((), ())


@pytest.mark.parametrize("call", ["graph", "streams"])
def test_a_call_that_needs_cuda_is_not_judged_elsewhere(call):
    """An adapter that claims such a call on a CPU isn't launched in another way instead."""
    case = DENSE.replace("-random", f"-call_{call}-random")
    with pytest.raises(CannotJudge, match="cpu has neither CUDA graphs nor streams; judge it on a CUDA device"):
        run_case(kernel="humming_conformance.kernels.qdq:kernel", case=case, device=asdict(CPU), relations=False)
