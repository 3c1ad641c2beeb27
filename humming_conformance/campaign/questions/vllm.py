# SPDX-License-Identifier: Apache-2.0
"""The question of vLLM's selection: whether it gives a layer a backend that can serve it, or says clearly why not."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from humming_conformance.campaign.kernels import KernelReference
from humming_conformance.campaign.on_profiles import recorded_devices
from humming_conformance.campaign.plan import Task
from humming_conformance.campaign.questions.question import Question
from humming_conformance.devices import load_profile
from humming_conformance.execution import state_folder
from humming_conformance.kernels._vllm_route.asking import AskingError, ask, checkpoint
from humming_conformance.kernels._vllm_route.environments import (
    EnvironmentMissingError,
    default_versions,
    find_environment,
    supported_versions,
)
from humming_conformance.problems import Case, parse_case
from humming_conformance.problems.tiers import load_tier
from humming_conformance.protocols import Claim, Library, Ruling, Subject, Support, Verdict
from humming_conformance.verdicts.vllm_routing import judge_vllm

#: One device of each architecture that vLLM's selection knows apart.
DEVICES = ("t4", "a100", "l40s", "h100", "b200", "rtx5090")
ANSWERS = "vllm_answers.json"


@dataclass(frozen=True)
class VllmSelection:
    """vLLM's selection of one version, as subjects name it: nothing of it is launched."""

    name: str
    version: str
    device_kinds: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    library: Library | None = None


class VllmQuestion(Question):
    """Asks each built vLLM about checkpoints' layers, once for each architecture, in the controller."""

    suite = "vllm"

    def plan(self) -> tuple[Task, ...]:
        options = self.setting.options
        tasks = []
        usual = supported_versions() if options.tier == "full" else default_versions()
        for version in supported_versions():
            name = f"vllm_{version.replace('.', '_')}"
            if version not in usual and name not in options.kernels:
                continue
            if options.kernels and not {name, "vllm"} & set(options.kernels):
                continue
            support = _support(version)
            selection: Any = VllmSelection(name, version)
            reference = KernelReference(selection, f"humming_conformance.kernels._vllm_route:{name}")
            ids = options.cases or load_tier(options.tier, "vllm", self.suite)
            for device in recorded_devices(options.devices or DEVICES):
                for case in map(parse_case, dict.fromkeys(ids)):
                    subject = Subject(name, case.id, device.name)
                    tasks.append(Task(subject, case, reference, device, _of_case(case, support)))
        return tuple(tasks)

    def prepare(self, tasks: Sequence[Task], tell: Callable[[str], None]) -> list[str]:
        groups: dict[tuple[str, str], list[Task]] = defaultdict(list)
        for task in tasks:
            if task.support.answer == "yes":
                groups[_version(task), task.device.name].append(task)
        answers: dict[str, Any] = {}

        def one(key: tuple[str, str]) -> None:
            version, device = key
            cases = [task.case for task in groups[key]]
            try:
                answers[f"{version} {device}"] = ask(
                    find_environment(version, environments_folder()), load_profile(device), cases
                )
            except AskingError as error:
                answers[f"{version} {device}"] = {"failed": str(error)}
            tell(f"vLLM {version} asked about {len(cases)} layers on {device}")

        with ThreadPoolExecutor(2) as threads:
            list(threads.map(one, groups))
        path = self.setting.folder / ANSWERS
        path.write_text(json.dumps(answers), encoding="utf-8")
        return []

    def judge(self, task: Task) -> Verdict:
        found = self._answers.get(f"{_version(task)} {task.device.name}", {})
        if "failed" in found or task.case.id not in found:
            reason = found.get("failed", "vLLM wasn't asked about it")
            return Verdict(
                task.subject,
                self.suite,
                "error",
                reason.splitlines()[-1],
                f"{task.subject}\n{reason}",
                (Ruling("asked", "error", reason.splitlines()[-1]),),
            )
        return judge_vllm(task.subject, found[task.case.id])

    @cached_property
    def _answers(self) -> dict[str, Any]:
        path = self.setting.folder / ANSWERS
        answers: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return answers


def environments_folder() -> Path:
    """Where this user's vLLM environments are."""
    return state_folder() / "vllm"


def _version(task: Task) -> str:
    return task.subject.kernel.removeprefix("vllm_").replace("_", ".")


def _support(version: str) -> Support:
    try:
        find_environment(version, environments_folder())
    except EnvironmentMissingError as error:
        return Support("absent", str(error), error.mend)
    return Support("yes")


def _of_case(case: Case, support: Support) -> Support:
    if checkpoint(case) is None:
        return Support("no", "no checkpoint format that is asked about has this scheme")
    return support
