# SPDX-License-Identifier: Apache-2.0
"""Whole runs: what a fault costs, what an interrupted run leaves, and what a resumed one takes over."""

from __future__ import annotations

import signal
import subprocess

from humming_conformance.ledger import read_ledger

#: Seconds a case may take here: many times what it takes to import torch, which counts.
TIME_LIMIT = 12


def test_each_fault_costs_one_error(suites):
    """Whatever a kernel does to its process or its worker costs that case, and every other case is judged."""
    faulty = ("segfaults", "aborts", "hangs", "raises", "swaps", "kills_worker")
    ran = suites.run("-n2", "--time-limit", TIME_LIMIT, kernels=["right", *faulty], tokens=[1, 2, 3])
    verdicts = ran.verdicts()
    expected = {(kernel, m): "error" if m == 2 and kernel in faulty else "pass" for kernel, m in verdicts}
    assert ran.outcomes() == expected
    assert len(expected) == 21
    for kernel, fault_class, words in (
        ("segfaults", "crash", ("SIGSEGV", "kernels_for_tests.py")),  # with the stack at the fault
        ("aborts", "crash", ("SIGABRT",)),
        ("hangs", "hang", (f"no result within {TIME_LIMIT} s", "kernels_for_tests.py")),
        ("raises", "crash", ("ArithmeticError: no configuration for this shape", "_raise")),
        ("swaps", "crash", ("returned another tensor than the one",)),
    ):
        verdict = verdicts[kernel, 2]
        assert verdict.evidence["fault_class"] == fault_class
        assert all(word in verdict.message for word in words), verdict.message
        assert f"repro '{verdict.subject}' --kernel kernels_for_tests:{kernel}" in verdict.message
    assert "worker lost: gw" in verdicts["kills_worker", 2].reason
    assert ran.ledger.end.exit_reason == "finished"
    assert ran.ledger.end.mismatches == ()
    assert len(ran.ledger.head.plan) == 21
    assert ran.code == 1
    assert "planned 21 = 15 pass + 6 error" in ran.output
    assert "6 ended in an error" in ran.output
    assert ran.last_line == "slow 0  ambiguous 0  unsupported 0  not_run 0  waived 0"
    assert [path.name for path in ran.folder.iterdir()] == ["ledger.jsonl"]


def test_wrong_results_fail_and_say_where(suites):
    """One wrong element, an output that was never written and a write behind the output each fail their case."""
    ran = suites.run("--conformance-html", "run.html", kernels=["wrong", "unwritten", "spills"], tokens=[1, 2])
    verdicts = ran.verdicts()
    for kernel, fault_class, words in (
        ("wrong", None, ("1 of 16 elements", "row 1, column 3: got 1000")),
        ("unwritten", None, ("16 of 16 elements", "got nan")),
        ("spills", "unowned write", ("1 elements written behind the output",)),
    ):
        verdict = verdicts[kernel, 2]
        assert verdict.outcome == "fail"
        assert verdicts[kernel, 1].outcome == "pass"
        assert fault_class in (None, verdict.evidence["fault_class"])
        assert all(word in verdict.message for word in words), verdict.message
        assert verdict.message in ran.output
    assert ran.code == 1
    assert "planned 6 = 3 pass + 3 fail" in ran.output
    html = (suites.folder / "run.html").read_text()
    assert all(str(verdict.subject) in html for verdict in verdicts.values())


def test_stopped_at_the_first_failure_and_resumed(suites):
    """After -x the rest is not run and is no mismatch; --resume judges that rest, and only that."""
    first = suites.run("-x", kernels=["wrong"], tokens=[1, 2, 3])
    assert list(first.outcomes().values()) == ["pass", "fail", "not_run"]
    assert "not reached before the run was stopped" in first.verdicts()["wrong", 3].reason
    assert first.ledger.end.exit_reason.startswith("interrupted: stopping after 1 failures")
    assert first.ledger.end.mismatches == ()
    assert first.code == 1
    assert "planned 3 = 1 pass + 1 fail + 1 not_run" in first.output
    assert "not_run 1" in first.last_line

    resumed = suites.run("--resume", "ledger", ledger=None, kernels=["wrong"], tokens=[1, 2, 3])
    verdicts = read_ledger(first.folder).verdicts
    assert [verdict.outcome for verdict in verdicts] == ["pass", "fail", "pass"]
    assert verdicts[0] == first.verdicts()["wrong", 1], "judged again: the seconds differ"
    assert verdicts[1] == first.verdicts()["wrong", 2], "judged again: the seconds differ"
    assert read_ledger(first.folder).end.exit_reason == "finished"
    assert resumed.code == 1
    assert "planned 3 = 2 pass + 1 fail" in resumed.output


def test_interrupted_by_the_keyboard(suites):
    """SIGINT keeps what was judged; what was running and all behind it are not run, and the run is red."""
    with subprocess.Popen(
        suites.command("--ledger", "ledger", kernels=["hangs"], tokens=[1, 2, 3]),
        cwd=suites.folder,
        env=suites.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        suites.wait_for_a_verdict(process)
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=120)[0]
    ledger = read_ledger(suites.folder / "ledger")
    assert [verdict.outcome for verdict in ledger.verdicts] == ["pass", "not_run", "not_run"]
    assert ledger.end.exit_reason == "interrupted: Ctrl-C"
    assert ledger.end.mismatches == ()
    assert process.returncode == 2
    assert "planned 3 = 1 pass + 2 not_run" in output
    assert "slow 0  ambiguous 0  unsupported 0  not_run 2  waived 0\n" in output


def test_stopped_workers_leave_the_rest_not_run(suites):
    """-x under xdist: what no worker reported is not run, and the numbers add up."""
    ran = suites.run("-n1", "-x", "-v", "--junitxml=run.xml", kernels=["wrong"], tokens=[1, 2, 3])
    assert ran.outcomes()["wrong", 2] == "fail"
    assert ran.ledger.end.exit_reason.startswith("interrupted")
    assert ran.ledger.end.mismatches == ()
    assert len(ran.ledger.verdicts) == 3
    assert ran.code != 0
    assert ran.last_line is not None
    assert "scheduling tests via WorkStealingScheduling" in ran.output
    assert '<property name="outcome" value="fail" />' in (suites.folder / "run.xml").read_text()


def test_killed_and_resumed(suites):
    """After SIGKILL nothing is merged; what was judged is kept, and a resumed run judges what is asked for then."""
    with subprocess.Popen(
        suites.command("--ledger", "ledger", kernels=["hangs"], tokens=[1, 2, 3]),
        cwd=suites.folder,
        env=suites.environment,
        stdout=subprocess.DEVNULL,
    ) as process:
        suites.wait_for_a_verdict(process)
        process.kill()
    killed = read_ledger(suites.folder / "ledger")
    assert killed.end is None
    assert [verdict.outcome for verdict in killed.verdicts] == ["pass"]
    ran = suites.run("--resume", "ledger", ledger=None, kernels=["hangs"], tokens=[1, 3])
    resumed = read_ledger(suites.folder / "ledger")
    assert {v.subject.case_id: v.outcome for v in resumed.verdicts} == {
        suites.case(1): "pass",
        suites.case(2): "not_run",
        suites.case(3): "pass",
    }
    assert killed.verdicts[0] in resumed.verdicts, "judged again: the seconds differ"
    assert ran.code == 0, ran.output
