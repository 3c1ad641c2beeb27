# SPDX-License-Identifier: Apache-2.0
"""The question of routing: what a library would run on devices that aren't here, and whether that is right."""

from __future__ import annotations

from dataclasses import replace
from math import lcm
from typing import Any

from packaging.version import InvalidVersion, Version

from humming_conformance.campaign.on_profiles import ask_library, claims_on, plan_on_profiles
from humming_conformance.campaign.plan import Task
from humming_conformance.campaign.questions.question import Question
from humming_conformance.campaign.routes import read_layer
from humming_conformance.campaign.settle import target_of
from humming_conformance.devices import DeviceProfile, load_profile
from humming_conformance.problems import Case
from humming_conformance.protocols import Verdict
from humming_conformance.protocols_routing import Selection, Selects
from humming_conformance.store.routes import RouteTable, changed_layers, read_routes, routes_path
from humming_conformance.verdicts.routing import judge_routing
from humming_conformance.verdicts.routing_evidence import RoutingEvidence

#: The largest M that is asked about, in tokens.
_MOST_ROWS = 8192
#: What N and K of a neighbouring layer differ by, at least: what every kernel here takes whole.
_STEP = 128
#: M of the cases where it is asked what is no matter of M: what callers share, and what a device's name does. Cases
#: of another M keep verdicts of their own, whatever comes out there.
_ASKED_ONCE = 2
#: A name that no library can know.
_RENAMED = "NVIDIA Graphics Device"


class RoutingQuestion(Question):
    """Asks a library about a case and its neighbours on a recorded device, and judges the answers."""

    suite = "routing"

    def plan(self) -> tuple[Task, ...]:
        return plan_on_profiles(self.setting.options, self.suite, lambda kernel: isinstance(kernel, Selects))

    def judge(self, task: Task) -> Verdict:
        case, profile = task.case, load_profile(task.device.name)
        claimed = claims_on(task.kernel, case, task.device).answer == "yes"
        rows, shapes = _rows(case), _shapes(task)
        asked = [("production", case), ("single_m", case), ("under_pytest", case), ("compatible", case)]
        asked += [("production", near) for near in (*rows.values(), *shapes.values())]
        once = case.problem.m == _ASKED_ONCE
        if once:
            asked.append(("shared", case))
        production, single_m, under_pytest, compatible, *others = self._ask(task, profile, asked)
        selections = [Selection.from_json(answer) for answer in others[: len(rows) + len(shapes)]]
        evidence = RoutingEvidence(
            case=case,
            claimed=claimed,
            profile=profile,
            production=Selection.from_json(production),
            single_m=Selection.from_json(single_m),
            under_pytest=Selection.from_json(under_pytest),
            compatible=compatible["refused"] if isinstance(compatible, dict) else compatible,
            smaller=self._elsewhere(task, _smaller(profile)),
            accepted=self._accepted(task, profile),
            renamed=self._elsewhere(task, replace(profile, product=_RENAMED)) if once else None,
            # a library that refuses shares nothing
            shared=others[-1] if once and isinstance(others[-1], str) else None,
            by_rows=dict(zip(rows, selections[: len(rows)], strict=True)),
            shapes=dict(zip(shapes, selections[len(rows) :], strict=True)),
        )
        return judge_routing(task.subject, evidence)

    def _accepted(self, task: Task, profile: DeviceProfile) -> str | None:
        """How the layer's list differs from the accepted one; None where nothing is, or by a later release."""
        if task.case.problem.m != 1 or task.case.problem.experts:
            return None  # lists of experts take seconds; ``humming-conformance routes compare`` has them
        path = routes_path(self.setting.baselines, task.subject.kernel, task.device.name)
        if not path.exists():
            return None
        table, layer = read_routes(path), task.case.id
        if layer not in table.layers or _earlier(task, table.library):
            return None
        now = read_layer(self._ask(task, profile, [("intervals", task.case)])[0])
        before = RouteTable(table.kernel, table.library, table.device, {layer: table.layers[layer]})
        return "; ".join(changed_layers(before, replace(before, layers={layer: now})).get(layer, []))

    def _elsewhere(self, task: Task, profile: DeviceProfile) -> Selection:
        """Production's answer for the task's case on another device."""
        return Selection.from_json(self._ask(task, profile, [("production", task.case)])[0])

    def _ask(self, task: Task, profile: DeviceProfile, asked: list[tuple[str, Case]]) -> list[Any]:
        return ask_library(self.pool, task, profile, asked, self.setting.time_limit)


def _earlier(task: Task, accepted: str) -> bool:
    """Whether the library build is known to be of an earlier release than the accepted one."""
    version = target_of(task).library_version
    try:
        return version is not None and version < Version(accepted)
    except InvalidVersion:  # accepted from a folder without metadata
        return False


def _rows(case: Case) -> dict[int, Case]:
    """The layer at M - 1, M and M + 1, then at twice as many as long as anybody asks, by M."""
    m = case.problem.m
    near = [value for value in (m - 1, m, m + 1) if value >= 1]
    while (m := 2 * m) <= _MOST_ROWS:
        near.append(m)
    return {value: replace(case, problem=replace(case.problem, m=value)) for value in dict.fromkeys(near)}


def _shapes(task: Task) -> dict[str, Case]:
    """Layers with the next N and K on both sides, as far as they are claimed where the case is."""
    case = task.case
    if claims_on(task.kernel, case, task.device).answer != "yes":
        return {}
    granularities = (case.weight.granularity, case.activation.granularity)
    groups = [found.group_size for found in granularities if found is not None and found.group_size is not None]
    found = {}
    for name, step in (("n", _STEP), ("k", lcm(_STEP, *groups))):
        for value in (getattr(case.problem, name) - step, getattr(case.problem, name) + step):
            if value <= 0:
                continue
            near = replace(case, problem=replace(case.problem, **{name: value}))
            if claims_on(task.kernel, near, task.device).answer == "yes":
                found[f"{name.upper()}={value}"] = near
    return found


def _smaller(profile: DeviceProfile) -> DeviceProfile:
    """The device with one multiprocessor in eight fewer, as boards of one chip differ."""
    return replace(profile, sm_count=profile.sm_count - max(1, profile.sm_count // 8))
