# SPDX-License-Identifier: Apache-2.0
"""A performance campaign where the kernel processes and the GPU are made up: rounds, losses, baselines, verdicts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import pytest

from humming_conformance.campaign import performance as campaigning
from humming_conformance.campaign import plan as planning
from humming_conformance.campaign.performance import SPENT, Campaign
from humming_conformance.campaign.plan import RunOptions
from humming_conformance.campaign.questions import performance as asking
from humming_conformance.campaign.run import Run
from humming_conformance.devices import Device
from humming_conformance.execution import LibraryBuild, ProcessDied
from humming_conformance.store import Baseline, baseline_path, write_baseline
from humming_conformance.store.rounds import Timing, case_baselines, read_timings

GPU = Device("h200", "cuda", sm=90, uuid="GPU-0", memory=1 << 37)
CASES = tuple(f"dense-w_int4.g32.bf16-a_bf16-m{m}.n64.k128-random" for m in (1, 16))
ROOFS = {"read": 4e12, "write": 4e12, "copy": 4e12, "bf16": 8e14, "launch": 1.5e-6}


class Process:
    """A kernel process that takes no time: kernels need 4 us, and whatever ``slower`` says of a case."""

    slower: ClassVar[dict[str, float]]
    broken: ClassVar[dict[str, str]]
    dies: ClassVar[set[int]]
    rounds: ClassVar[list[list[str]]]

    def __init__(self, spec):
        self.spec = spec

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def call(self, function, *, subjects, seconds, **_):
        """As the process's own; the round's number is how many there were."""
        assert function == "humming_conformance.measure.round:measure_round"
        number = len(self.rounds)
        self.rounds.append([subject["case"] for subject in subjects])
        if number in self.dies:
            raise ProcessDied("SIGSEGV", "")
        return type("Reply", (), {"value": {"roofs": ROOFS, "measured": [self._measured(s, number) for s in subjects]}})

    def _measured(self, subject, number):
        case = subject["case"]
        if case in self.broken:
            return {**subject, "error": self.broken[case]}
        jitter = math.exp(0.002 * (number % 5 - 2))
        own = 4e-6 * self.slower.get(case, 1.0) * jitter
        return {
            **subject,
            "seconds": {"kernel": [own] * 3, "qdq": [50e-6] * 3, "gemm": [10e-6] * 3, "copy": [5e-6] * 3},
            "host_seconds": 40e-6,
            "prepare_seconds": 0.1,
            "sets": 4,
            "bytes": 6000,
            "operations": 16384,
            "route": {"path": "dense", "tile": [64, 64, 64], "split_k": 1},
            "wrong": "",
            "disturbances": [],
            "readings": [],
        }


@pytest.fixture
def processes(monkeypatch):
    """Made-up processes, one at a time, on a made-up GPU; their class, whose attributes say how they behave."""
    monkeypatch.setattr(campaigning, "KernelProcess", Process)
    monkeypatch.setattr(campaigning, "_AT_ONCE", 1)
    monkeypatch.setattr(asking, "build_ahead", lambda *_, **__: type("Built", (), {"lines": []}))
    monkeypatch.setattr(planning, "detect_devices", lambda: (GPU, Device("cpu", "cpu")))
    monkeypatch.setattr(planning, "resolve_library", lambda *_: LibraryBuild("triton", "3.6.0", None, "0123"))
    for name, value in {"slower": {}, "broken": {}, "dies": set(), "rounds": []}.items():
        monkeypatch.setattr(Process, name, value, raising=False)
    return Process


def _run(folder, baselines):
    """A whole run of the suite on the two cases: verdicts by case, and what it told."""
    options = RunOptions(kernels=("triton_fused",), cases=CASES)
    run = Run(options, folder, suites=("performance",), baselines=baselines)
    planned = list(run.tasks)
    run.begin(planned, ["test"])
    told = []
    run.prepare(planned, told.append)
    verdicts = {item.subject.case_id: run.settle(item, "main") for item in planned}
    run.close()
    outcome = run.finish(planned, {}, "")
    assert not outcome.ledger.end.mismatches
    return verdicts, run.told


def _recorded(folder, machines=("GPU-1", "GPU-2", "GPU-3")):
    """A baseline of these machines, on which the same kernel took the same."""
    timings = [
        Timing("triton_fused", case, "h200", machine, str(process), {
            "kernel": [4e-6 * math.exp(0.002 * (process - 2) + 0.001 * number)] * 3,
            "qdq": [50e-6] * 3,
            "gemm": [10e-6] * 3,
            "copy": [5e-6] * 3,
        }, ROOFS)
        for case in CASES
        for number, machine in enumerate(machines)
        for process in range(5)
    ]  # fmt: skip
    path = baseline_path(folder, "h200", "triton_fused", "3.6.0")
    write_baseline(path, Baseline("h200", "triton_fused", "3.6.0", "cold", {}, case_baselines(timings)))


def test_rounds_go_there_and_back(processes, tmp_path):
    """Five processes measure both cases, in turned order; all is written down with machine and process."""
    _run(tmp_path / "ledger", tmp_path)
    assert processes.rounds == [list(CASES), list(CASES[::-1])] * 2 + [list(CASES)]
    timings = read_timings(tmp_path / "ledger" / "timings.jsonl")
    assert len(timings) == 10
    assert {timing.machine for timing in timings} == {"GPU-0"}
    assert len({timing.process for timing in timings}) >= 5
    assert timings[0].found["bytes"] == 6000


def test_without_a_baseline_rules_judge_alone(processes, tmp_path):
    """The verdict is a pass of the kind ambiguous, which says that there is nothing to compare with."""
    processes.slower[CASES[1]] = 20.0  # slower than QDQ
    verdicts, told = _run(tmp_path / "ledger", tmp_path)
    fine, slow = (verdicts[case] for case in CASES)
    assert (fine.outcome, fine.evidence["performance"]) == ("pass", "ambiguous")
    (ruling,) = [ruling for ruling in fine.rulings if ruling.rule == "baseline"]
    assert (ruling.outcome, ruling.reason) == ("not_run", "no baseline triton_fused-3.6.0.json for h200")
    assert slow.outcome == "fail"
    assert "slower than QDQ: 80 us, 1.60 times as long as QDQ" in slow.reason
    assert "pytest suites/performance --case" in slow.message
    assert told == ["timed 2 cases in 5 processes each, 0 suspects in 5 more"]


def test_against_a_baseline(processes, tmp_path):
    """The same is the same; a case 5 % slower is a suspect, is measured again, and fails."""
    _recorded(tmp_path)
    processes.slower[CASES[1]] = 1.05
    verdicts, told = _run(tmp_path / "ledger", tmp_path)
    same, slower = (verdicts[case] for case in CASES)
    assert (same.outcome, same.evidence["performance"]) == ("pass", "same")
    assert (slower.outcome, slower.evidence["performance"]) == ("fail", "slow")
    assert slower.reason.startswith("baseline: slow: +4.")
    assert slower.evidence["processes"] == 10
    assert told == ["timed 2 cases in 5 processes each, 1 suspects in 5 more"]


@pytest.mark.usefixtures("processes")
def test_a_baseline_of_one_machine_says_so(tmp_path):
    """How machines differ isn't known then, and no case is called slow or the same."""
    _recorded(tmp_path, machines=("GPU-1",))
    verdicts, _ = _run(tmp_path / "ledger", tmp_path)
    assert {verdict.evidence["performance"] for verdict in verdicts.values()} == {"ambiguous"}
    assert "the baseline is of one machine" in verdicts[CASES[0]].evidence["change"]["reason"]


def test_what_is_faster_than_its_bytes_is_an_error(processes, tmp_path):
    """A time that the read roof forbids is no speed."""
    processes.slower[CASES[0]] = 1e-4
    verdict = _run(tmp_path / "ledger", tmp_path)[0][CASES[0]]
    assert verdict.outcome == "error"
    assert "is less than reading its bytes takes" in verdict.reason


def test_what_a_process_lost(processes, tmp_path):
    """A kernel that raises in every process is an error with its text; a process that died costs its round."""
    processes.broken[CASES[0]] = "RuntimeError: no such kernel"
    processes.dies.add(2)
    verdicts, _ = _run(tmp_path / "ledger", tmp_path)
    assert (verdicts[CASES[0]].outcome, verdicts[CASES[0]].reason) == ("error", "RuntimeError: no such kernel")
    assert verdicts[CASES[1]].outcome == "pass"
    assert verdicts[CASES[1]].evidence["processes"] == 4


def test_when_the_time_is_spent(processes, tmp_path, monkeypatch):
    """Nothing is begun, and the cases are not_run, not errors."""
    monkeypatch.setattr(asking, "Campaign", lambda path, tell: Campaign(path, tell, budget=0.0))
    verdicts, _ = _run(tmp_path / "ledger", tmp_path)
    assert {(verdict.outcome, verdict.reason) for verdict in verdicts.values()} == {("not_run", SPENT)}
    assert processes.rounds == []


def test_only_gpus_are_timed(monkeypatch, tmp_path):
    """On a machine without one every case is not_run, with the mend; older paths and anchors aren't planned."""
    monkeypatch.setattr(
        planning, "detect_devices", lambda: (Device("cpu_interpreter", "cpu_interpreter"), Device("cpu", "cpu"))
    )
    run = Run(RunOptions("smoke"), tmp_path / "ledger", suites=("performance",))
    assert {task.subject.kernel for task in run.tasks.values()} == {"humming", "triton_fused"}
    reasons = {task.support.reason for task in run.tasks.values() if task.subject.kernel == "triton_fused"}
    assert reasons == {"timing needs a CUDA device"}
    monkeypatch.setattr(planning, "detect_devices", lambda: (GPU, replace(GPU, index=1, uuid="GPU-1")))
    run = Run(RunOptions(), tmp_path / "other", suites=("performance",))
    assert {task.device.name for task in run.tasks.values()} == {"h200"}
