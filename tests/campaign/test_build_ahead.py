# SPDX-License-Identifier: Apache-2.0
"""Kernels compiled ahead of a plan, by processes of an adapter that writes files instead of compiling."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from humming_conformance.campaign import build_ahead as ahead
from humming_conformance.campaign.build_ahead import BuildSummary, build_ahead, first_error
from humming_conformance.campaign.judge import Judge, jit_folder
from humming_conformance.campaign.plan import RunOptions, make_plan
from humming_conformance.execution import LeaseTimeout, ProcessDied, ProcessStartFailed, TaskRaised, TimeLimit
from humming_conformance.ledger import FailedBuild
from humming_conformance.protocols import Support

CASE = "dense-w_int8.channel.bf16-a_bf16-m{}.n{}.k32-random"
KILLS, REFUSED, ABSENT = 24, 40, 56


class Builder:
    """Builds ahead for cases of the given sizes, in a state folder of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[str] = []

    def tasks(self, sizes, tokens=(1, 2)):
        """The plan for each N with each number of tokens."""
        cases = tuple(CASE.format(m, n) for n in sizes for m in tokens)
        library = {"toylib": str(self.folder / "library")}
        return make_plan(RunOptions(kernels=("building_kernel:building",), cases=cases, libraries=library))

    def build(self, tasks, processes=3):
        """Build what they need."""
        more = {"processes": processes, "time_limit": 100, "tell": self.lines.append}
        return build_ahead(tasks, lambda task, _number: task, **more)

    @property
    def jit(self):
        """The folder that the library compiles into."""
        return jit_folder(self.tasks([8])[0])

    def compiled(self):
        """How often the kernel for each N was compiled, or tried."""
        path = self.jit / "compiled"
        return Counter(path.read_text().split()) if path.exists() else Counter()


@pytest.fixture
def builder(tmp_path, monkeypatch):
    """A builder for the adapter of the plugin's tests."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "plugin"))
    monkeypatch.setenv("HUMMING_CONFORMANCE_STATE", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()
    (tmp_path / "library" / "toylib").mkdir(parents=True)
    (tmp_path / "library" / "toylib" / "__init__.py").touch()
    return Builder(tmp_path)


def test_each_unit_is_built_once_and_remembered(builder):
    """Several processes compile each distinct kernel once, and the next run starts no process at all."""
    tasks = builder.tasks([8, 16, 32])
    summary = builder.build(tasks)
    assert builder.compiled() == {"n8": 1, "n16": 1, "n32": 1}
    assert summary == BuildSummary(cases=6, units=3, built=3, seconds=summary.seconds)
    assert builder.lines == ["building kernels: 3 of 3"]

    builder.lines.clear()
    assert build_ahead(tasks, no_process, processes=3, time_limit=100, tell=builder.lines.append) == BuildSummary()
    assert builder.lines == []


def no_process(_task, _number):
    """Stands where a task would be placed."""
    raise AssertionError("a process was wanted")


def test_what_a_mark_says(builder, monkeypatch):
    """A new case of a built kernel, and all cases of a changed adapter, are looked at and build nothing."""
    builder.build(builder.tasks([8]))
    builder.lines.clear()
    summary = builder.build(builder.tasks([8], tokens=[1, 2, 3]))
    assert (summary.cases, summary.units, summary.there, summary.built) == (1, 1, 1, 0)
    monkeypatch.setattr(ahead, "source_hash", lambda _reference: "changed")
    assert builder.build(builder.tasks([8])).there == 1
    assert builder.build(builder.tasks([8])) == BuildSummary(), "marked by the process that found it built"
    assert builder.lines == []
    assert builder.compiled() == {"n8": 1}


def test_marks_go_with_what_they_vouch_for(builder, monkeypatch):
    """Without the JIT folder, and by other tools, kernels are built again."""
    tasks = builder.tasks([8])
    builder.build(tasks)
    shutil.rmtree(builder.jit)
    assert builder.build(tasks).built == 1
    monkeypatch.setattr(ahead, "_tools", lambda: "another compiler")
    assert builder.build(tasks).built == 1


def test_a_failed_build_names_all_its_cases(builder):
    """It is compiled once; its record has the compiler's first error and its cases; the next run tries it again."""
    (builder.folder / "state" / "broken").write_text("16")
    tasks = builder.tasks([8, 16, 32])
    summary = builder.build(tasks)
    assert builder.compiled() == {"n8": 1, "n16": 1, "n32": 1}
    assert (summary.units, summary.built, summary.lost) == (3, 2, 0)
    (failed,) = summary.failed
    assert (failed.key, failed.description) == ("n16", "a kernel for N=16")
    assert failed.error == "toy.cu(3): error: no tile for 16"
    assert "the compiler failed with exit code 1" in failed.log
    assert set(failed.subjects) == {task.subject for task in tasks if task.case.problem.n == 16}
    assert builder.lines == ["building kernels: 3 of 3, 1 failed"]

    (builder.folder / "state" / "broken").unlink()
    again = builder.build(tasks)
    assert (again.cases, again.built, again.failed) == (2, 1, ())


def test_a_lost_process_costs_its_unit(builder):
    """The unit whose process died is left to its cases, and the same thread goes on with the rest."""
    summary = builder.build(builder.tasks([8, KILLS, 32, 16]), processes=1)
    assert (summary.units, summary.built, summary.lost, summary.failed) == (4, 3, 1, ())
    assert builder.compiled() == {"n8": 1, "n16": 1, "n32": 1, f"n{KILLS}": 1}


def test_what_cannot_be_selected_is_left_to_its_run(builder):
    """A selection that raises is no failed build, whatever it raises."""
    summary = builder.build(builder.tasks([8, REFUSED, ABSENT]))
    assert (summary.cases, summary.units, summary.built, summary.failed) == (6, 1, 1, ())


def test_what_is_not_built_ahead(builder):
    """Unsupported cases and adapters that compile nothing ahead, or have no folder for it, start no process."""
    (task, *_) = builder.tasks([8])
    (qdq,) = make_plan(RunOptions(kernels=("qdq",), cases=(CASE.format(1, 8),), devices=("cpu",)))
    tasks = [replace(task, support=Support("no", "not claimed")), qdq, replace(task, build=None)]
    assert build_ahead(tasks, no_process, processes=1, time_limit=100, tell=builder.lines.append) == BuildSummary()


def test_a_fault_of_the_judge_is_raised(builder):
    """What is no answer of a kernel process ends the run instead of being taken for one."""
    with pytest.raises(AssertionError, match="a process was wanted"):
        build_ahead(builder.tasks([8]), no_process, processes=1, time_limit=100, tell=builder.lines.append)
    end_of_threads()


def test_interrupted(builder, monkeypatch):
    """Ctrl-C leaves at once; threads end behind what they are at, and nothing more is begun."""
    monkeypatch.setattr(ahead, "INTERVAL", 0.0)

    def interrupt(_line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_ahead(builder.tasks([8, 16]), lambda task, _number: task, processes=2, time_limit=100, tell=interrupt)
    end_of_threads()
    assert builder.compiled() == {}


def end_of_threads():
    """Wait for the threads that build."""
    for thread in threading.enumerate():
        if thread.name.startswith("build-"):
            thread.join(100)
            assert not thread.is_alive()


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (TaskRaised("RuntimeError", "exit code 1", "Traceback"), True),
        (TimeLimit(300.0, "in nvcc", ""), True),
        (TaskRaised("humming_conformance.support.CannotJudge", "no compiler", "Traceback"), False),
        (ProcessDied("SIGKILL", ""), False),
        (ProcessStartFailed("toylib@cpu", "no memory", ""), False),
        (LeaseTimeout("busy"), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_counts_as_a_failed_build(error, failed):
    """Only what would fail again: a compiler that fails or doesn't end, not a process that died."""
    assert ahead._is_failed_build(error) is failed


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", "RuntimeError: exit code 1"),
        ("a.cuh(64): warning: errors are likely\na.cuh(65): error: static assertion failed\n", "a.cuh(65): error:"),
        ("ptxas error   : Entry function uses too much shared data\n", "ptxas error   :"),
        ("a.cu:1:10: fatal error: cuda.h: No such file\n", "a.cu:1:10: fatal error:"),
    ],
)
def test_first_error(log, line):
    """The compilers' ways to say it; without one, what was raised."""
    assert first_error(TaskRaised("RuntimeError", "exit code 1", "Traceback", log)).startswith(line)


class Launching:
    """Kernel processes that die of each case."""

    def __init__(self) -> None:
        self.launched = []

    def call(self, _spec, _function, *, case, **_more):
        """As the pool of kernel processes."""
        self.launched.append(case)
        raise ProcessDied("SIGSEGV", "")


def test_the_verdict_of_a_failed_build():
    """An error of the toolchain that names unit and first error, with nothing launched."""
    tasks = make_plan(RunOptions(kernels=("qdq",), cases=(CASE.format(1, 8), CASE.format(2, 8)), devices=("cpu",)))
    failed = FailedBuild("k1", "tile 16x64", "a.cu(3): error: no", "the whole log", (tasks[0].subject,))
    judge = Judge(failed_builds=[failed])
    judge._pool = Launching()
    verdict, other = map(judge.numerics, tasks)
    assert verdict.outcome == "error"
    assert verdict.reason == "its kernel did not build (tile 16x64): a.cu(3): error: no"
    assert verdict.evidence == {"fault_class": "toolchain", "unit": "k1"}
    assert "the whole log" in verdict.message
    assert f"repro '{verdict.subject}'" in verdict.message
    assert other.evidence == {"fault_class": "crash"}
    assert judge._pool.launched == [tasks[1].case.id]
