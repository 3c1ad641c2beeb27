# SPDX-License-Identifier: Apache-2.0
"""Cases judged under a memory checker, which is a script here, and which process a case is given."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import replace

import pytest

from humming_conformance.campaign import repro
from humming_conformance.campaign.environment import IDENTITY, describe_environment
from humming_conformance.campaign.judge import Judge, process_spec, under_sanitizer
from humming_conformance.campaign.plan import PlanError, RunOptions, make_plan
from humming_conformance.campaign.run import Run
from humming_conformance.devices import Device
from humming_conformance.execution import guard_pages, sanitizer
from humming_conformance.ledger import LedgerError, Planned
from humming_conformance.problems import parse_case
from humming_conformance.protocols import Support

CASE = "dense-w_int8.channel.bf16-a_bf16-m2.n8.k32-random"
POISON = "moe_indexed-w_int4.g32.bf16-a_bf16-m4.n32.k64.e4.top2.empty_last{}-poison"
H200 = Device("h200", "cuda", sm=90, uuid="GPU-0")

CLEAN = "========= ERROR SUMMARY: 0 errors\n"
REPORT = """\
========= Invalid __global__ write of size 2 bytes
=========     at gemm(float *)+0x90
=========     by thread (3,0,0) in block (1,0,0)
=========     Access at 0x7f2b40000400 is out of bounds
=========
========= ERROR SUMMARY: 1 error
"""

#: Runs what stands behind its options as a child, then writes its log.
PROGRAM = """\
    #!{python}
    import os, pathlib, subprocess, sys
    if sys.argv[1:] == ["--version"]:
        print("Version 2025.3.1.0")
        sys.exit()
    start = sys.argv.index(sys.executable)
    log = pathlib.Path(sys.argv[sys.argv.index("--log-file", 0, start) + 1])
    log.write_text("========= COMPUTE-SANITIZER\\n")
    status = subprocess.run(sys.argv[start:], close_fds=False).returncode
    assert os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1"
    with log.open("a") as file:
        file.write({text!r})
    sys.exit(status)
"""


@pytest.fixture
def checker(tmp_path, monkeypatch):
    """Puts a compute-sanitizer that ends its log with a text on PATH."""

    def install(text):
        path = tmp_path / sanitizer.NAME
        path.write_text(textwrap.dedent(PROGRAM.format(python=sys.executable, text=text)))
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return install


@pytest.fixture
def task():
    """QDQ on a small problem, on the CPU: the script doesn't mind."""
    return make_plan(RunOptions(kernels=("qdq",), cases=(CASE,), devices=("cpu",)))[0]


def judged(task, tool, *waivers, **more):
    """The verdict under a tool."""
    with Judge(waivers, sanitize=tool, **more) as judge:
        return judge.numerics(task)


def test_a_clean_log_is_a_pass(checker, task):
    """The verdict carries a ruling of the tool's name, and its evidence says that it looked and found nothing."""
    checker(CLEAN)
    verdict = judged(task, "memcheck")
    assert verdict.outcome == "pass", verdict.message
    assert [(ruling.rule, ruling.outcome) for ruling in verdict.rulings][-1] == ("memcheck", "pass")
    assert verdict.evidence["sanitizer"] == {"tool": "memcheck", "count": 0, "reports": []}
    assert verdict.evidence["guard_pages"] is False


def test_a_report_is_a_failure_of_its_case_alone(checker, task):
    """Right numbers don't save it; the message quotes kernel, thread and address; the next case has its own log."""
    checker(REPORT)
    with Judge(sanitize="memcheck") as judge:
        verdict = judge.numerics(task)
        checker(CLEAN)
        assert judge.numerics(task).outcome == "pass"
    assert verdict.outcome == "fail"
    assert verdict.reason.startswith("memcheck reported 1 errors, the first: Invalid __global__ write of size 2 bytes")
    for words in ("at gemm(float *)+0x90", "by thread (3,0,0) in block (1,0,0)", "0x7f2b40000400"):
        assert words in verdict.message
    assert verdict.message.startswith(str(task.subject))
    assert verdict.message.count("--sanitize memcheck") == 2
    assert verdict.evidence["fault_class"] == "unowned write"


def test_a_log_without_an_end_is_an_error(checker, task):
    """Where the tool came to no summary, its silence is no pass."""
    checker("")
    verdict = judged(task, "initcheck")
    assert verdict.outcome == "error"
    assert "initcheck came to no summary" in verdict.reason


def test_a_case_that_dies_keeps_the_reports(checker, task):
    """The error stays the outcome, and what the tool reported before is told first."""
    checker(REPORT)
    crashing = replace(task.kernel, reference="no_such_module:kernel")
    verdict = judged(replace(task, kernel=crashing), "memcheck")
    assert verdict.outcome == "error"
    assert verdict.reason.startswith("memcheck reported 1 errors")
    assert "no_such_module" in verdict.reason
    assert verdict.evidence["fault_class"] == "unowned write"


def test_time_is_stretched(checker, task, monkeypatch):
    """A case under a tool has many times its usual limit."""
    checker(CLEAN)
    assert sanitizer.SLOWDOWN == 10
    assert judged(task, "racecheck", time_limit=6.0).outcome == "pass"
    monkeypatch.setattr(sanitizer, "SLOWDOWN", 0.001)
    monkeypatch.setattr("humming_conformance.execution.process.START_LIMIT", 60_000.0)
    assert "took longer than its time limit" in judged(task, "racecheck", time_limit=6.0).reason


def test_what_cannot_be_judged_under_a_tool(checker, task, tmp_path, monkeypatch):
    """A CPU, and a tool that is not here, mean not run with a mend; an unclaimed case stays unsupported."""
    checker(CLEAN)
    verdict = judged(under_sanitizer(task, "memcheck"), "memcheck")
    assert (verdict.outcome, verdict.reason) == (
        "not_run",
        "memcheck looks into CUDA kernels, and cpu runs none (mend: leave out --sanitize)",
    )
    on_gpu = replace(task, device=H200)
    assert under_sanitizer(on_gpu, "memcheck") == on_gpu
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "empty"))
    verdict = judged(under_sanitizer(on_gpu, "memcheck"), "memcheck")
    assert verdict.outcome == "not_run"
    assert "compute-sanitizer is not here (mend: install" in verdict.reason
    unclaimed = replace(on_gpu, support=Support("no", "not claimed"))
    assert under_sanitizer(unclaimed, "memcheck") == unclaimed


def test_an_unknown_tool_is_bad_input(task):
    """The error names the tools that there are."""
    with pytest.raises(PlanError, match=r"--sanitize 'valgrind' is none of .* memcheck, racecheck, initcheck"):
        under_sanitizer(task, "valgrind")


def test_suites_that_have_no_use_for_a_tool(tmp_path):
    """Where no suite launches anything under it, a tool is refused instead of written into the ledger's head."""
    with pytest.raises(PlanError, match=r"--sanitize 'memchek': only suites/numerics launches kernels under it"):
        Run(RunOptions(), tmp_path / "ledger", suites=("routing", "performance"), sanitize="memchek")


def test_a_sanitized_run_is_another_run(checker, task, tmp_path):
    """The head names tool and version, and a ledger is resumed under the same tool only."""
    checker(CLEAN)
    told = describe_environment([task], [], "memcheck")
    assert told["sanitizer"] == {"tool": "memcheck", "version": "Version 2025.3.1.0"}
    assert "sanitizer" in IDENTITY
    options = RunOptions(kernels=("qdq",), cases=(CASE,), devices=("cpu",))
    planned = [Planned("numerics", task.subject)]
    first = Run(options, tmp_path / "ledger", sanitize="memcheck")
    first.begin(planned, ["test"])
    assert first.settle(planned[0], "main").outcome == "not_run"
    first.close()
    first.finish(planned, {}, "")
    with pytest.raises(LedgerError, match="its sanitizer is"):
        Run(options, tmp_path / "ledger", resumed=True).begin(planned, ["test"])
    Run(options, tmp_path / "ledger", resumed=True, sanitize="memcheck").begin(planned, ["test"])


def test_repro_under_a_tool(checker, task, tmp_path, capsys):
    """One subject is judged again under the tool; here it cannot be, and the status says so."""
    checker(CLEAN)
    status = repro.reproduce(task.subject, ("qdq",), {}, tmp_path / "script.py", sanitize="memcheck")
    assert status == 3
    assert "not_run: memcheck looks into CUDA kernels" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("case_id", "device", "guarded"),
    [
        (POISON.format(""), H200, True),
        (POISON.format("-call_streams"), H200, True),
        (POISON.format("-call_graph"), H200, False),
        (POISON.format(""), Device("cpu", "cpu"), False),
        (CASE, H200, False),
    ],
)
def test_which_cases_have_guard_pages(task, case_id, device, guarded):
    """Those of the regime poison on CUDA that capture nothing, in a process of their own; none under a tool."""
    task = replace(task, case=parse_case(case_id), device=device)
    spec = process_spec(task)
    assert (guard_pages.VARIABLE in dict(spec.environment)) == guarded
    assert (spec != process_spec(replace(task, case=parse_case(CASE)))) == guarded
    checked = process_spec(task, ("compute-sanitizer",))
    assert guard_pages.VARIABLE not in dict(checked.environment)
    assert checked.launcher == ("compute-sanitizer",)
