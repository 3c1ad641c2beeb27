# SPDX-License-Identifier: Apache-2.0
"""Seeds fault after fault and judges: first the cases chosen for it, then, if none catches it, all others."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue

from humming_conformance.campaign.plan import PlanError, Task, make_plan
from humming_conformance.execution import resolve_library, state_folder
from humming_conformance.problems.tiers import TIERS, load_tier
from humming_conformance.protocols import Library
from tests.seeded_faults.choice import Group, by_kernel, first_groups
from tests.seeded_faults.fault import Fault
from tests.seeded_faults.judging import Judges, Target
from tests.seeded_faults.results import RED, Results
from tests.seeded_faults.seeding import NotApplicableError, check_applicable, library_folder, seed


@dataclass(frozen=True)
class Settings:
    """How much is done at a time, and for how long.

    Attributes:
        workers: processes that judge.
        at_once: faults judged side by side; they share the workers.
        time_limit: seconds a case may take.
        budget: seconds after which no further case is begun.
    """

    workers: int
    at_once: int
    time_limit: float = 60.0
    budget: float = float("inf")


class Campaign:
    """The faults of one library build, judged on one kernel's cases.

    Args:
        target: kernel and build; the build is the one without fault.
        tier: whose cases are judged.
        faults: what to seed.
        folder: where results go, and seeded copies for as long as they are judged.
        settings: how much at a time.
        case_ids: these cases instead of the tier's.
        say: takes a line for every fault that was judged.

    Raises:
        one of the input errors of a run: an option can't be used.
        PlanError: nothing can be judged here.
        ResultsError: the folder holds the results of another build, kernel, tier or device.
    """

    def __init__(
        self,
        target: Target,
        tier: str,
        faults: Sequence[Fault],
        folder: Path,
        settings: Settings,
        *,
        case_ids: Sequence[str] = (),
        say: Callable[[str], None] = lambda _line: None,
    ) -> None:
        whole = make_plan(target.options(tier, case_ids))
        # Older paths would bring cases again that are judged on the real device only.
        plan = [task for task in whole if task.device == whole[0].device]
        self._target = target
        self._folder = folder
        self._settings = settings
        self._say = say
        self._library, self._source, self._version = _source(plan)
        self.cases = [task.case for task in plan if task.support.answer == "yes"]
        if not self.cases:
            raise PlanError(f"no case can be judged here: {plan[0].support.reason}; {plan[0].support.mend}")
        build = plan[0].build
        head = {
            "kernel": plan[0].subject.kernel,
            "library": self._library.distribution,
            "version": self._version,
            "build": build.build_hash if build else "",
            "tier": tier,
            "device": plan[0].subject.device,
        }
        self.results = Results(folder, head, [case.id for case in self.cases])
        self._faults = [fault for fault in faults if self._applicable(fault)]

    def run(self) -> None:
        """Judge what the results lack, until all is judged or the budget is spent."""
        self._deadline = time.monotonic() + self._settings.budget
        first = {fault: self._first(fault) for fault in self._faults}
        with Judges(self._settings.workers, self._settings.time_limit) as judges:
            chosen = dict.fromkeys(case for groups in first.values() for group in groups for case in group)
            for verdict in judges.judge(self._target, self._lacking(None, by_kernel(chosen)), self._deadline):
                self.results.add(None, verdict)
        self._side_by_side(lambda fault, judges: self._judge(fault, first[fault], judges, stop=False))
        self._side_by_side(self._judge_rest)

    def _applicable(self, fault: Fault) -> bool:
        try:
            check_applicable(fault, self._source, self._library, self._version)
        except NotApplicableError as error:
            if not self.results.not_applicable(fault):
                self.results.add_not_applicable(fault, str(error))
            return False
        return True

    def _first(self, fault: Fault) -> list[Group]:
        return first_groups(fault, self.cases, set(load_tier(TIERS[0], self.results.head["kernel"])))

    def _lacking(self, fault: Fault | None, groups: Iterable[Group]) -> list[Group]:
        """The groups without the cases that have a verdict."""
        known = self.results.of(fault)
        left = (tuple(case for case in group if case.id not in known) for group in groups)
        return [group for group in left if group]

    def _side_by_side(self, work: Callable[[Fault, Judges], None]) -> None:
        """``work`` on each fault, several at once, each with judges of its own."""
        waiting: SimpleQueue[Fault] = SimpleQueue()
        for fault in self._faults:
            waiting.put(fault)
        at_once = max(1, min(self._settings.at_once, self._settings.workers))

        def work_off() -> None:
            with Judges(self._settings.workers // at_once, self._settings.time_limit) as judges:
                while time.monotonic() < self._deadline:
                    try:
                        fault = waiting.get_nowait()
                    except Empty:
                        return
                    work(fault, judges)

        with ThreadPoolExecutor(at_once) as threads:
            for future in [threads.submit(work_off) for _ in range(at_once)]:
                future.result()

    def _judge_rest(self, fault: Fault, judges: Judges) -> None:
        """All cases that were not judged, up to the first that catches a fault which nothing has caught."""
        if self.results.caught(fault) or any(not verdict["compiled"] for verdict in self.results.of(fault).values()):
            return
        self._judge(fault, by_kernel(self.cases), judges, stop=True)

    def _judge(self, fault: Fault, groups: Iterable[Group], judges: Judges, *, stop: bool) -> None:
        """Seed a fault, judge what lacks a verdict, remove the seeded build and its compiled kernels."""
        groups = self._lacking(fault, groups)
        if not groups:
            return
        begin = time.monotonic()
        folder = self._folder / "seeded" / fault.name
        shutil.rmtree(folder, ignore_errors=True)  # left by a run that was killed
        seed(fault, self._source, folder, self._library, self._version)
        build = resolve_library(self._library.module, self._library.distribution, self._library.module, str(folder))
        target = replace(self._target, request=str(folder))
        try:
            for verdict in judges.judge(target, groups, self._deadline):
                self.results.add(fault, verdict)
                if verdict["outcome"] in RED:
                    self._control(verdict["case"], judges)
                if stop and self.results.caught(fault):
                    break
        finally:
            shutil.rmtree(folder)
            shutil.rmtree(state_folder() / "jit" / build.build_hash, ignore_errors=True)
        judged, caught = len(self.results.of(fault)), len(self.results.caught(fault))
        self._say(f"{fault.name}: caught by {caught} of {judged} cases ({time.monotonic() - begin:.0f} s)")

    def _control(self, case_id: str, judges: Judges) -> None:
        """See to it that the case has a verdict on the unseeded build."""
        if case_id in self.results.of(None):
            return
        case = next(case for case in self.cases if case.id == case_id)
        for verdict in judges.judge(self._target, [(case,)], float("inf")):
            self.results.add(None, verdict)


def _source(plan: Sequence[Task]) -> tuple[Library, Path, str]:
    """The library of a plan's kernel, the folder it lies in, its version."""
    library, build = plan[0].kernel.kernel.library, plan[0].build
    if library is None:
        raise PlanError(f"kernel {plan[0].subject.kernel} has no library that a fault could be seeded into")
    if build is None:
        raise PlanError(f"{plan[0].support.reason}; {plan[0].support.mend}")
    return library, library_folder(build, library), build.version
