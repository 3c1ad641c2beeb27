# SPDX-License-Identifier: Apache-2.0
"""The interpreter is corrected where it is wrong, tested before it is trusted, and watched while it runs."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from humming_conformance.devices import Device
from humming_conformance.execution import TaskRaised

CASE = "dense-w_int4.g128.bf16-a_bf16-m1.n16.k128-random"


def test_self_test_fails_on_the_interpreter_as_it_is_shipped(call_task):
    """Without our corrections bf16 conversions are wrong, and the self-test says so."""
    found = call_task("cpu_interpreter", "triton_tasks:stock_interpreter", process="stock")
    assert "conversion" in found["message"]


def test_an_untried_version_is_refused(call_task):
    """Nothing is judged in an interpreter that nobody tried."""
    found = call_task("cpu_interpreter", "triton_tasks:untried_version", process="untried")
    assert "triton 99.0 was not tried" in found["problem"]


def test_a_process_without_the_interpreter_cannot_judge(call_task):
    """Outside interpreter mode the adapter says why it can't be judged, and what to do."""
    with pytest.raises(TaskRaised) as raised:
        call_task(
            "cpu",
            "humming_conformance.execution.run_case:run_case",
            kernel="humming_conformance.kernels.triton_fused:kernel",
            case=CASE,
            device=asdict(Device("cpu_interpreter", "cpu_interpreter")),
            relations=False,
        )
    assert raised.value.type == "humming_conformance.support.CannotJudge"
    assert "TRITON_INTERPRET was not 1" in raised.value.message
    assert "use triton" in raised.value.message


@pytest.mark.parametrize(
    ("load_limit", "store_limit", "error"), [(24, 24, ""), (25, 24, "load of 1 "), (24, 32, "store of 8 ")]
)
def test_accesses_outside_the_tensors_are_errors(call_task, load_limit, store_limit, error):
    """One element too many, read or written, ends the launch before memory is touched."""
    arguments = {"load_limit": load_limit, "store_limit": store_limit}
    found = call_task("cpu_interpreter", "triton_tasks:copy", **arguments)
    assert error in found["error"]
    assert found["written"] == (0 if error else 24)
