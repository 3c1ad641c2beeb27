# SPDX-License-Identifier: Apache-2.0
"""From a run's timings of a case to its verdict: was it measured, is it right, within its roof, as fast as before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from humming_conformance.problems import Case
from humming_conformance.protocols import Outcome, Ruling, Subject, Verdict
from humming_conformance.verdicts.change import Change
from humming_conformance.verdicts.slow_paths import Speed, slow_paths

#: Faster than the bytes at this many times the measured read bandwidth is no speed but an error of the measurement.
ROOF_FACTOR = 1.05


@dataclass(frozen=True)
class PerformanceEvidence:
    """What is known of one case of a run.

    Attributes:
        speeds: of all cases of its kernel that were measured, itself among them.
        change: against its baseline, false discoveries controlled; None where there is no baseline.
        baseline: which, or why there is none.
        anchor: whose ratio is compared.
        log_ratios: by anchor, one for each process.
        wrong: why outputs weren't right, one sentence for each process that saw it.
        found: more for the ledger.
    """

    speeds: Mapping[Case, Speed]
    change: Change | None
    baseline: str
    anchor: str
    log_ratios: Mapping[str, Sequence[float]]
    wrong: Sequence[str]
    found: Mapping[str, Any]


def judge_performance(subject: Subject, case: Case, evidence: PerformanceEvidence) -> Verdict:
    """The verdict on a case that was measured.

    ``fail``: a wrong output, a slowdown beyond the budget, a slow path. ``error``: faster than the roof. Else ``pass``,
    whose kind (``evidence["performance"]``) is ``same``, ``fast``, ``slow`` or ``ambiguous``.
    """
    speed = evidence.speeds[case]
    rulings = [Ruling("output", "fail" if evidence.wrong else "pass", "; ".join(sorted(set(evidence.wrong))))]
    least = speed.bytes / (ROOF_FACTOR * speed.read)
    beyond = speed.seconds < least
    text = f"{speed.seconds * 1e6:.3g} us is less than reading its bytes takes ({least * 1e6:.3g} us)" if beyond else ""
    rulings.append(Ruling("roof", "error" if beyond else "pass", text))
    rulings.append(_against_baseline(evidence))
    rulings += [
        Ruling(found.rule, "fail" if found.trouble else "pass", found.trouble)
        for found in slow_paths(case, evidence.speeds)
    ]
    failed = [ruling for ruling in rulings if ruling.outcome in ("fail", "error")]
    outcome: Outcome = "pass"
    if failed:
        outcome = "error" if any(ruling.outcome == "error" for ruling in failed) else "fail"
    change = evidence.change
    return Verdict(
        subject,
        "performance",
        outcome,
        "; ".join(f"{ruling.rule}: {ruling.reason}" for ruling in failed),
        _message(subject, evidence, failed),
        tuple(rulings),
        {
            "performance": "ambiguous" if change is None else change.kind,
            "timing": {name: list(values) for name, values in evidence.log_ratios.items()},
            "microseconds": speed.seconds * 1e6,
            "anchor": evidence.anchor,
            "baseline": evidence.baseline,
            "change": None if change is None else asdict(change),
            **({"fault_class": "route"} if failed and not evidence.wrong else {}),
            **evidence.found,
        },
    )


def _against_baseline(evidence: PerformanceEvidence) -> Ruling:
    change = evidence.change
    if change is None:
        return Ruling("baseline", "not_run", evidence.baseline)
    return Ruling("baseline", "fail" if change.failed else "pass", _change_text(change, evidence.anchor))


def _change_text(change: Change, anchor: str) -> str:
    text = (
        f"{change.kind}: {change.change:+.1%} ± {change.half_width:.1%} against {anchor}, budget {change.budget:.1%}; "
        f"a slowdown of {change.detectable:.1%} would have been seen"
    )
    return f"{text} ({change.reason})" if change.reason else text


def _message(subject: Subject, evidence: PerformanceEvidence, failed: Sequence[Ruling]) -> str:
    if not failed:
        return ""
    lines = [str(subject), *(f"{ruling.rule}: {ruling.reason}" for ruling in failed)]
    route = evidence.found.get("route") or {}
    if route:
        lines.append(f"route: {route.get('path')}, tile {route.get('tile')}, split_k {route.get('split_k')}")
    return "\n".join(lines)
