# SPDX-License-Identifier: Apache-2.0
"""What a suite asks: which subjects there are, and how one is judged. One class for each suite."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import humming_conformance
from humming_conformance.campaign.plan import RunOptions, Task
from humming_conformance.campaign.settle import TIME_LIMIT, settled
from humming_conformance.execution import ProcessPool
from humming_conformance.ledger import Waiver
from humming_conformance.protocols import Verdict

#: The baselines shipped with the project.
BASELINES = Path(humming_conformance.__file__).parent / "baselines"


@dataclass(frozen=True)
class Setting:
    """What the questions of a run share.

    Attributes:
        options: what the run is asked for.
        folder: the run's ledger folder; what one process leaves for the others goes there.
        waivers: of failures known.
        time_limit: seconds one case may take.
        sanitize: the memory checker that kernels run under, empty for none.
        baselines: the folder of stored measurements.
    """

    options: RunOptions
    folder: Path
    waivers: tuple[Waiver, ...] = ()
    time_limit: float = TIME_LIMIT
    sanitize: str = ""
    baselines: Path = BASELINES


class Question(ABC):
    """The question of one suite, in one process of a run.

    The controller plans and prepares; each worker plans too, and settles the tasks that it is given. Raises one of a
    run's input errors where an option can't be used.
    """

    #: Name of the suite, and of its folder below ``suites/``.
    suite: ClassVar[str]
    #: Whether its kernels are launched under ``--sanitize``.
    sanitizes: ClassVar[bool] = False

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        #: Where library code runs; each process starts when it is first needed.
        self.pool = ProcessPool()

    @abstractmethod
    def plan(self) -> tuple[Task, ...]:
        """Every subject that the options ask for, from data alone: no CUDA, no library."""

    def process_kind(self, task: Task) -> tuple[str, ...]:
        """Equal for tasks that one kernel process serves; empty for those of the kind that every worker has anyway."""
        return ()

    def prepare(self, tasks: Sequence[Task], tell: Callable[[str], None]) -> list[str]:
        """Do what is better done once, in the controller, before any of these tasks is settled.

        Args:
            tasks: that will be judged and launched: not settled by an earlier run, not quarantined.
            tell: takes lines of progress.

        Returns:
            lines for the account at the end.
        """
        return []

    @abstractmethod
    def judge(self, task: Task) -> Verdict:
        """The verdict on a supported task; what it raises is settled as an error (a fault of kernel or judge)."""

    def settle(self, task: Task) -> Verdict:
        """The verdict on any task of the plan, waivers applied, with the command that judges it again."""
        return settled(self.suite, task, self.setting.waivers, self.judge)

    def close(self) -> None:
        """End all processes."""
        self.pool.close()
