# SPDX-License-Identifier: Apache-2.0
"""The question of code generation: whether what selection names compiles for its device, and to what."""

from __future__ import annotations

from dataclasses import replace

from humming_conformance.campaign.on_profiles import ask_library, claims_on, plan_on_profiles
from humming_conformance.campaign.plan import Task
from humming_conformance.campaign.questions.question import Question
from humming_conformance.devices import load_profile
from humming_conformance.execution import state_folder
from humming_conformance.protocols import Ruling, Support, Verdict
from humming_conformance.protocols_routing import Selection, Selects
from humming_conformance.static.compiling import Source, compile_cached
from humming_conformance.static.toolchain import ToolMissingError, find_toolchain
from humming_conformance.verdicts.codegen import CodegenEvidence, judge_codegen


class CodegenQuestion(Question):
    """Compiles for one device of each architecture, or for those that are named, and judges the machine code."""

    suite = "codegen"

    def plan(self) -> tuple[Task, ...]:
        plan = plan_on_profiles(self.setting.options, self.suite, lambda kernel: isinstance(kernel, Selects))
        if not self.setting.options.devices:
            first = {task.device.sm: task.device.name for task in reversed(plan)}
            plan = tuple(task for task in plan if first[task.device.sm] == task.device.name)
        return tuple(map(_supported, plan))

    def judge(self, task: Task) -> Verdict:
        profile = load_profile(task.device.name)
        asked = [("production", task.case), ("source", task.case)]
        selected, source = ask_library(self.pool, task, profile, asked, self.setting.time_limit)
        selection = Selection.from_json(selected)
        if selection.refusal is not None or selection.route is None or "refused" in source:
            reason = f"the library names no kernel here: {selection.refusal or source}; suites/routing judges that"
            return Verdict(task.subject, self.suite, "not_run", reason, rulings=(Ruling("source", "not_run", reason),))
        compiled = compile_cached(
            Source(source["code"], tuple(source["arguments"]), tuple(source["includes"])),
            find_toolchain(),
            state_folder() / "static",
            self.setting.time_limit,
        )
        return judge_codegen(task.subject, CodegenEvidence(selection.route, profile, compiled))


def _supported(task: Task) -> Task:
    """A task with what is missing to it: the claim on that device, the tools of this machine."""
    if task.support.answer != "yes":
        return task
    claimed = claims_on(task.kernel, task.case, task.device)
    if claimed.answer == "no":
        return replace(task, support=claimed)
    try:
        find_toolchain()
    except ToolMissingError as error:
        return replace(task, support=Support("absent", str(error), error.mend))
    return task
