# SPDX-License-Identifier: Apache-2.0
"""Is a kernel slower than it was? From log ratios of fresh processes to a word, with what could have been missed.

The unit of replication is a process: samples of one process share its addresses and clocks, and averaging more of them
makes nothing more certain. A ratio is the kernel's time over its anchor's, in logarithms throughout: 0.02 is 2 %.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

import numpy as np
from scipy import stats

from humming_conformance.problems import parse_case
from humming_conformance.problems.families import timing_family
from humming_conformance.store import CaseBaseline

Kind = Literal["same", "fast", "slow", "ambiguous"]

#: Of a two-sided interval.
CONFIDENCE = 0.95
#: The least slowdown that can fail, and how many times the spread between machines it is at the least.
LEAST_BUDGET, BUDGET_SPREADS = 0.02, 3.0
#: Fewer processes give no interval worth its name.
FEWEST_PROCESSES = 3
#: The share of false ones among all cases called slow (or fast), and among all that fail.
SLOW_DISCOVERIES, FAIL_DISCOVERIES = 0.05, 0.01
#: An effect found four times in five lies so many half-widths away (Student t, five processes).
DETECTABLE_HALF_WIDTHS = 1.5


@dataclass(frozen=True)
class Reference:
    """What a ratio is compared with: a stored baseline, or another build measured in the same run.

    Attributes:
        mean: of the log ratios.
        process_sd: their standard deviation between processes on one machine.
        processes: how many there were.
        machine_sd: standard deviation between machines of this model; 0 for a build measured beside, None where it
            isn't known, because the baseline is of one machine.
        machines: how many there were.
    """

    mean: float
    process_sd: float
    processes: int
    machine_sd: float | None
    machines: int = 1


def reference(cases: Mapping[str, CaseBaseline], case_id: str) -> Reference:
    """What a case of a baseline is compared with, by its anchor.

    How machines differ is hardly known from two or three of them, so the case's own spread counts only where it is
    larger than that of its whole family (root mean square).
    """
    stored, family = cases[case_id], timing_family(parse_case(case_id))
    ratio = stored.ratios[stored.anchor]
    spread = ratio.machine_sd
    if spread is not None:
        alike = [
            case.ratios[stored.anchor] for name, case in cases.items() if timing_family(parse_case(name)) == family
        ]
        spread = max(spread, math.sqrt(fmean((other.machine_sd or 0.0) ** 2 for other in alike)))
    return Reference(ratio.mean, ratio.process_sd, ratio.processes, spread, ratio.machines)


@dataclass(frozen=True)
class Change:
    """A comparison of one case.

    Attributes:
        kind: see :func:`compare`; final only after :func:`control_discoveries`.
        change: difference of the mean log ratios; above 0 is slower.
        half_width: of its interval over processes alone.
        budget: what it may be before it fails.
        detectable: the smallest slowdown that would have been called slow four times in five.
        p_slow, p_fast: that it is no slower (faster) than the reference, machines of the model differing as they do.
        p_fail: that it is not slower by more than the budget.
        failed: whether it is slower than the budget.
        reason: why it is ambiguous.
    """

    kind: Kind
    change: float
    half_width: float
    budget: float
    detectable: float
    p_slow: float
    p_fast: float
    p_fail: float
    failed: bool = False
    reason: str = ""


def compare(log_ratios: Sequence[float], reference: Reference, disturbances: Sequence[str] = ()) -> Change:
    """Compare log ratios, one for each process, with a reference.

    Welch's t on process means, with the spread between machines added to the variance for ``slow`` and ``fast``
    (sd² (1 + 1/machines): this machine is a new one). ``fail`` leaves it out of the variance, as the budget holds it.
    ``ambiguous``: fewer than :data:`FEWEST_PROCESSES`, disturbances, an interval wider than the budget, or machines
    whose spread isn't known.
    """
    values = np.asarray(log_ratios, dtype=np.float64)
    if len(values) < FEWEST_PROCESSES:
        reason = f"{len(values)} processes; at least {FEWEST_PROCESSES} are needed"
        return Change(
            "ambiguous",
            float(values.mean()) if len(values) else 0.0,
            math.inf,
            LEAST_BUDGET,
            math.inf,
            1.0,
            1.0,
            1.0,
            reason=reason,
        )
    change = float(values.mean() - reference.mean)
    own = float(values.var(ddof=1)) / len(values)
    stored = reference.process_sd**2 / reference.processes
    machine_sd = reference.machine_sd or 0.0
    between = machine_sd**2 * (1 + 1 / reference.machines)
    budget = max(LEAST_BUDGET, BUDGET_SPREADS * machine_sd)
    freedom = _freedom((own, len(values) - 1), (stored, reference.processes - 1))
    error = math.sqrt(own + stored)
    half_width = float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom)) * error
    wide = math.sqrt(own + stored + between)
    wide_freedom = _freedom(
        (own, len(values) - 1), (stored, reference.processes - 1), (between, max(reference.machines - 1, 1))
    )
    found = Change(
        kind="same",
        change=change,
        half_width=half_width,
        budget=budget,
        detectable=DETECTABLE_HALF_WIDTHS * float(stats.t.ppf(0.5 + CONFIDENCE / 2, wide_freedom)) * wide,
        p_slow=float(stats.t.sf(change / wide, wide_freedom)) if wide else float(change <= 0),
        p_fast=float(stats.t.cdf(change / wide, wide_freedom)) if wide else float(change >= 0),
        p_fail=float(stats.t.sf((change - budget) / error, freedom)) if error else float(change <= budget),
    )
    reasons = list(disturbances)
    if half_width > budget:
        reasons.append(f"the interval of ±{half_width:.1%} is wider than the budget of {budget:.1%}")
    if reference.machine_sd is None:
        reasons.append("how machines of this model differ isn't known: the baseline is of one machine")
    return replace(found, kind="ambiguous", reason="; ".join(reasons)) if reasons else found


def compare_pairs(differences: Sequence[float], disturbances: Sequence[str] = ()) -> Change:
    """Compare two builds by the differences of their log ratios, one for each pair of processes on one machine.

    Nothing is stored and no machine is another: the interval is Student's over pairs, and decides alone.
    """
    return compare(differences, Reference(0.0, 0.0, len(differences) or 1, 0.0), disturbances)


def control_discoveries(changes: Mapping[str, Change]) -> dict[str, Change]:
    """The final word on each case of a run, false discoveries controlled over all of them (Benjamini, Hochberg 1995).

    A case fails where it is slower than its budget; it is ``slow`` (``fast``) where it is slower (faster) at all.
    """
    judged = {name: change for name, change in changes.items() if change.kind != "ambiguous"}
    if not judged:
        return dict(changes)
    slow = _discovered([change.p_slow for change in judged.values()], SLOW_DISCOVERIES)
    fast = _discovered([change.p_fast for change in judged.values()], SLOW_DISCOVERIES)
    fail = _discovered([change.p_fail for change in judged.values()], FAIL_DISCOVERIES)
    settled = dict(changes)
    for (name, change), is_slow, is_fast, is_failed in zip(judged.items(), slow, fast, fail, strict=True):
        kind: Kind = "slow" if is_slow or is_failed else "fast" if is_fast else "same"
        settled[name] = replace(change, kind=kind, failed=bool(is_failed))
    return settled


def _discovered(p_values: Sequence[float], share: float) -> list[bool]:
    return list(stats.false_discovery_control(p_values) <= share)


def _freedom(*parts: tuple[float, int]) -> float:
    """Degrees of freedom of a sum of variances (Welch, Satterthwaite): pairs of variance and its degrees."""
    total = sum(variance for variance, _ in parts)
    if total == 0:
        return float(max(degrees for _, degrees in parts))
    return total**2 / sum(variance**2 / max(degrees, 1) for variance, degrees in parts if variance)
