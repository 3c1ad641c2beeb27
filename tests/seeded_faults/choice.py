# SPDX-License-Identifier: Apache-2.0
"""Which cases are judged first for a fault: few compiled kernels, many regimes, kinds, formats and shapes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from humming_conformance.problems import Case
from tests.seeded_faults.fault import Fault

#: Each compiled kernel costs several seconds of a core for each fault.
MOST_KERNELS = 8
MOST_CASES = 20
MOST_OF_A_KERNEL = 4

Group = tuple[Case, ...]


def kernel_key(case: Case) -> str:
    """Equal for cases that differ in operands and routing alone, and so mostly run on one compiled kernel."""
    return replace(case, regime="readout", seed=0, problem=replace(case.problem, distribution="balanced")).id


def by_kernel(cases: Iterable[Case]) -> list[Group]:
    """Cases grouped by :func:`kernel_key`, in their order."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(kernel_key(case), []).append(case)
    return [tuple(group) for group in groups.values()]


def first_groups(
    fault: Fault,
    cases: Sequence[Case],
    smallest: Collection[str],
    *,
    most_kernels: int = MOST_KERNELS,
    most_cases: int = MOST_CASES,
) -> list[Group]:
    """The cases to judge first, by compiled kernel: half of the kernels from the smallest tier where it has them.

    Args:
        fault: its ``shows`` is asked of every case.
        cases: of the tier.
        smallest: ids of the smallest tier's cases.
        most_kernels: groups at most.
        most_cases: cases at most.
    """
    hinted = [case for case in cases if fault.shows(case)]
    small = by_kernel(case for case in hinted if case.id in smallest)
    chosen = _spread([], small, most_kernels // 2, most_cases // 2)
    taken = {case.id for group in chosen for case in group}
    rest = by_kernel(case for case in hinted if case.id not in taken)
    return _spread(chosen, rest, most_kernels, most_cases)


def _spread(chosen: list[Group], groups: list[Group], most_kernels: int, most_cases: int) -> list[Group]:
    """``chosen`` and as many groups as fit, each time the one that adds most traits, with its most telling cases."""
    chosen, groups = list(chosen), list(groups)
    while groups:
        room = min(most_cases - sum(map(len, chosen)), MOST_OF_A_KERNEL)
        if room <= 0 or len(chosen) >= most_kernels:
            break
        seen = {trait for group in chosen for case in group for trait in _traits(case)}
        best = max(groups, key=lambda group: (len(_new(group, seen)), len(group)))
        groups.remove(best)
        telling = sorted(best, key=lambda case: -len(_traits(case) - seen))
        chosen.append(tuple(telling[:room]))
    return chosen


def _new(group: Group, seen: Collection[str]) -> set[str]:
    return {trait for case in group for trait in _traits(case)}.difference(seen)


def _traits(case: Case) -> set[str]:
    """What the chosen cases should have many of: regimes, kinds, formats, shapes (and so schedules)."""
    problem, kind = case.problem, case.problem.kind
    formats = f"{case.weight.element} x {case.activation.element}"
    return {case.regime, kind, f"{kind} {case.regime}", formats, f"N {problem.n}", f"K {problem.k}"}
