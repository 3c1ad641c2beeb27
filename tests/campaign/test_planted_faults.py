# SPDX-License-Identifier: Apache-2.0
"""What guard pages and compute-sanitizer see of planted faults; every test needs a GPU, most need the tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from humming_conformance.campaign.judge import Judge
from humming_conformance.campaign.plan import RunOptions, make_plan
from humming_conformance.devices import detect_devices
from humming_conformance.execution import sanitizer

HERE = str(Path(__file__).parent)
PLAIN = "dense-w_int8.channel.bf16-a_bf16-m2.n8.k32-scale_spread"
POISON = "moe_indexed-w_int4.g32.bf16-a_bf16-m4.n32.k64.e4.top2.empty_last-poison"


@pytest.fixture
def judged(monkeypatch):
    """The verdict on a planted or built-in kernel, under a tool if one is named."""
    gpu = next((device for device in detect_devices() if device.kind == "cuda"), None)
    if gpu is None:
        pytest.skip("needs a cuda device")
    monkeypatch.syspath_prepend(HERE)

    def judge(kernel, case_id, tool=""):
        if tool and sanitizer.find() is None:
            pytest.skip(f"needs {sanitizer.NAME}")
        (task,) = make_plan(RunOptions(kernels=(kernel,), cases=(case_id,), devices=(gpu.name,)))
        with Judge(sanitize=tool) as judge:
            return judge.numerics(task)

    return judge


@pytest.mark.parametrize("kernel", ["qdq", "triton_fused", "planted_faults:nothing_wrong"])
def test_right_kernels_pass_with_guard_pages(judged, kernel):
    """Kernels that stay within their tensors run as ever, and the evidence says what they ran with."""
    verdict = judged(kernel, POISON)
    assert verdict.outcome == "pass", verdict.message
    assert verdict.evidence["guard_pages"] is True


def test_guard_pages_see_a_read_behind_the_end(judged):
    """It is an error that says what happened; elsewhere the same read finds memory of somebody else and passes."""
    verdict = judged("planted_faults:behind_the_end", POISON)
    assert verdict.outcome == "error", verdict.reason
    assert verdict.evidence["fault_class"] == "crash"
    assert "a kernel read or wrote behind the end of a tensor" in verdict.reason
    assert judged("planted_faults:behind_the_end", PLAIN).outcome == "pass"


@pytest.mark.parametrize("kernel", ["in_the_slack", "before_the_start"])
def test_what_guard_pages_do_not_see(judged, kernel):
    """Up to 15 bytes behind a tensor are mapped, and what lies before it on its page."""
    verdict = judged(f"planted_faults:{kernel}", POISON)
    assert verdict.outcome == "pass", verdict.message
    assert verdict.evidence["guard_pages"] is True


@pytest.mark.parametrize(
    ("tool", "kernel", "function", "fault_class"),
    [
        ("memcheck", "behind_the_end", "read_at", "tail"),
        ("memcheck", "in_the_slack", "read_at", "tail"),
        ("memcheck", "before_the_start", "read_at", "tail"),
        ("racecheck", "race", "exchange", "race"),
        ("initcheck", "unwritten", "read_at", "tail"),
    ],
)
def test_each_tool_sees_its_fault(judged, tool, kernel, function, fault_class):
    """The case fails by the tool's ruling alone, and the kernel is named."""
    verdict = judged(f"planted_faults:{kernel}", PLAIN, tool)
    assert verdict.outcome == "fail", verdict.message
    failed = [ruling for ruling in verdict.rulings if ruling.outcome != "pass"]
    assert [ruling.rule for ruling in failed] == [tool]
    assert function in failed[0].reason
    assert verdict.evidence["fault_class"] == fault_class


@pytest.mark.parametrize("tool", sanitizer.TOOLS)
def test_no_tool_sees_what_is_not_there(judged, tool):
    """A kernel that reads what it may, behind QDQ, is passed by each tool."""
    verdict = judged("planted_faults:nothing_wrong", PLAIN, tool)
    assert verdict.outcome == "pass", verdict.message
    assert verdict.evidence["sanitizer"] == {"tool": tool, "count": 0, "reports": []}
