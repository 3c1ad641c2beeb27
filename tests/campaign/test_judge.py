# SPDX-License-Identifier: Apache-2.0
"""From a task to a verdict where the kernel process is made up, and whole runs without pytest."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest
from packaging.version import Version

import humming_conformance
from humming_conformance.campaign import plan, run
from humming_conformance.campaign.judge import Judge, target_of
from humming_conformance.campaign.plan import PlanError, RunOptions, make_plan
from humming_conformance.campaign.questions import numerics as numerics_question
from humming_conformance.campaign.run import INPUT_ERRORS, Run, default_folder
from humming_conformance.devices import Device, pretended_devices
from humming_conformance.execution import (
    LibraryBuild,
    ProcessDied,
    ProcessStartFailed,
    TaskRaised,
    TimeLimit,
)
from humming_conformance.execution.run_case import run_case
from humming_conformance.ledger import LedgerError, Planned, Waiver, read_ledger
from humming_conformance.protocols import Support

CASE = "dense-w_int8.channel.bf16-a_bf16-m{}.n8.k32-random"


class Pool:
    """Answers every call with what it was given: a function, or an exception."""

    def __init__(self, answer):
        self.answer = answer
        self.calls = []
        self.closed = False

    def call(self, spec, function, *, timeout, **arguments):
        """As the pool of kernel processes."""
        self.calls.append((spec, function, timeout, arguments))
        if isinstance(self.answer, Exception):
            raise self.answer
        return type("Reply", (), {"value": self.answer(**arguments)})

    def close(self):
        """As the pool of kernel processes."""
        self.closed = True


@pytest.fixture
def task():
    """QDQ on a small problem."""
    return make_plan(RunOptions(kernels=("qdq",), cases=(CASE.format(2),), devices=("cpu",)))[0]


def judge_with(answer, *waivers, **more):
    """A judge whose kernel processes answer so, and its pool."""
    judge = Judge(waivers, **more)
    judge._pool = Pool(answer)
    return judge, judge._pool


def waiver(kind):
    """On all that QDQ does."""
    return Waiver("qdq:*:*", "a/b#1", "known", kind, None, dt.date(2099, 12, 31))


def test_right_in_this_process(task):
    """What the task function returns here, arrays and dicts alone, becomes a pass with its route and contract."""
    judge, pool = judge_with(run_case, time_limit=40.0)
    verdict = judge.numerics(task)
    assert (verdict.outcome, verdict.subject, verdict.suite) == ("pass", task.subject, "numerics")
    assert verdict.evidence["route"]["path"] == "cpu_fp32"
    ((spec, function, timeout, arguments),) = pool.calls
    assert spec.name == "own@cpu"
    assert function == "humming_conformance.execution.run_case:run_case"
    assert timeout == 40
    assert arguments["kernel"] == "humming_conformance.kernels.qdq:kernel"
    assert arguments["relations"] is True
    assert arguments["lease_timeout"] < timeout
    judge.close()
    assert pool.closed


@pytest.mark.parametrize(
    ("support", "outcome", "reason"),
    [
        (Support("no", "not claimed"), "unsupported", "not claimed"),
        (Support("absent", "no GPU", "get one"), "not_run", "no GPU (mend: get one)"),
    ],
)
def test_what_cannot_be_judged_is_not_launched(task, support, outcome, reason):
    """The plan's answer is the verdict, waivers or not."""
    judge, pool = judge_with(AssertionError(), waiver("quarantine"))
    verdict = judge.numerics(replace(task, support=support))
    assert (verdict.outcome, verdict.reason) == (outcome, reason)
    assert pool.calls == []


def test_quarantine(task):
    """A quarantined subject is not launched."""
    judge, pool = judge_with(AssertionError(), waiver("quarantine"))
    assert judge.numerics(task).outcome == "waived"
    assert pool.calls == []


@pytest.mark.parametrize(
    ("error", "fault_class", "words"),
    [
        (ProcessDied("SIGSEGV", "Fatal Python error"), "crash", "ended its kernel process: the kernel process died"),
        (TimeLimit(300.0, "in gemm", ""), "hang", "took longer than its time limit: no result within 300 s"),
        (ProcessStartFailed("own@cpu", "no memory", ""), "toolchain", "did not start"),
        (TaskRaised("RuntimeError", "CUDA error", "Traceback"), "crash", "raised: RuntimeError: CUDA error"),
        (TaskRaised("mine.CannotJudge", "by another", "Traceback"), "crash", "mine.CannotJudge"),
        (MemoryError("too large"), "judge", "the judge raised MemoryError: too large"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_no_result_is_an_error(task, error, fault_class, words):
    """Each way to bring nothing back has its fault class, its evidence and the way to see it again; none is waived."""
    judge, _ = judge_with(error, waiver("tolerate"))
    verdict = judge.numerics(task)
    assert verdict.outcome == "error"
    assert words in verdict.reason
    assert verdict.evidence == {"fault_class": fault_class}
    assert str(error) in verdict.message
    assert f"humming-conformance repro '{task.subject}'" in verdict.message
    assert f"--case '{task.subject.case_id}' --kernel qdq" in verdict.message


@pytest.mark.parametrize(
    "kind", ["humming_conformance.support.CannotJudge", "humming_conformance.execution.errors.LeaseTimeout"]
)
def test_what_the_adapter_cannot_judge_here(task, kind):
    """An adapter that says so, and a GPU that others held, mean not run, with the reason; that is no error."""
    judge, _ = judge_with(TaskRaised(kind, "no compiler; install nvcc", "Traceback"))
    verdict = judge.numerics(task)
    assert (verdict.outcome, verdict.reason) == ("not_run", "no compiler; install nvcc")


def test_a_contract_without_sources_is_an_error(task):
    """What the adapter declares is read strictly; a weaker field without a source stays with its case."""

    def unsourced(**arguments):
        reply = run_case(**arguments)
        reply["contract"]["sources"] = {}
        return reply

    verdict = judge_with(unsourced)[0].numerics(task)
    assert verdict.outcome == "error"
    assert "names no source" in verdict.reason


def test_how_to_see_it_again(task):
    """Adapters that aren't built in and builds that aren't installed are named in the commands."""
    library = type("L", (), {"module": "humming", "environment": {}, "cache_variables": ()})
    kernel = type("K", (), {"name": "qdq", "library": library})
    reference = replace(task.kernel, kernel=kernel, reference="mine:kernel")
    build = LibraryBuild("humming", "0.1.16", "/builds/h", "0123")
    verdict = judge_with(ProcessDied("SIGBUS", ""))[0].numerics(
        replace(task, kernel=reference, build=build, request="0.1.16")
    )
    assert verdict.message.count("--kernel mine:kernel --library humming=0.1.16") == 2


def test_how_to_see_it_again_without_a_checkout(task, tmp_path, monkeypatch):
    """Where the suites lie inside the installed package, pytest finds them by their dotted name."""
    judge = judge_with(ProcessDied("SIGBUS", ""))[0]
    assert "or: pytest suites/numerics --case" in judge.numerics(task).message
    package = tmp_path / "site-packages" / "humming_conformance"
    (package / "suites").mkdir(parents=True)
    monkeypatch.setattr(humming_conformance, "__file__", str(package / "__init__.py"))
    assert "or: pytest --pyargs humming_conformance.suites.numerics --case" in judge.numerics(task).message


@pytest.mark.parametrize(("version", "expected"), [("0.1.16", Version("0.1.16")), ("unknown", None), (None, None)])
def test_what_waivers_are_held_against(task, version, expected):
    """The build's version, where it has one, and the device's architecture."""
    build = LibraryBuild("humming", version, None, "0123") if version else None
    target = target_of(replace(task, build=build, device=Device("h200", "cuda", sm=90)))
    assert (target.library_version, target.sm) == (expected, 90)


def test_a_run_without_pytest(tmp_path, monkeypatch):
    """Begin, settle, finish: the ledger holds what was planned; a resumed run judges only what it lacks."""
    options = RunOptions(kernels=("qdq",), cases=(CASE.format(1), CASE.format(2)), devices=("cpu",))
    judged = []

    def numerics(_judge, task):
        judged.append(task.subject)
        judge, pool = judge_with(run_case)
        return judge._judged(task, pool.call)

    monkeypatch.setattr(Judge, "numerics", numerics)
    folder = tmp_path / "ledger"
    first = Run(options, folder, require=["qdq=2"])
    planned = list(first.tasks)
    first.begin(planned, ["test"])
    first.settle(planned[0], "gw0")
    first.close()
    outcome = first.finish(planned, {}, "the power went")
    assert [verdict.outcome for verdict in outcome.ledger.verdicts] == ["pass", "not_run"]
    assert outcome.status.code == 1
    (reason,) = outcome.status.reasons
    assert reason.startswith("--require qdq: 1 of 2 required judged; first reasons: not reached before the run")

    second = Run(options, folder, resumed=True, require=["qdq=2"])
    second.begin(planned, ["test"])
    for item in planned:
        second.settle(item, "gw0")
    second.close()
    outcome = second.finish(planned, {}, "")
    assert judged == [item.subject for item in planned]
    assert [verdict.outcome for verdict in read_ledger(folder).verdicts] == ["pass", "pass"]
    assert (outcome.status.code, outcome.status.reasons, outcome.ledger.end.mismatches) == (0, (), ())


def test_stale_waivers(tmp_path, task, monkeypatch):
    """A shipped waiver that matched nothing is told where the whole last tier was planned; one's own always."""
    (tmp_path / "mine.toml").write_text(
        'waiver = [{query = "qdq:*-m9.*:*", issue = "a/b#1", reason = "known", kind = "tolerate", library = "*", '
        "expires = 2099-12-31}]"
    )
    monkeypatch.setattr(numerics_question, "make_plan", lambda _options: (task,))
    planned = [Planned("numerics", task.subject)]
    (tmp_path / "none.toml").write_text("")
    for tier, cases, shipped, told in (
        ("full", (), "mine.toml", True),
        ("gate", (), "mine.toml", False),
        ("full", (CASE.format(2),), "mine.toml", False),
        ("gate", (), "none.toml", True),
    ):
        monkeypatch.setattr(run, "WAIVERS", tmp_path / shipped)
        own = [tmp_path / "mine.toml"] if shipped == "none.toml" else []
        options = RunOptions(tier, kernels=("qdq",), cases=cases)
        whole = Run(options, tmp_path / f"{tier}{len(cases)}{shipped}", waiver_files=own)
        whole.begin(planned, [])
        stale = [item.key for item in whole.finish(planned, {}, "stopped").stale]
        assert stale == (["a/b#1 qdq:*-m9.*:*"] if told else [])


def test_bad_options_of_a_run(tmp_path):
    """Each is one of the errors that mean bad input; a folder that can't be made is told as a ledger's."""
    options = RunOptions(kernels=("qdq",), cases=(CASE.format(1),), devices=("cpu",))
    for seconds in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(PlanError, match="--time-limit"):
            Run(options, tmp_path, time_limit=seconds)
    for wrong in ({"require": ["qdq=0"]}, {"waiver_files": [tmp_path / "none.toml"]}):
        with pytest.raises(INPUT_ERRORS):
            Run(options, tmp_path, **wrong)
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match="Not a directory"):
        Run(options, tmp_path / "file" / "below").begin([], [])
    assert default_folder().parts[0] == ".conformance"


def test_workers_share_equal_gpus(monkeypatch):
    """Workers take turns over the GPUs of one name; a single device serves all."""
    gpus = [Device("h200", "cuda", sm=90, index=index, uuid=f"GPU-{index}") for index in range(2)]
    other = Device("l4", "cuda", sm=89, index=2, uuid="GPU-2")
    monkeypatch.setattr(plan, "detect_devices", lambda: (*gpus, other, Device("cpu", "cpu")))
    assert [plan.share_of(gpus[0], number).index for number in (0, 1, 2, 13)] == [0, 1, 0, 1]
    assert plan.share_of(other, 1) == other
    older = pretended_devices(gpus)[0]
    assert [plan.share_of(older, number).uuid for number in (0, 1)] == ["GPU-0", "GPU-1"]
    assert plan.share_of(older, 1).pretended
