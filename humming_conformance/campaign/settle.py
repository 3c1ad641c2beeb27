# SPDX-License-Identifier: Apache-2.0
"""What every suite does with a task around judging it: support, waivers, faults of kernel and judge, reproduction."""

from __future__ import annotations

import datetime as dt
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.version import InvalidVersion, Version

import humming_conformance
from humming_conformance.campaign.plan import Task
from humming_conformance.execution import (
    ExecutionError,
    LeaseTimeout,
    ProcessDied,
    ProcessStartFailed,
    TaskRaised,
    TimeLimit,
)
from humming_conformance.ledger import Planned, Target, Waiver, apply, quarantined
from humming_conformance.protocols import Outcome, Ruling, Verdict
from humming_conformance.support import CannotJudge

#: Seconds one case may take, JIT compilation included.
TIME_LIMIT = 300.0

#: What is raised in a kernel process when a case can't be judged there, though the kernel may be right.
NOT_RUN = {f"{kind.__module__}.{kind.__qualname__}" for kind in (CannotJudge, LeaseTimeout)}


def settled(suite: str, task: Task, waivers: Sequence[Waiver], judge: Callable[[Task], Verdict]) -> Verdict:
    """The verdict of a suite on a task of its plan.

    ``judge`` is asked where the task is supported and not quarantined. What it raises costs this verdict and no more.
    A failure gains the command that judges it again.
    """
    if task.support.answer != "yes":
        return not_judged(suite, task)
    parked = quarantined(waivers, Planned(suite, task.subject), target_of(task))
    if parked is not None:
        return parked
    return with_reproduction(apply(waivers, guarded(suite, task, judge), target_of(task)), task)


def guarded(suite: str, task: Task, judge: Callable[[Task], Verdict]) -> Verdict:
    """What ``judge`` says of a task, or the verdict on what it raised."""
    try:
        return judge(task)
    except ExecutionError as error:
        return _failed_to_run(suite, task, error)
    except Exception as error:  # noqa: BLE001  # a fault of the judge costs this verdict, not the run
        return _judge_failed(suite, task, error)


def not_judged(suite: str, task: Task) -> Verdict:
    """The verdict on a task that isn't supported here."""
    outcome: Outcome = "unsupported" if task.support.answer == "no" else "not_run"
    mend = f" (mend: {task.support.mend})" if task.support.mend else ""
    reason = task.support.reason + mend
    return Verdict(task.subject, suite, outcome, reason, rulings=(Ruling("support", outcome, reason),))


def with_reproduction(verdict: Verdict, task: Task, options: str = "") -> Verdict:
    """A failure with the commands that judge it again behind its text; ``options`` are more words for them."""
    if verdict.outcome not in ("fail", "error"):
        return verdict
    return replace(verdict, message=f"{verdict.message}\n{_reproduction(verdict.suite, task, options)}")


def target_of(task: Task) -> Target:
    """What decides the scope and expiry of waivers for a task."""
    try:
        version = Version(task.build.version) if task.build is not None else None
    except InvalidVersion:  # a folder without metadata
        version = None
    return Target(version, task.device.sm, dt.datetime.now(tz=dt.UTC).date())


def _failed_to_run(suite: str, task: Task, error: ExecutionError) -> Verdict:
    """The verdict of a task that brought nothing back: ``error``, or ``not_run`` where the adapter says why."""
    if isinstance(error, TaskRaised) and error.type in NOT_RUN:
        ruling = Ruling("run", "not_run", error.message)
        return Verdict(task.subject, suite, "not_run", error.message, str(error), (ruling,))
    kinds = {
        TimeLimit: ("hang", "took longer than its time limit"),
        ProcessDied: ("crash", "ended its kernel process"),
        ProcessStartFailed: ("toolchain", "its kernel process did not start"),
    }
    fault, what = kinds.get(type(error), ("crash", "raised"))
    first = str(error).strip().splitlines()[0]
    return Verdict(
        task.subject,
        suite,
        "error",
        f"{what}: {first}",
        f"{task.subject}\n{fault}: {error}",
        (Ruling("run", "error", first),),
        {"fault_class": fault},
    )


def _reproduction(suite: str, task: Task, options: str) -> str:
    """The commands that judge a subject again, as lines."""
    more = "" if task.kernel.reference.startswith("humming_conformance.") else f" --kernel {task.kernel.reference}"
    library = task.kernel.kernel.library
    if library is not None and task.request:
        more += f" --library {library.module}={task.request}"
    more += options
    kernel = more if "--kernel" in more else f" --kernel {task.subject.kernel}{more}"
    if task.device.pretended or task.device.kind == "profile":
        kernel += f" --device {task.device.name}"
    package = Path(humming_conformance.__file__).resolve().parent
    # In a checkout the suites lie beside the package, which links to them; an installed copy holds them.
    checkout = (package / "suites").resolve().parent == package.parent
    suites = f"suites/{suite}" if checkout else f"--pyargs humming_conformance.suites.{suite}"
    pytest = f"pytest {suites} --case '{task.subject.case_id}'{kernel}"
    if suite != "numerics":
        return f"reproduce: {pytest}"
    return f"reproduce: humming-conformance repro '{task.subject}'{more}\n      or: {pytest}"


def _judge_failed(suite: str, task: Task, error: Exception) -> Verdict:
    """A fault of the judge, or of what the adapter reported, is no pass and stays with its case."""
    text = "".join(traceback.format_exception(error))
    first = f"the judge raised {type(error).__name__}: {error}"
    return Verdict(
        task.subject,
        suite,
        "error",
        first,
        f"{task.subject}\n{text}",
        (Ruling("judge", "error", first),),
        {"fault_class": "judge"},
    )
