# SPDX-License-Identifier: Apache-2.0
"""JIT work of a plan done ahead of it: each distinct kernel is compiled once, by as many processes as the machine has.

Two stages, since many cases share a kernel: find the unit of each case, then build each unit. What was built is marked
in the library's JIT folder, so that the next run starts no process for it. Nothing rests on this work: whatever isn't
built when a case needs it is compiled then.
"""

from __future__ import annotations

import importlib.metadata
import queue
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from humming_conformance.campaign.environment import source_hash
from humming_conformance.campaign.judge import jit_folder, process_spec
from humming_conformance.campaign.plan import Task, share_of
from humming_conformance.campaign.settle import NOT_RUN
from humming_conformance.execution import ExecutionError, ProcessPool, TaskRaised, TimeLimit
from humming_conformance.execution.capacity import parallel_processes
from humming_conformance.execution.marks import mark
from humming_conformance.ledger import FailedBuild
from humming_conformance.protocols import BuildsAhead, Subject

#: Seconds between two lines of progress.
INTERVAL = 10.0

_ERROR = re.compile(r"\b(?:error|fatal)\s*:", re.IGNORECASE)


@dataclass(frozen=True)
class BuildSummary:
    """What building ahead came to.

    Attributes:
        cases: whose units were asked for; those marked by an earlier run are not among them.
        units: distinct ones of these cases; each was built, there already, failed or lost.
        there: built by an earlier run.
        lost: whose process died or could not build here; left to the cases that need them.
        seconds: of all this.
    """

    cases: int = 0
    units: int = 0
    built: int = 0
    there: int = 0
    lost: int = 0
    failed: tuple[FailedBuild, ...] = ()
    seconds: float = 0.0

    @property
    def lines(self) -> list[str]:
        """For the account of the run; none where there was nothing to build."""
        if self.units == self.there:
            return []
        others = {"there already": self.there, "failed": len(self.failed), "left to their cases": self.lost}
        told = ", ".join(f"{count} {what}" for what, count in others.items() if count)
        line = f"kernels built ahead: {self.built}, for {self.cases} cases, in {self.seconds:.0f} s"
        return [f"{line} ({told})" if told else line]


@dataclass
class _Unit:
    """A distinct unit, and who needs it; ``task`` is the first, in whose process it is built."""

    task: Task
    fields: dict[str, Any]
    marks: list[str]
    built: bool
    subjects: list[Subject] = field(default_factory=list)


def _on_its_share(task: Task, number: int) -> Task:
    return replace(task, device=share_of(task.device, number))


def build_ahead(
    tasks: Sequence[Task],
    place: Callable[[Task, int], Task] = _on_its_share,
    *,
    processes: int | None = None,
    time_limit: float,
    tell: Callable[[str], None],
) -> BuildSummary:
    """Build what these tasks need and no earlier run has built.

    Args:
        tasks: of the plan; only those count that are supported and whose adapter is a
            :class:`~humming_conformance.protocols.BuildsAhead` with a JIT folder.
        place: a task as the process of that number is to do it: on which of equal GPUs.
        processes: kernel processes at a time, at most; as many as the machine carries where none is given.
        time_limit: seconds for finding or building one unit.
        tell: takes lines of progress, none if there is nothing to build.

    A unit whose compiler fails, or doesn't end, is a failed build. A case whose unit can't be found is left to its
    ordinary run, which reports why.
    """
    started = time.monotonic()
    tools = _tools()
    marks = _pending(tasks, tools)
    if not marks:
        return BuildSummary()
    progress = _Progress(tell)
    units: dict[tuple[str, Path | None, str], _Unit] = {}
    failed: list[FailedBuild] = []
    built = lost = 0
    with _Crew(min(processes or parallel_processes(), len(marks)), place, time_limit) as crew:
        for count, (task, found) in enumerate(crew.find(marks, tools), 1):
            progress(f"finding kernels: {count} of {len(marks)} cases")
            if found is None:
                continue
            key = (task.kernel.reference, jit_folder(task), found["unit"]["key"])
            unit = units.setdefault(key, _Unit(task, found["unit"], [found["mark"]], found["built"]))
            unit.subjects.append(task.subject)
            unit.marks.append(str(marks[task.subject][1]))
        to_build = [unit for unit in units.values() if not unit.built]
        for count, (unit, error) in enumerate(crew.build(to_build), 1):
            if error is None:
                built += 1
            elif _is_failed_build(error):
                text = str(error)
                fields = unit.fields
                subjects = tuple(unit.subjects)
                failed.append(FailedBuild(fields["key"], fields["description"], first_error(error), text, subjects))
            else:
                lost += 1
            told = f", {len(failed)} failed" if failed else ""
            progress(f"building kernels: {count} of {len(to_build)}{told}", now=count == len(to_build))
    seconds = time.monotonic() - started
    return BuildSummary(len(marks), len(units), built, len(units) - len(to_build), lost, tuple(failed), seconds)


def first_error(error: ExecutionError) -> str:
    """The first line of a failed build's output that tells an error; else the first line of what was raised."""
    log = error.log if isinstance(error, TaskRaised) else ""
    lines = [line.strip() for line in log.splitlines() if _ERROR.search(line)]
    return lines[0] if lines else str(error).strip().splitlines()[0]


def _is_failed_build(error: ExecutionError) -> bool:
    """Whether building again would fail again: not where a process died, which may have been for want of memory."""
    return isinstance(error, TimeLimit) or (isinstance(error, TaskRaised) and error.type not in NOT_RUN)


def _pending(tasks: Sequence[Task], tools: str) -> dict[Subject, tuple[Task, Path]]:
    """The tasks to look at, in their order, each with the mark of its case, which isn't set."""
    hashes: dict[str, str] = {}
    pending = {}
    for task in tasks:
        folder = jit_folder(task)
        if task.support.answer != "yes" or folder is None or not isinstance(task.kernel.kernel, BuildsAhead):
            continue
        reference = task.kernel.reference
        if reference not in hashes:
            hashes[reference] = source_hash(reference)
        path = mark(folder, "case", reference, hashes[reference], task.case.id, task.device.name, tools)
        if not path.exists():
            pending[task.subject] = (task, path)
    return pending


def _tools() -> str:
    """What, besides the library and its adapter, decides which kernel is compiled and whether one in the cache serves.

    A compiler in another place or of another date is another compiler.
    """
    nvcc = shutil.which("nvcc")
    date = Path(nvcc).stat().st_mtime_ns if nvcc else 0
    return f"torch {importlib.metadata.version('torch')}, {nvcc} of {date}"


class _Progress:
    """Passes a line on when the last one is :data:`INTERVAL` old, or when it must be told now."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._due = time.monotonic() + INTERVAL

    def __call__(self, line: str, *, now: bool = False) -> None:
        if now or time.monotonic() >= self._due:
            self._tell(line)
            self._due = time.monotonic() + INTERVAL


#: What tasks have in common that one process can serve: the kernel and the device.
_Place = tuple[str, str]
_Job = Callable[[ProcessPool, int], Any]


class _Jobs:
    """Jobs waiting for a thread; one that just did a job gets one for the same process if there is any."""

    def __init__(self) -> None:
        self._waiting: dict[_Place, deque[_Job]] = {}
        self._place_of: dict[int, _Place] = {}
        self._closed = False
        self._changed = threading.Condition()

    def put(self, place: _Place, job: _Job) -> None:
        with self._changed:
            self._waiting.setdefault(place, deque()).append(job)
            self._changed.notify()

    def get(self, number: int) -> _Job | None:
        """The next job of thread ``number``, waiting for one; None once they are closed and none is left."""
        with self._changed:
            while not any(self._waiting.values()):
                if self._closed:
                    return None
                self._changed.wait()
            place = self._place_of.get(number)
            if place is None or not self._waiting.get(place):
                self._place_of.pop(number, None)
                place = max(self._waiting, key=self._left)
                self._place_of[number] = place
            return self._waiting[place].popleft()

    def close(self) -> None:
        """No more will come, and what is waiting is dropped."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()

    def _left(self, place: _Place) -> float:
        """Jobs of a place for each thread, counting one more."""
        return len(self._waiting[place]) / (1 + list(self._place_of.values()).count(place))


class _Crew:
    """Threads that do jobs, each with a kernel process of its own.

    Left by an exception, such as Ctrl-C, it waits for nobody: a thread ends behind the job it is at, and its process
    with it or with this one.
    """

    def __init__(self, size: int, place: Callable[[Task, int], Task], time_limit: float) -> None:
        self._place = place
        self._time_limit = time_limit
        self._jobs = _Jobs()
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, args=(number,), name=f"build-{number}", daemon=True)
            for number in range(size)
        ]

    def find(
        self, pending: dict[Subject, tuple[Task, Path]], tools: str
    ) -> Iterator[tuple[Task, dict[str, Any] | None]]:
        """The reply of :func:`.build_case.find_unit` for each task, as it comes; None where there is none."""
        return self._each([(task, partial(self._find, task, path, tools)) for task, path in pending.values()])

    def build(self, units: Sequence[_Unit]) -> Iterator[tuple[_Unit, ExecutionError | None]]:
        """What stopped the building of each unit, as it comes; None where nothing did."""
        return self._each([(unit.task, partial(self._build, unit)) for unit in units])

    def _find(
        self, task: Task, path: Path, tools: str, pool: ProcessPool, number: int
    ) -> tuple[Task, dict[str, Any] | None]:
        placed = self._place(task, number)
        try:
            reply = pool.call(
                process_spec(placed, launches=False),
                "humming_conformance.execution.build_case:find_unit",
                timeout=self._time_limit,
                kernel=task.kernel.reference,
                case=task.case.id,
                device=asdict(replace(placed.device, index=0)),
                folder=str(jit_folder(task)),
                tools=tools,
                case_mark=str(path),
                lease_timeout=self._time_limit / 2,
            )
        except ExecutionError:  # the case's ordinary run tells it
            return task, None
        return task, reply.value

    def _build(self, unit: _Unit, pool: ProcessPool, number: int) -> tuple[_Unit, ExecutionError | None]:
        try:
            pool.call(
                process_spec(self._place(unit.task, number), launches=False),
                "humming_conformance.execution.build_case:build_unit",
                timeout=self._time_limit,
                kernel=unit.task.kernel.reference,
                unit=unit.fields,
                marks=unit.marks,
            )
        except ExecutionError as error:
            return unit, error
        return unit, None

    def _each(self, jobs: Sequence[tuple[Task, _Job]]) -> Iterator[Any]:
        """What the jobs return, as it comes; raises what they raise."""
        for task, job in jobs:
            self._jobs.put((task.kernel.reference, task.device.name), job)
        for _ in jobs:
            outcome = self._done.get()
            if isinstance(outcome, BaseException):
                raise outcome
            yield outcome

    def _serve(self, number: int) -> None:
        with ProcessPool(max_processes=1) as pool:
            while (job := self._jobs.get(number)) is not None:
                try:
                    self._done.put(job(pool, number))
                except BaseException as error:  # noqa: BLE001  # raised where the job was given out
                    self._done.put(error)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._jobs.close()
        if kind is None:
            for thread in self._threads:
                thread.join()
