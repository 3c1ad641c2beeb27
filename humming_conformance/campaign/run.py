# SPDX-License-Identifier: Apache-2.0
"""One run, from options to exit status, usable without pytest: plan, verdicts into shards, merge, accounting."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import humming_conformance
from humming_conformance.campaign.environment import IDENTITY, describe_environment
from humming_conformance.campaign.kernels import KernelError
from humming_conformance.campaign.plan import PlanError, RunOptions, Task, share_of
from humming_conformance.campaign.questions import BASELINES, QUESTIONS, Question, Setting
from humming_conformance.campaign.settle import TIME_LIMIT, target_of
from humming_conformance.devices import ProfileError
from humming_conformance.execution import LibraryError
from humming_conformance.ledger import (
    ExitStatus,
    Head,
    Ledger,
    LedgerError,
    Planned,
    Requirement,
    RequirementError,
    ShardWriter,
    Waiver,
    WaiverError,
    exit_status,
    merge,
    quarantined,
    read_ledger,
    read_waivers,
    resume,
    stale,
    start,
)
from humming_conformance.problems import CaseError
from humming_conformance.problems.tiers import TIERS, TierError
from humming_conformance.protocols import Verdict
from humming_conformance.store import BaselineError

#: What a user's input can be wrong by; the text of each names the input, the rule and the mend.
INPUT_ERRORS = (
    BaselineError,
    CaseError,
    KernelError,
    LedgerError,
    LibraryError,
    PlanError,
    ProfileError,
    RequirementError,
    TierError,
    WaiverError,
)

#: The waivers shipped with the project; --waivers adds to them.
WAIVERS = BASELINES / "waivers.toml"
#: Where findings are written up; an installed copy has none.
FINDINGS = Path(humming_conformance.__file__).resolve().parents[1] / "docs" / "findings"


def default_folder() -> Path:
    """A new ledger folder below the current one, named by time and process."""
    now = dt.datetime.now(tz=dt.UTC).strftime("%Y%m%d-%H%M%S")
    return Path(".conformance") / f"{now}-{os.getpid()}"


@dataclass(frozen=True)
class Outcome:
    """What a finished run has to say.

    ``stale``: the user's own waivers that match nothing planned; of the shipped ones only where everything was planned.
    """

    ledger: Ledger
    status: ExitStatus
    stale: tuple[Waiver, ...]


class Run:
    """A run in one process: the controller begins and finishes it, each worker settles tasks.

    Args:
        options: what is asked for.
        folder: the ledger folder.
        suites: whose questions are asked.
        resumed: continue the run in ``folder`` instead of starting one.
        waiver_files: the user's own, after the shipped ones.
        require: texts of ``--require``.
        strict_verdicts: ``slow`` and ``ambiguous`` are red.
        time_limit: seconds one case may take.
        sanitize: the memory checker that kernels run under, empty for none.
        baselines: the folder of stored measurements.

    Raises:
        one of INPUT_ERRORS: an option can't be used.
    """

    def __init__(
        self,
        options: RunOptions,
        folder: Path,
        *,
        suites: Sequence[str] = ("numerics",),
        resumed: bool = False,
        waiver_files: Sequence[Path] = (),
        require: Sequence[str] = (),
        strict_verdicts: bool = False,
        time_limit: float = TIME_LIMIT,
        sanitize: str = "",
        baselines: Path = BASELINES,
    ) -> None:
        if not 0 < time_limit < float("inf"):
            raise PlanError(f"--time-limit {time_limit:g}: give a number of seconds above 0")
        if sanitize and not any(QUESTIONS[suite].sanitizes for suite in suites):
            able = ", ".join(f"suites/{suite}" for suite, question in QUESTIONS.items() if question.sanitizes)
            raise PlanError(f"--sanitize {sanitize!r}: only {able} launches kernels under it; name it, or leave it out")
        self.options = options
        self.folder = folder
        self._resumed = resumed
        self._strict_verdicts = strict_verdicts
        self._sanitize = sanitize
        findings = FINDINGS if FINDINGS.is_dir() else None
        self._waiver_files = [WAIVERS, *waiver_files]
        self.waivers = read_waivers(self._waiver_files, findings)
        self._own_waivers = set(self.waivers) - set(read_waivers([WAIVERS], findings))
        setting = Setting(options, folder, tuple(self.waivers), time_limit, sanitize, baselines)
        self._questions: dict[str, Question] = {suite: QUESTIONS[suite](setting) for suite in suites}
        #: The tasks of the plan by suite and subject.
        self.tasks: dict[Planned, Task] = {
            Planned(suite, task.subject): task
            for suite, question in self._questions.items()
            for task in question.plan()
        }
        kernels = {planned.subject.kernel for planned in self.tasks}
        self._requirements = [Requirement.parse(text, kernels) for text in require]
        #: What the questions have to say of their preparation.
        self.told: list[str] = []
        self._writer: ShardWriter | None = None

    def begin(self, planned: Sequence[Planned], command: Sequence[str]) -> None:
        """Write the head of the ledger; in a resumed run, take over what is settled.

        Raises:
            LedgerError: the folder is in use, holds a run of something else, or can't be written.
        """
        environment = describe_environment(list(self.tasks.values()), self._waiver_files, self._sanitize)
        head = Head(environment, self.options.tier, tuple(command), tuple(planned))
        try:
            if self._resumed:
                resume(self.folder, head, IDENTITY)
            else:
                start(self.folder, head)
        except OSError as error:
            raise LedgerError(
                f"ledger folder {self.folder} can't be written ({error.strerror}); name another with --ledger"
            ) from error

    def prepare(self, planned: Iterable[Planned], tell: Callable[[str], None]) -> None:
        """Let each question do ahead what it can, after :meth:`begin` and before anything is settled.

        ``tell`` takes lines of progress.
        """
        wanted: dict[str, list[Task]] = {suite: [] for suite in self._questions}
        for item in planned:
            task = self.tasks[item]
            if item not in self._earlier and quarantined(self.waivers, item, target_of(task)) is None:
                wanted[item.suite].append(task)
        for suite, tasks in wanted.items():
            self.told += self._questions[suite].prepare(tasks, tell)

    def process_kind(self, planned: Planned) -> tuple[str, ...]:
        """Equal for tasks that one kernel process serves; empty for those of the kind that every worker has anyway."""
        return self._questions[planned.suite].process_kind(self.tasks[planned])

    def settle(self, planned: Planned, worker: str) -> Verdict:
        """The verdict of a task: the earlier run's if it is settled there, else judged now and written down."""
        earlier = self._earlier.get(planned)
        if earlier is not None:
            return earlier
        if self._writer is None:
            self._writer = ShardWriter(self.folder, worker)
        task = self.tasks[planned]
        if task.support.answer == "yes" and task.device.present:
            number = int(re.sub(r"\D", "", worker) or 0)
            task = replace(task, device=share_of(task.device, number))
        verdict = self._questions[planned.suite].settle(task)
        self._writer.append(verdict)
        return verdict

    @cached_property
    def _earlier(self) -> Mapping[Planned, Verdict]:
        """What an earlier run settled: read once, after the controller has begun and before this process judges."""
        return read_ledger(self.folder).settled() if self._resumed else {}

    def close(self) -> None:
        """End the kernel processes and the shard of this process."""
        for question in self._questions.values():
            question.close()
        if self._writer is not None:
            self._writer.close()

    def finish(self, planned: Iterable[Planned], crashed: Mapping[Planned, str], interrupted: str) -> Outcome:
        """Merge the shards, check plan = verdicts, and decide the exit status."""
        planned = tuple(planned)
        ledger = merge(self.folder, planned, crashed, interrupted)
        verdicts = ledger.verdicts
        unmet = tuple(filter(None, (requirement.check(verdicts) for requirement in self._requirements)))
        status = exit_status(
            verdicts,
            mismatches=ledger.end.mismatches if ledger.end else (),
            unmet=unmet,
            strict_verdicts=self._strict_verdicts,
        )
        # A waiver that matches nothing is one to remove only where everything was planned.
        everything = self.options.tier == TIERS[-1] and not self.options.cases and len(planned) == len(self.tasks)
        unmatched = set(stale(self.waivers, planned)) if everything else set()
        unmatched |= {waiver for waiver in self._own_waivers if not any(map(waiver.matches, planned))}
        return Outcome(ledger, status, tuple(waiver for waiver in self.waivers if waiver in unmatched))
