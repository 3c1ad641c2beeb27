# SPDX-License-Identifier: Apache-2.0
"""From a task of the plan to its verdict: kernel process, oracle, waivers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from humming_conformance.campaign.plan import PlanError, Task
from humming_conformance.campaign.settle import TIME_LIMIT, guarded, not_judged, target_of, with_reproduction
from humming_conformance.execution import (
    KernelProcess,
    ProcessPool,
    ProcessSpec,
    Reply,
    guard_pages,
    sanitizer,
    state_folder,
)
from humming_conformance.ledger import FailedBuild, Planned, Waiver, apply, quarantined
from humming_conformance.oracle.contract import Contract
from humming_conformance.protocols import Route, Ruling, Verdict
from humming_conformance.verdicts import NumericsEvidence, add_findings, judge_numerics


class Judge:
    """Judges tasks one after another, in kernel processes that it owns.

    Args:
        waivers: of failures known; none waives what a memory checker reports.
        time_limit: seconds one case may take; many times that under a memory checker.
        sanitize: the memory checker, one of :data:`.sanitizer.TOOLS`; empty for none. Each case then has a process of
            its own, so that all that the log says is about that case, and ends with the tool's summary.
        failed_builds: what was built ahead and failed; the cases that need it are not launched.
    """

    def __init__(
        self,
        waivers: Sequence[Waiver] = (),
        *,
        time_limit: float = TIME_LIMIT,
        sanitize: str = "",
        failed_builds: Sequence[FailedBuild] = (),
    ) -> None:
        self._waivers = waivers
        self._failed_builds = {subject: build for build in failed_builds for subject in build.subjects}
        self._time_limit = time_limit
        self._sanitize = sanitize
        self._pool = ProcessPool()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all kernel processes."""
        self._pool.close()

    def numerics(self, task: Task) -> Verdict:
        """The verdict of the numerics suite on a task."""
        target = target_of(task)
        if task.support.answer != "yes":
            return not_judged("numerics", task)
        parked = quarantined(self._waivers, Planned("numerics", task.subject), target)
        if parked is not None:
            return parked
        if task.subject in self._failed_builds:
            verdict = apply(self._waivers, _failed_to_build(task, self._failed_builds[task.subject]), target)
        elif not self._sanitize:
            verdict = self._settled(task, self._pool.call)
        else:
            with tempfile.TemporaryDirectory(prefix="sanitizer-") as folder:
                log = Path(folder, "log")
                verdict = self._settled(task, _call_alone, sanitizer.command(self._sanitize, log))
                text = log.read_text(errors="replace") if log.exists() else ""
            verdict = add_findings(verdict, self._sanitize, sanitizer.read_log(text))
        return with_reproduction(verdict, task, f" --sanitize {self._sanitize}" if self._sanitize else "")

    def _settled(self, task: Task, call: Callable[..., Reply], launcher: tuple[str, ...] = ()) -> Verdict:
        """The verdict after waivers; ``call`` reaches a kernel process as :meth:`ProcessPool.call` does."""
        verdict = guarded("numerics", task, lambda task: self._judged(task, call, launcher))
        return apply(self._waivers, verdict, target_of(task))

    def _judged(self, task: Task, call: Callable[..., Reply], launcher: tuple[str, ...] = ()) -> Verdict:
        spec = process_spec(task, launcher)
        reply = call(
            spec,
            "humming_conformance.execution.run_case:run_case",
            timeout=self._time_limit * spec.slowdown,
            kernel=task.kernel.reference,
            case=task.case.id,
            device=asdict(replace(task.device, index=0)),
            relations=task.case.regime == "random",
            # Waiting for a GPU that a timing run holds is no hang of the kernel.
            lease_timeout=self._time_limit / 2,
        )
        value = reply.value
        route = dict(value["route"])
        if route["tile"] is not None:
            route["tile"] = tuple(route["tile"])
        evidence = NumericsEvidence(
            output=value["output"],
            digest=value["digest"],
            route=Route(**route),
            contract=Contract(**value["contract"]),
            unwritten=value["unwritten"],
            trouble=tuple(value["trouble"]),
            repeat=value["repeat"],
            fewer=tuple(value["fewer"]),
            replayed=tuple(value["replayed"]),
            concurrent=tuple(value["concurrent"]),
            seconds=value["seconds"],
        )
        verdict = judge_numerics(task.subject, task.case, evidence)
        return replace(verdict, evidence={**verdict.evidence, "guard_pages": value["guard_pages"]})


def under_sanitizer(task: Task, tool: str) -> Task:
    """A task of the plan as it is under a memory checker: what the checker lacks here is missing to the task.

    Raises:
        PlanError: there is no such tool.
    """
    if tool not in sanitizer.TOOLS:
        raise PlanError(f"--sanitize {tool!r} is none of compute-sanitizer's tools {', '.join(sanitizer.TOOLS)}")
    lacking = sanitizer.missing(tool, task.case, task.device) if task.support.answer == "yes" else None
    return task if lacking is None else replace(task, support=lacking)


def _call_alone(spec: ProcessSpec, function: str, *, timeout: float, **arguments: Any) -> Reply:
    """As :meth:`ProcessPool.call`, in a process of its own, which has ended at the return."""
    with KernelProcess(spec) as process:
        return process.call(function, timeout=timeout, **arguments)


def jit_folder(task: Task) -> Path | None:
    """The folder that the task's library compiles into, one for each of its builds; None if it has no such folder."""
    library = task.kernel.kernel.library
    if library is None or task.build is None or not library.cache_variables:
        return None
    return state_folder() / "jit" / task.build.build_hash


def has_guard_pages(task: Task) -> bool:
    """Whether the case is judged with guard pages: ``poison`` on CUDA, but where a graph is captured.

    A graph would go on using memory that was given back.
    """
    return task.device.kind == "cuda" and task.case.regime == "poison" and "graph" not in task.case.call


def process_spec(task: Task, launcher: tuple[str, ...] = (), *, launches: bool = True) -> ProcessSpec:
    """The kernel process of a task: one for each library build, device, interpreter mode and memory check.

    ``launcher``: the memory checker's command; under it, and in a process that ``launches`` no judged kernel, there are
    no guard pages.
    """
    library, build, device = task.kernel.kernel.library, task.build, task.device
    environment = dict(library.environment) if library else {}
    # The build first: the folder that the adapter lies in may hold another build of its library.
    python_path = [build.path] if build is not None and build.path is not None else []
    python_path += task.kernel.python_path
    folder = jit_folder(task)
    if library is not None and folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        environment |= dict.fromkeys(library.cache_variables, str(folder))
    if device.kind == "cpu_interpreter":
        environment["TRITON_INTERPRET"] = "1"
    environment["CUDA_VISIBLE_DEVICES"] = device.uuid if device.kind == "cuda" else ""
    name = f"{library.module if library else 'own'}@{device.name}"
    slowdown = 1.0
    if launcher:
        environment |= sanitizer.ENVIRONMENT
        slowdown = sanitizer.SLOWDOWN
    elif launches and has_guard_pages(task):
        environment[guard_pages.VARIABLE] = "1"
        name += " with guard pages"
    return ProcessSpec(name, tuple(python_path), tuple(sorted(environment.items())), launcher, slowdown)


def _failed_to_build(task: Task, build: FailedBuild) -> Verdict:
    reason = f"its kernel did not build ({build.description}): {build.error}"
    return Verdict(
        task.subject,
        "numerics",
        "error",
        reason,
        f"{task.subject}\ntoolchain: {reason}\n{build.log}",
        (Ruling("build", "error", build.error),),
        {"fault_class": "toolchain", "unit": build.key},
    )
