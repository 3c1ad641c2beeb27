# SPDX-License-Identifier: Apache-2.0
"""The question of performance: whether a case is as fast as its baseline, its neighbours and its roof say."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import median

from humming_conformance.campaign.build_ahead import build_ahead
from humming_conformance.campaign.performance import ROUNDS, SPENT, SUSPECT_ROUNDS, Campaign
from humming_conformance.campaign.plan import Task, make_plan, share_of
from humming_conformance.campaign.questions.question import Question
from humming_conformance.problems import Case, parse_case
from humming_conformance.problems.tiers import listed_kernels
from humming_conformance.protocols import Outcome, Ruling, Support, Verdict
from humming_conformance.store import Baseline, CaseBaseline, baseline_path, read_baseline
from humming_conformance.store.rounds import Timing, read_timings
from humming_conformance.verdicts.change import Change, compare, control_discoveries, reference
from humming_conformance.verdicts.performance import PerformanceEvidence, judge_performance
from humming_conformance.verdicts.slow_paths import Speed

TIMINGS, LOST = "timings.jsonl", "timings_lost.json"
#: A case is measured in more rounds where it may be slower, or where its interval is too wide to tell.
_SUSPECT_P = 0.2

#: A subject without its device: all of a run's timings are of one.
_Key = tuple[str, str]


class PerformanceQuestion(Question):
    """Times all cases in the controller, ahead; each item then reports its own."""

    suite = "performance"

    def plan(self) -> tuple[Task, ...]:
        listed = listed_kernels(self.suite)
        return tuple(
            _on_gpu(task)
            for task in make_plan(self.setting.options, self.suite)
            if not task.device.pretended
            # A kernel of ours without a list is an anchor.
            and (task.subject.kernel in listed or not task.kernel.reference.startswith("humming_conformance."))
        )

    def prepare(self, tasks: Sequence[Task], tell: Callable[[str], None]) -> list[str]:
        tasks = [replace(task, device=share_of(task.device, 0)) for task in tasks if task.support.answer == "yes"]
        if not tasks:
            return []
        built = build_ahead(tasks, time_limit=self.setting.time_limit, tell=tell)
        campaign = Campaign(self._path(TIMINGS), tell)
        campaign.measure(tasks, range(ROUNDS), "all cases")
        suspects = [task for task in tasks if self._suspect(task)]
        if suspects:
            vars(self).pop("_timings", None)
            campaign.measure(suspects, range(ROUNDS, ROUNDS + SUSPECT_ROUNDS), "suspects")
        lost = {f"{lost.kernel}:{lost.case}": lost.reason for lost in campaign.lost}
        self._path(LOST).write_text(json.dumps(lost, indent=1), encoding="utf-8")
        return [
            *built.lines,
            f"timed {len(tasks)} cases in {ROUNDS} processes each, {len(suspects)} suspects in {SUSPECT_ROUNDS} more",
        ]

    def judge(self, task: Task) -> Verdict:
        key = (task.subject.kernel, task.case.id)
        timings = self._timings.get(key, [])
        if not timings:
            return self._unmeasured(task)
        change, baseline, anchor = self._settled[key]
        evidence = PerformanceEvidence(
            speeds=self._speeds[task.subject.kernel],
            change=change,
            baseline=baseline,
            anchor=anchor,
            log_ratios={name: [timing.log_ratio(name) for timing in timings] for name in timings[0].anchors},
            wrong=[timing.found["wrong"] for timing in timings if timing.found.get("wrong")],
            found={
                "machine": timings[0].machine,
                "processes": len(timings),
                "anchor_microseconds": {
                    name: median(median(timing.seconds[name]) for timing in timings) * 1e6
                    for name in timings[0].anchors
                },
                "host_microseconds": median(timing.found["host_seconds"] for timing in timings) * 1e6,
                **{name: timings[0].found[name] for name in ("route", "sets", "bytes", "operations")},
            },
        )
        return judge_performance(task.subject, task.case, evidence)

    def _unmeasured(self, task: Task) -> Verdict:
        path = self._path(LOST)
        lost = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        reason = lost.get(f"{task.subject.kernel}:{task.case.id}", "no campaign was run before it")
        spent = reason == SPENT
        outcome: Outcome = "not_run" if spent else "error"
        message = "" if spent else f"{task.subject}\nit was not timed: {reason}"
        return Verdict(task.subject, self.suite, outcome, reason, message, (Ruling("timed", outcome, reason),))

    def _path(self, name: str) -> Path:
        return self.setting.folder / name

    @cached_property
    def _timings(self) -> dict[_Key, list[Timing]]:
        found: dict[_Key, list[Timing]] = defaultdict(list)
        path = self._path(TIMINGS)
        for timing in read_timings(path) if path.exists() else []:
            found[timing.kernel, timing.case].append(timing)
        return dict(found)

    @cached_property
    def _speeds(self) -> dict[str, dict[Case, Speed]]:
        """By kernel and case: what was measured of every case of the run."""
        speeds: dict[str, dict[Case, Speed]] = defaultdict(dict)
        for (kernel, case_id), timings in self._timings.items():
            speeds[kernel][parse_case(case_id)] = Speed(
                seconds=median(timing.microseconds for timing in timings) * 1e-6,
                anchors={
                    name: median(median(timing.seconds[name]) for timing in timings) for name in timings[0].anchors
                },
                read=median(timing.roofs["read"] for timing in timings),
                launch=median(timing.roofs["launch"] for timing in timings),
                bytes=timings[0].found["bytes"],
            )
        return dict(speeds)

    @cached_property
    def _baselines(self) -> dict[str, Baseline | str]:
        """By kernel: its baseline on the device of this run, or why there is none."""
        found: dict[str, Baseline | str] = {}
        for task in self.plan():
            name = task.subject.kernel
            version = task.build.version if task.build is not None else ""
            path = baseline_path(self.setting.baselines, task.device.name, name, version)
            if name not in found:
                found[name] = (
                    read_baseline(path) if path.exists() else f"no baseline {path.name} for {task.device.name}"
                )
        return found

    @cached_property
    def _settled(self) -> dict[_Key, tuple[Change | None, str, str]]:
        """Change, baseline and anchor of every measured case, false discoveries controlled over all of them."""
        changes, told = {}, {}
        for key, timings in self._timings.items():
            stored, text = self._stored(key)
            anchor = stored.anchor if stored else ""
            told[key] = (text, anchor)
            baseline = self._baselines.get(key[0], "")
            if stored is not None and not isinstance(baseline, str):
                changes[f"{key[0]}:{key[1]}"] = _compared(timings, baseline.cases)
        final = control_discoveries(changes)
        return {key: (final.get(f"{key[0]}:{key[1]}"), *told[key]) for key in self._timings}

    def _stored(self, key: _Key) -> tuple[CaseBaseline | None, str]:
        kernel, case_id = key
        baseline = self._baselines.get(kernel, "no such kernel in the plan")
        if isinstance(baseline, str):
            return None, baseline
        what = f"{baseline.kernel} {baseline.library} on {baseline.device}"
        if case_id not in baseline.cases:
            return None, f"the baseline of {what} lacks this case"
        return baseline.cases[case_id], what

    def _suspect(self, task: Task) -> bool:
        key = (task.subject.kernel, task.case.id)
        baseline = self._baselines.get(task.subject.kernel, "")
        timings = self._timings.get(key, [])
        if isinstance(baseline, str) or task.case.id not in baseline.cases or not timings:
            return False
        change = _compared(timings, baseline.cases)
        return change.p_slow < _SUSPECT_P or change.half_width > change.budget


def _compared(timings: Sequence[Timing], stored: Mapping[str, CaseBaseline]) -> Change:
    case_id = timings[0].case
    anchor = stored[case_id].anchor
    disturbed: Iterable[str] = dict.fromkeys(text for timing in timings for text in timing.found["disturbances"])
    return compare([timing.log_ratio(anchor) for timing in timings], reference(stored, case_id), list(disturbed))


def _on_gpu(task: Task) -> Task:
    """Only GPUs are timed: what would be judged elsewhere lacks one."""
    if task.device.kind == "cuda" or task.support.answer == "no":
        return task
    return replace(task, support=Support("absent", "timing needs a CUDA device", "run where there is a GPU"))
