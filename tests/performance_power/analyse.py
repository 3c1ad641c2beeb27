# SPDX-License-Identifier: Apache-2.0
"""What stored timings say of the gate's own verdicts: false alarms, spreads, the smallest slowdown that is found."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from scipy import stats

from humming_conformance.problems import parse_case
from humming_conformance.problems.families import timing_family
from humming_conformance.store.rounds import Timing, case_baselines, ratio_of
from humming_conformance.verdicts.change import Change, compare, compare_pairs, control_discoveries, reference

#: Processes of one run of the gate.
GROUP = 5
PLAIN = "humming"

#: Timings by machine, by case.
Machines = dict[str, dict[str, list[Timing]]]


@dataclass(frozen=True)
class Gate:
    """One simulated run of the gate: the settled change of every case."""

    machine: str
    changes: Mapping[str, Change]


def by_machine(timings: Iterable[Timing], kernel: str = PLAIN) -> Machines:
    """The timings of a kernel, in the order in which they were taken; disturbed ones don't count."""
    found: Machines = defaultdict(lambda: defaultdict(list))
    for timing in timings:
        if timing.kernel == kernel and not timing.found.get("disturbances"):
            found[timing.machine][timing.case].append(timing)
    return {machine: dict(cases) for machine, cases in found.items()}


def gates(stored: Machines, judged: Machines, *, shift: float = 0.0) -> Iterator[Gate]:
    """Every run that can be drawn: disjoint groups of a machine's processes, against a baseline of all other machines.

    ``shift`` is added to each log ratio of the run: a slowdown of that size.
    """
    for machine, cases in judged.items():
        others = [timings for other, timings in stored.items() if other != machine]
        baselines = case_baselines(timing for by_case in others for each in by_case.values() for timing in each)
        for number in range(min(len(timings) for timings in cases.values()) // GROUP):
            changes = {}
            for case, baseline in baselines.items():
                if case not in cases:
                    continue
                group = cases[case][number * GROUP : (number + 1) * GROUP]
                ratios = [timing.log_ratio(baseline.anchor) + shift for timing in group]
                changes[case] = compare(ratios, reference(baselines, case))
            yield Gate(machine, control_discoveries(changes))


def pair_gates(plain: Machines, slower: Machines, anchor: str) -> Iterator[Gate]:
    """Every run of two builds side by side: pairs of processes of one machine, in disjoint groups."""
    for machine, cases in slower.items():
        for number in range(min(len(timings) for timings in cases.values()) // GROUP):
            changes = {}
            for case, timings in cases.items():
                part = slice(number * GROUP, (number + 1) * GROUP)
                pairs = zip(timings[part], plain[machine][case][part], strict=True)
                changes[case] = compare_pairs([one.log_ratio(anchor) - other.log_ratio(anchor) for one, other in pairs])
            yield Gate(machine, control_discoveries(changes))


def rate(found: int, total: int) -> str:
    """A share with its one-sided 95 % upper bound (Clopper, Pearson)."""
    upper = float(stats.beta.ppf(0.95, found + 1, total - found)) if found < total else 1.0
    return f"{found} of {total} ({found / total:.1%}, at most {upper:.1%})" if total else "none drawn"


def words(runs: Iterable[Gate]) -> Counter[str]:
    """How many cases of all runs got each word; ``fail`` beside ``slow``."""
    counts: Counter[str] = Counter()
    for run in runs:
        for change in run.changes.values():
            counts[change.kind] += 1
            counts["fail"] += change.failed
            counts["all"] += 1
    return counts


def smallest_found(stored: Machines, judged: Machines, share: float = 0.95, steps: int = 60) -> float | None:
    """The smallest slowdown, in steps of half a per cent, that at least ``share`` of case verdicts call slow."""
    for step in range(1, steps + 1):
        counts = words(gates(stored, judged, shift=step / 200))
        if counts["all"] and counts["slow"] / counts["all"] >= share:
            return step / 200
    return None


def spreads(timings: Sequence[Timing]) -> list[str]:
    """A Markdown table: by kind of case and anchor, the median spreads between processes and between machines."""
    cases: dict[str, list[Timing]] = defaultdict(list)
    for timing in timings:
        cases[timing.case].append(timing)
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for case, own in cases.items():
        for anchor in own[0].anchors:
            ratio = ratio_of(own, anchor)
            found[timing_family(parse_case(case)), anchor].append((ratio.process_sd, ratio.machine_sd or float("nan")))
    lines = ["| cases | anchor | between processes | between machines |", "|---|---|---|---|"]
    for (kind, anchor), values in sorted(found.items()):
        process, machine = (median(column) for column in zip(*values, strict=True))
        lines.append(f"| {kind} ({len(values)}) | {anchor} | {process:.2%} | {machine:.2%} |")
    return lines


def report(timings: Sequence[Timing], slower: Mapping[float, str]) -> list[str]:
    """All tables, as lines of Markdown. ``slower``: names of delayed kernels by their delay."""
    plain = by_machine(timings)
    counts = words(gates(plain, plain))
    cases = {case for found in plain.values() for case in found}
    processes = sum(max(map(len, found.values())) for found in plain.values())
    lines = [
        f"{len(plain)} machines, {processes} processes, {len(cases)} cases.",
        "",
        *spreads([timing for timing in timings if timing.kernel == PLAIN]),
        "",
        "| A/A, stored baseline of the other machines | case verdicts |",
        "|---|---|",
        *(f"| {word} | {rate(counts[word], counts['all'])} |" for word in ("fail", "slow", "fast", "ambiguous")),
        "",
    ]
    smallest = smallest_found(plain, plain)
    lines.append(
        f"Smallest slowdown found in 95 % of case verdicts: {'none' if smallest is None else f'{smallest:.1%}'}."
    )
    for delay, kernel in sorted(slower.items()):
        delayed = by_machine(timings, kernel)
        if not delayed:
            continue
        stored = words(gates(plain, delayed))
        pairs = words(pair_gates(plain, delayed, "gemm"))
        lines += [
            "",
            f"| delay of {delay:.0%} | slow or fail | fail |",
            "|---|---|---|",
            f"| pairs on one machine | {rate(pairs['slow'], pairs['all'])} | {rate(pairs['fail'], pairs['all'])} |",
            f"| stored baseline | {rate(stored['slow'], stored['all'])} | {rate(stored['fail'], stored['all'])} |",
        ]
    return lines
