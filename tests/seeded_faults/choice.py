# SPDX-License-Identifier: Apache-2.0
"""Which cases are judged first for a fault: few compiled kernels, many regimes and kinds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from humming_conformance.problems import Case
from tests.seeded_faults.fault import Fault

#: Each compiled kernel costs several seconds of a core for each fault.
MOST_KERNELS = 8
MOST_CASES = 20

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
    """``chosen`` and as many groups as fit, each time the one that adds most regimes and kinds."""
    chosen, groups = list(chosen), list(groups)
    while groups:
        room = most_cases - sum(map(len, chosen))
        if room <= 0 or len(chosen) >= most_kernels:
            break
        seen = {trait for group in chosen for trait in _traits(group)}
        best = max(groups, key=lambda group: (len(_traits(group) - seen), len(group)))
        groups.remove(best)
        chosen.append(best[:room])
    return chosen


def _traits(group: Group) -> set[str]:
    return {trait for case in group for trait in (case.regime, case.problem.kind, f"{case.problem.kind} {case.regime}")}
