# SPDX-License-Identifier: Apache-2.0
"""From timings to a baseline file, and from two baselines to their differences."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from humming_conformance.store.baseline import Baseline, BaselineError, CaseBaseline
from humming_conformance.store.rounds import Timing, case_baselines


def record(timings: Iterable[Timing], provenance: Mapping[str, Any]) -> list[Baseline]:
    """One baseline for each device, kernel and library version among timings of any number of machines.

    Args:
        timings: right ones count alone: a process that saw a wrong output or a disturbance says nothing of speed.
        provenance: of all of them.
    """
    kernels: dict[tuple[str, str, str], list[Timing]] = defaultdict(list)
    for timing in timings:
        if not timing.found.get("wrong") and not timing.found.get("disturbances"):
            kernels[timing.device, timing.kernel, str(timing.found.get("library", ""))].append(timing)
    return [
        Baseline(
            device,
            kernel,
            library,
            "cold",
            provenance,
            case_baselines(found),
        )
        for (device, kernel, library), found in sorted(kernels.items())
    ]


def accepted(old: Baseline, new: Baseline, patterns: Sequence[str]) -> tuple[Baseline, list[str]]:
    """The old baseline with the new values of the cases that a pattern matches, and which these are.

    The provenance of the new values stands beside that of the old ones, under ``accepted``.

    Raises:
        BaselineError: they are of another device, kernel, library or mode, or no case matches.
    """
    for name in ("device", "kernel", "library", "mode"):
        if getattr(old, name) != getattr(new, name):
            raise BaselineError(
                f"baselines of another {name}: {getattr(old, name)!r} and {getattr(new, name)!r}; accept takes values "
                "of the same"
            )
    chosen = [case for case in new.cases if any(fnmatchcase(case, pattern) for pattern in patterns)]
    if not chosen:
        raise BaselineError(f"no case matches {', '.join(patterns)}; name cases, or patterns with *")
    earlier = list(old.provenance.get("accepted", ()))
    provenance = {**old.provenance, "accepted": [*earlier, {"cases": chosen, **new.provenance}]}
    cases = {**old.cases, **{case: new.cases[case] for case in chosen}}
    return replace(old, provenance=provenance, cases=cases), chosen


def table(baseline: Baseline) -> list[str]:
    """A baseline as lines of text: the ratio to each case's anchor, spreads, its own time."""
    head = f"{baseline.kernel} {baseline.library} on {baseline.device}, L2 {baseline.mode}"
    lines = [head, f"{'ratio':>7} {'anchor':6} {'processes':>9} {'machines':>13} {'us':>9}  case"]
    for case, stored in sorted(baseline.cases.items()):
        ratio = stored.ratios[stored.anchor]
        machines = "one machine" if ratio.machine_sd is None else f"{ratio.machines}: {ratio.machine_sd:.2%}"
        lines.append(
            f"{math.exp(ratio.mean):7.3f} {stored.anchor:6} {ratio.process_sd:9.2%} {machines:>13} "
            f"{stored.microseconds:9.2f}  {case}"
        )
    return lines


def differences(first: Mapping[str, CaseBaseline], second: Mapping[str, CaseBaseline]) -> list[str]:
    """How ratios of two baselines differ, the largest slowdown first; and what one of them lacks."""
    common = first.keys() & second.keys()
    changes = []
    for case in common:
        anchor = first[case].anchor
        if anchor in second[case].ratios:
            change = second[case].ratios[anchor].mean - first[case].ratios[anchor].mean
            changes.append((change, f"{math.expm1(change):+7.1%}  {anchor:6} {case}"))
    lines = [line for _, line in sorted(changes, reverse=True)]
    return lines + _only("first", first.keys() - common) + _only("second", second.keys() - common)


def _only(which: str, cases: Collection[str]) -> list[str]:
    return [f"only in the {which}: {case}" for case in sorted(cases)]
