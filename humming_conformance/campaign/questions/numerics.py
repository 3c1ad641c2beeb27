# SPDX-License-Identifier: Apache-2.0
"""The question of numerics: whether every output element is right, within what the arithmetic allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from humming_conformance.campaign.build_ahead import build_ahead
from humming_conformance.campaign.judge import Judge, has_guard_pages, under_sanitizer
from humming_conformance.campaign.plan import Task, make_plan
from humming_conformance.campaign.questions.question import Question
from humming_conformance.ledger import read_failed_builds, write_failed_builds
from humming_conformance.protocols import Verdict


class NumericsQuestion(Question):
    """Judges outputs of launches against the exact reference; compiles what is to be launched ahead."""

    suite = "numerics"
    sanitizes = True

    def plan(self) -> tuple[Task, ...]:
        plan = make_plan(self.setting.options)
        tool = self.setting.sanitize
        return tuple(under_sanitizer(task, tool) for task in plan) if tool else plan

    def process_kind(self, task: Task) -> tuple[str, ...]:
        older = (task.device.name,) if task.device.pretended else ()
        return (*older, "guard pages") if has_guard_pages(task) and not self.setting.sanitize else older

    def prepare(self, tasks: Sequence[Task], tell: Callable[[str], None]) -> list[str]:
        folder = self.setting.folder
        write_failed_builds(folder, ())  # an earlier run's
        built = build_ahead(tasks, time_limit=self.setting.time_limit, tell=tell)
        write_failed_builds(folder, built.failed)
        return built.lines

    def judge(self, task: Task) -> Verdict:
        return self._judge.numerics(task)

    def settle(self, task: Task) -> Verdict:
        # The judge applies waivers itself: none covers what a memory checker reports.
        return self.judge(task)

    def close(self) -> None:
        super().close()
        if "_judge" in vars(self):
            self._judge.close()

    @cached_property
    def _judge(self) -> Judge:
        return Judge(
            self.setting.waivers,
            time_limit=self.setting.time_limit,
            sanitize=self.setting.sanitize,
            failed_builds=read_failed_builds(self.setting.folder),
        )
