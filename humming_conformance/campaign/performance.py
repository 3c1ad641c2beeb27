# SPDX-License-Identifier: Apache-2.0
"""A performance campaign: all cases, round by round, each round in fresh kernel processes that hold the GPU alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from humming_conformance.campaign.judge import process_spec
from humming_conformance.campaign.plan import Task
from humming_conformance.execution import ExecutionError, KernelProcess, ProcessSpec
from humming_conformance.store.rounds import Timing, append_timings

#: Processes that each case is measured in, and how many more a suspect gets.
ROUNDS, SUSPECT_ROUNDS = 5, 5
#: Seconds for all of it.
BUDGET = 420.0
#: Kernel processes at a time: one starts and imports its library while another holds the GPU.
_AT_ONCE = 2
#: Why a subject wasn't measured where nothing was wrong with it.
SPENT = "the time for the campaign was spent"
#: Adapters timed beside the judged kernel, by name.
ANCHORS = {"qdq": "humming_conformance.kernels.qdq:kernel"}


@dataclass(frozen=True)
class Lost:
    """A subject that a process didn't measure, and why."""

    kernel: str
    case: str
    reason: str


class Campaign:
    """Measures tasks and writes each timing down as it comes.

    Args:
        path: file that timings are appended to.
        tell: takes lines of progress.
        budget: seconds after which nothing is begun.
    """

    def __init__(self, path: Path, tell: Callable[[str], None], budget: float = BUDGET) -> None:
        self.path = path
        self.lost: list[Lost] = []
        self._tell = tell
        self._lock = threading.Lock()
        self._deadline = time.monotonic() + budget

    def measure(self, tasks: Sequence[Task], rounds: Iterable[int], what: str) -> None:
        """Measure every task once in each round, in order and in reverse order by turns.

        A case that comes early in one process comes late in the next, so that what a process is like at first is not
        always some cases' lot.
        """
        groups = _by_process(tasks)
        rounds = list(rounds)
        jobs = [(number, spec, members) for number in rounds for spec, members in groups.items()]
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            for count, _ in enumerate(threads.map(lambda job: self._round(*job), jobs), 1):
                self._tell(f"timing {what}: {count} of {len(jobs)} processes, {len(tasks)} cases")

    def _round(self, number: int, spec: ProcessSpec, tasks: Sequence[Task]) -> None:
        tasks = tasks[:: 1 if number % 2 == 0 else -1]
        left = self._deadline - time.monotonic()
        if left <= 0:
            self._lose(tasks, SPENT)
            return
        device = tasks[0].device
        subjects = [{"kernel": task.kernel.reference, "case": task.case.id} for task in tasks]
        names = {(subject["kernel"], subject["case"]): task for subject, task in zip(subjects, tasks, strict=True)}
        try:
            with KernelProcess(spec) as process:
                reply = process.call(
                    "humming_conformance.measure.round:measure_round",
                    timeout=2 * left + 120.0,
                    subjects=subjects,
                    anchors=ANCHORS,
                    device=asdict(replace(device, index=0)),
                    seconds=left,
                    lease_timeout=left,
                )
        except ExecutionError as error:
            self._lose(tasks, str(error).strip().splitlines()[0])
            return
        timings = []
        for found in reply.value["measured"]:
            task = names.pop((found.pop("kernel"), found.pop("case")))
            if "error" in found:
                self._lose([task], found["error"])
                continue
            timings.append(
                Timing(
                    kernel=task.subject.kernel,
                    case=task.case.id,
                    device=device.name,
                    machine=device.uuid or device.name,
                    process=f"{time.time_ns()}-{number}",
                    seconds=found.pop("seconds"),
                    roofs=reply.value["roofs"],
                    found={"library": task.build.version if task.build else "", **found},
                )
            )
        self._write(timings)
        self._lose(names.values(), SPENT)

    def _write(self, timings: Sequence[Timing]) -> None:
        with self._lock:
            append_timings(self.path, timings)

    def _lose(self, tasks: Iterable[Task], reason: str) -> None:
        self.lost += [Lost(task.subject.kernel, task.case.id, reason) for task in tasks]


def _by_process(tasks: Iterable[Task]) -> dict[ProcessSpec, list[Task]]:
    groups: dict[ProcessSpec, list[Task]] = {}
    for task in tasks:
        groups.setdefault(process_spec(task, launches=False), []).append(task)
    return groups
