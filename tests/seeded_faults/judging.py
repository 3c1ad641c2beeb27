# SPDX-License-Identifier: Apache-2.0
"""Judges the cases of one library build, in processes of their own: each owns a judge and its kernel process."""

from __future__ import annotations

import multiprocessing
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, Self

from humming_conformance.campaign.judge import Judge
from humming_conformance.campaign.plan import RunOptions, Task, make_plan
from tests.seeded_faults.choice import Group

#: What a library says when a kernel's source doesn't compile: that is no fault that a case caught.
_NOT_COMPILED = re.compile(r"Compiler failed with exit code|SyntaxError|NVRTC_ERROR_COMPILATION")


@dataclass(frozen=True)
class Target:
    """What is judged: a kernel with a build of its library.

    Attributes:
        kernel: name or reference.
        module: what its library is imported as.
        request: version, wheel or folder; None for the installed build.
    """

    kernel: str
    module: str
    request: str | None

    def options(self, tier: str, cases: Sequence[str] = ()) -> RunOptions:
        """The options of a run with this target."""
        libraries = {} if self.request is None else {self.module: self.request}
        return RunOptions(tier, (self.kernel,), cases=tuple(cases), libraries=libraries)


class Judges:
    """Worker processes that judge groups of cases, one group at a time each.

    Args:
        workers: how many.
        time_limit: seconds that one case may take; a fault may hang.
    """

    def __init__(self, workers: int, time_limit: float) -> None:
        # Spawned: a fork would inherit the locks of the threads that run faults side by side.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(workers, context, _start, (time_limit,))
        self._workers = workers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def judge(self, target: Target, groups: Sequence[Group], deadline: float) -> Iterator[dict[str, Any]]:
        """The verdict on each case as it comes, in no order; no group is begun after ``deadline``.

        A caller that stops early leaves no group to begin.
        """
        waiting = [tuple(case.id for case in group) for group in groups]
        running: set[Future[list[dict[str, Any]]]] = set()
        try:
            while waiting or running:
                while waiting and len(running) < self._workers and time.monotonic() < deadline:
                    running.add(self._pool.submit(_judge, target, waiting.pop(0)))
                if not running:
                    return
                done = next(as_completed(running))
                running.remove(done)
                yield from done.result()
        finally:
            for future in running:  # nothing of this build runs any more when its folder goes
                if not future.cancel():
                    future.exception()


_judges: list[Judge] = []


def _start(time_limit: float) -> None:
    # Without waivers: a known failure is told by the unseeded build, which has it too.
    _judges.append(Judge(time_limit=time_limit))


def _judge(target: Target, case_ids: tuple[str, ...]) -> list[dict[str, Any]]:
    return [_verdict(task) for task in make_plan(target.options("smoke", case_ids))]


def _verdict(task: Task) -> dict[str, Any]:
    begin = time.monotonic()
    verdict = _judges[0].numerics(task)
    return {
        "case": task.case.id,
        "outcome": verdict.outcome,
        "reason": verdict.reason,
        "fault_class": str(verdict.evidence.get("fault_class") or ""),
        "compiled": not _NOT_COMPILED.search(verdict.message),
        "seconds": round(time.monotonic() - begin, 2),
    }
