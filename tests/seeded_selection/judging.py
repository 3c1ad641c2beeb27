# SPDX-License-Identifier: Apache-2.0
"""What the rules of routing say of a library's choices, as the set of (subject, rule) that they break."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from humming_conformance.campaign.plan import RunOptions, Task
from humming_conformance.campaign.questions import Setting
from humming_conformance.campaign.questions.routing import RoutingQuestion
from humming_conformance.campaign.settle import guarded

Breach = tuple[str, str]


@dataclass(frozen=True)
class Judged:
    """Whose choices are judged.

    Attributes:
        kernel: its name.
        library: the name of its library, as ``--library`` has it.
        tier: whose routing cases.
        workers: kernel processes side by side.
    """

    kernel: str
    library: str
    tier: str
    workers: int


def breaches(judged: Judged, folder: Path, devices: Sequence[str]) -> set[Breach]:
    """Judge every case of the tier on recorded devices, without waivers; ``folder`` holds the library's build.

    Returns:
        (subject, rule) of every failed ruling; a subject that could not be judged has the rule that says so.
    """
    with tempfile.TemporaryDirectory() as ledger:
        options = RunOptions(judged.tier, (judged.kernel,), tuple(devices), libraries={judged.library: str(folder)})
        questions = [RoutingQuestion(Setting(options, Path(ledger))) for _ in range(judged.workers)]
        plan = questions[0].plan()

        def share(number: int) -> set[Breach]:
            question = questions[number]
            try:
                return {breach for task in plan[number :: judged.workers] for breach in _broken(question, task)}
            finally:
                question.close()

        with ThreadPoolExecutor(judged.workers) as pool:
            return set().union(*pool.map(share, range(judged.workers)))


def _broken(question: RoutingQuestion, task: Task) -> set[Breach]:
    verdict = guarded("routing", task, question.judge)
    return {(str(task.subject), ruling.rule) for ruling in verdict.rulings if ruling.outcome in ("fail", "error")}
