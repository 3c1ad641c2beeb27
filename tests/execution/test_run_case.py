# SPDX-License-Identifier: Apache-2.0
"""The task that runs a case: what it brings back beside the output."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from types import ModuleType

import numpy as np
import pytest

from humming_conformance.devices import Device
from humming_conformance.execution.run_case import run_case
from humming_conformance.kernels.qdq import Qdq
from humming_conformance.oracle import differing_bits

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


@pytest.mark.parametrize("case", [DENSE, MOE])
def test_a_token_alone(adapter, case):
    """The first token alone, routed as it was, has the same bits only in a kernel that keeps its word."""
    for fault_above, equal in ((1000, True), (1, False)):
        reference = adapter(f"by_batch_{fault_above}_{case[:3]}", ByBatch(fault_above))
        found = run_case(kernel=reference, case=case, device=asdict(CPU), relations=True)
        first = found["output"][:1, : found["alone"].shape[1]]
        assert found["alone"].shape == (1, 2 if case == MOE else 1, found["output"].shape[2])
        assert (len(differing_bits(first, found["alone"])) == 0) is equal


def test_relations_run_only_where_asked_and_declared():
    """Without the request, or the word of the contract, nothing is run twice; a repeat is the same launch again."""
    qdq = "humming_conformance.kernels.qdq:kernel"
    plain = run_case(kernel=qdq, case=DENSE, device=asdict(CPU), relations=False)
    assert (plain["repeat"], plain["alone"]) == (None, None)
    asked = run_case(kernel=qdq, case=DENSE, device=asdict(CPU), relations=True)
    assert asked["alone"] is None  # QDQ doesn't declare batch invariance
    assert np.array_equal(asked["repeat"], asked["output"][:1])
    assert asked["unwritten"] == 0
