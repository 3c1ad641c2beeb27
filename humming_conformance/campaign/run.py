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
from humming_conformance.campaign.build_ahead import BuildSummary, build_ahead
from humming_conformance.campaign.environment import IDENTITY, describe_environment
from humming_conformance.campaign.judge import TIME_LIMIT, Judge, target_of, under_sanitizer
from humming_conformance.campaign.kernels import KernelError
from humming_conformance.campaign.plan import PlanError, RunOptions, Task, make_plan
from humming_conformance.devices import Device, detect_devices, pretended_devices
from humming_conformance.execution import LibraryError
from humming_conformance.execution.capacity import parallel_processes
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
    read_failed_builds,
    read_ledger,
    read_waivers,
    resume,
    stale,
    start,
    write_failed_builds,
)
from humming_conformance.problems import CaseError
from humming_conformance.problems.tiers import TIERS, TierError
from humming_conformance.protocols import Subject, Verdict

#: What a user's input can be wrong by; the text of each names the input, the rule and the mend.
INPUT_ERRORS = (
    CaseError,
    KernelError,
    LedgerError,
    LibraryError,
    PlanError,
    RequirementError,
    TierError,
    WaiverError,
)

#: The waivers shipped with the project; --waivers adds to them.
WAIVERS = Path(humming_conformance.__file__).parent / "baselines" / "waivers.toml"
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
        resumed: continue the run in ``folder`` instead of starting one.
        waiver_files: the user's own, after the shipped ones.
        require: texts of ``--require``.
        strict_verdicts: ``slow`` and ``ambiguous`` are red.
        time_limit: seconds one case may take.
        sanitize: the memory checker that kernels run under, empty for none.

    Raises:
        one of INPUT_ERRORS: an option can't be used.
    """

    def __init__(
        self,
        options: RunOptions,
        folder: Path,
        *,
        resumed: bool = False,
        waiver_files: Sequence[Path] = (),
        require: Sequence[str] = (),
        strict_verdicts: bool = False,
        time_limit: float = TIME_LIMIT,
        sanitize: str = "",
    ) -> None:
        if not 0 < time_limit < float("inf"):
            raise PlanError(f"--time-limit {time_limit:g}: give a number of seconds above 0")
        self.options = options
        self.folder = folder
        self._resumed = resumed
        self._strict_verdicts = strict_verdicts
        self._time_limit = time_limit
        self._sanitize = sanitize
        findings = FINDINGS if FINDINGS.is_dir() else None
        self._waiver_files = [WAIVERS, *waiver_files]
        self.waivers = read_waivers(self._waiver_files, findings)
        self._own_waivers = set(self.waivers) - set(read_waivers([WAIVERS], findings))
        self.plan = make_plan(options)
        if sanitize:
            self.plan = tuple(under_sanitizer(task, sanitize) for task in self.plan)
        kernels = {task.subject.kernel for task in self.plan}
        self._requirements = [Requirement.parse(text, kernels) for text in require]
        #: What was built ahead of this run.
        self.built = BuildSummary()
        self._writer: ShardWriter | None = None
        self._judge: Judge | None = None

    @cached_property
    def tasks(self) -> dict[Subject, Task]:
        """The tasks of the plan by subject."""
        return {task.subject: task for task in self.plan}

    def begin(self, planned: Sequence[Planned], command: Sequence[str]) -> None:
        """Write the head of the ledger; in a resumed run, take over what is settled.

        Raises:
            LedgerError: the folder is in use, holds a run of something else, or can't be written.
        """
        environment = describe_environment(self.plan, self._waiver_files, self._sanitize)
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

    def build_ahead(self, planned: Iterable[Planned], tell: Callable[[str], None]) -> None:
        """Compile what is to be judged and launched, after :meth:`begin` and before anything is settled.

        ``tell`` takes lines of progress. The cases of a kernel that doesn't build are errors, in whichever process.
        """
        wanted = {
            item.subject: self.tasks[item.subject]
            for item in planned
            if item not in self._earlier
            and quarantined(self.waivers, item, target_of(self.tasks[item.subject])) is None
        }
        write_failed_builds(self.folder, ())  # an earlier run's
        self.built = build_ahead(
            list(wanted.values()),
            lambda task, number: replace(task, device=_share(task.device, str(number))),
            processes=parallel_processes(),
            time_limit=self._time_limit,
            tell=tell,
        )
        write_failed_builds(self.folder, self.built.failed)

    def settle(self, suite: str, task: Task, worker: str) -> Verdict:
        """The verdict of a task: the earlier run's if it is settled there, else judged now and written down."""
        earlier = self._earlier.get(Planned(suite, task.subject))
        if earlier is not None:
            return earlier
        if self._writer is None:
            self._writer = ShardWriter(self.folder, worker)
        if self._judge is None:
            self._judge = Judge(
                self.waivers,
                time_limit=self._time_limit,
                sanitize=self._sanitize,
                failed_builds=read_failed_builds(self.folder),
            )
        if task.support.answer == "yes":
            task = replace(task, device=_share(task.device, worker))
        verdict = self._judge.numerics(task)
        self._writer.append(verdict)
        return verdict

    @cached_property
    def _earlier(self) -> Mapping[Planned, Verdict]:
        """What an earlier run settled: read once, after the controller has begun and before this process judges."""
        return read_ledger(self.folder).settled() if self._resumed else {}

    def close(self) -> None:
        """End the kernel processes and the shard of this process."""
        if self._judge is not None:
            self._judge.close()
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
        everything = self.options.tier == TIERS[-1] and not self.options.cases and len(planned) == len(self.plan)
        unmatched = set(stale(self.waivers, planned)) if everything else set()
        unmatched |= {waiver for waiver in self._own_waivers if not any(map(waiver.matches, planned))}
        return Outcome(ledger, status, tuple(waiver for waiver in self.waivers if waiver in unmatched))


def _share(device: Device, worker: str) -> Device:
    """The device of that name that a worker uses: workers (``gw0``, ``gw1``…) take turns over equal GPUs."""
    real = detect_devices()
    alike = [found for found in (*real, *pretended_devices(real)) if found.name == device.name]
    number = re.sub(r"\D", "", worker)
    return alike[int(number or 0) % len(alike)]
