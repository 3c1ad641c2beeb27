# SPDX-License-Identifier: Apache-2.0
"""Model kernels as adapters: what the judge runs is what the tables show."""

from __future__ import annotations

import numpy as np
import pytest

from humming_conformance.devices import Device
from humming_conformance.problems import build_operands
from humming_conformance.protocols import Kernel
from tests.wrong_kernels import adapters

torch = pytest.importorskip("torch")

_CPU = Device(name="cpu", kind="cpu")


@pytest.mark.parametrize("name", ["unpromoted", "wrong_expert_for_last_rows", "declares_int32"])
def test_adapter_runs_the_kernel(name: str) -> None:
    """An adapter claims its case and writes, launch by launch, the codes of its model kernel."""
    from humming_conformance.execution.guarded import GuardedOutput

    adapter = getattr(adapters, name)
    assert isinstance(adapter, Kernel)
    case = adapter.kernel.cases()["exact_grid"]
    assert adapter.support(case, _CPU).answer == "yes"
    operands = build_operands(case)
    state = adapter.prepare(case, operands, _CPU)
    buffer = GuardedOutput(torch.device("cpu"))
    codes, trouble = buffer.codes(0, adapter.run(state, 0, buffer), case.problem.rows)
    assert trouble == []
    assert np.array_equal(codes, adapter.kernel.output(case, operands)[0])
    assert adapter.contract(case, adapter.route(state)) == adapter.kernel.declared


def test_adapter_refuses_other_cases() -> None:
    """An adapter says no to a case that its model kernel was not made for."""
    other = adapters.unpromoted.kernel.cases()["random"]
    answer = adapters.declares_int32.support(other, _CPU)
    assert answer.answer == "no"
    assert "fp8_e4m3" in answer.reason
