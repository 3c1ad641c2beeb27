# SPDX-License-Identifier: Apache-2.0
"""Times the fixed cases in many fresh processes; what is there already counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from humming_conformance.campaign.build_ahead import build_ahead
from humming_conformance.campaign.performance import Campaign
from humming_conformance.campaign.plan import RunOptions, Task, share_of
from humming_conformance.campaign.questions import QUESTIONS, Setting

CASES = Path(__file__).parent / "cases.txt"
DELAYED = {0.03: "tests.performance_power.delayed:by_30", 0.05: "tests.performance_power.delayed:by_50"}


def fixed_cases() -> list[str]:
    """Ids of the cases."""
    lines = CASES.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def collect(
    folder: Path, processes: int, budget: float, *, delays: Sequence[float] = (), say: Callable[[str], None] = print
) -> int:
    """Add timings of ``processes`` processes, and of as many for each delay, to ``timings.jsonl`` in a folder.

    Returns how many subjects were lost, each of which is told.
    """
    kernels = ("humming", *(DELAYED[delay] for delay in delays))
    setting = Setting(RunOptions(kernels=kernels, cases=tuple(fixed_cases())), folder)
    tasks = [_placed(task) for task in QUESTIONS["performance"](setting).plan() if task.support.answer == "yes"]
    if not tasks:
        raise SystemExit("nothing can be timed here: a CUDA device and humming-kernels are needed")
    plain = [task for task in tasks if task.subject.kernel == "humming"]
    build_ahead(plain, time_limit=300.0, tell=say)
    campaign = Campaign(folder / "timings.jsonl", say, budget)
    campaign.measure(tasks, range(processes), "the fixed cases")
    for lost in campaign.lost:
        say(f"lost: {lost.kernel} {lost.case}: {lost.reason}")
    return len(campaign.lost)


def _placed(task: Task) -> Task:
    return replace(task, device=share_of(task.device, 0))
