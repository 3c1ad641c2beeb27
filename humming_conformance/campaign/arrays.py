# SPDX-License-Identifier: Apache-2.0
"""Makes and extends the tier lists: covering arrays over what a kernel claims.

Lists grow and never change: an extension keeps every line and adds cases for the combinations that none of
them meets.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache

from humming_conformance.campaign.case_space import CaseSpace, make_case, refused
from humming_conformance.campaign.coverage import (
    Combination,
    factors,
    load_values,
    met,
    required,
    scheme_values,
)
from humming_conformance.campaign.kernels import find_kernels
from humming_conformance.problems import REGIMES, Case, parse_case
from humming_conformance.problems.calls import CUDA_CALLS
from humming_conformance.problems.tiers import append_to_tier, listed_kernels, load_tier

#: A scheme, size and M that no chosen case has may need a kernel of its own to be compiled, which costs as
#: much as running about this many cases.
_NEW_KERNEL_COST = 20
#: Sizes tried for a combination, and cases drawn at each.
_TRIED_SIZES, _DRAWN = 6, 8


def missing_coverage(kernel: str, tier: str, case_ids: Iterable[str]) -> list[Combination]:
    """The combinations of factor values that a tier must meet and none of these cases does.

    Args:
        kernel: name of a kernel, or ``package.module:attribute``.
        tier: ``smoke``, ``gate`` or ``full``.
        case_ids: cases that the kernel doesn't claim count for nothing.
    """
    space = _space(kernel)
    needed = required(space, tier)
    claimed = [case for case in map(parse_case, case_ids) if space.claims(case)]
    covered = {item for case in claimed for item in met(factors(case), needed)}
    return sorted(item for items in needed.values() for item in items - covered)


def extend_tier(kernel: str, tier: str) -> list[str]:
    """Append the cases that a kernel's list of a tier lacks; returns their ids. A second call adds none."""
    name = _space(kernel).kernel.name
    listed = load_tier(tier, name) if name in listed_kernels() else ()
    added = new_cases(kernel, tier, listed)
    append_to_tier(tier, name, added)
    return added


def new_cases(kernel: str, tier: str, listed: Iterable[str]) -> list[str]:
    """Ids of cases with which ``listed`` meets all that a tier must meet; the same ones at every call.

    Combinations of the most factors come first; for each, the case is chosen that meets most of what is
    missing for what it costs.
    """
    space = _space(kernel)
    needed = required(space, tier)
    chosen = [parse_case(text) for text in listed]
    missing = dict.fromkeys(sorted(missing_coverage(kernel, tier, (case.id for case in chosen)), key=len, reverse=True))
    draw = random.Random(f"{space.kernel.name} {tier} {len(chosen)}")  # noqa: S311  # a fixed sequence
    compiled = {_compiled(case) for case in chosen}

    def worth(case: Case) -> float:
        cost = 1 if _compiled(case) in compiled else _NEW_KERNEL_COST
        return sum(item in missing for item in met(factors(case), needed)) / cost

    added = []
    while missing:
        # `core` is the regime under another name.
        target = {"regime" if name == "core" else name: value for name, value in next(iter(missing))}
        candidates = [*_drawn(space, target, draw), *_variants(space, target, chosen)]
        best = max(candidates, key=worth)
        if not space.claims(best) or parse_case(best.id) != best:
            raise ValueError(f"{space.kernel.name} refuses {best.id}, though the fields and rules of a claim hold")
        for item in met(factors(best), needed):
            missing.pop(item, None)
        chosen.append(best)
        compiled.add(_compiled(best))
        added.append(best.id)
    return added


def _drawn(space: CaseSpace, target: dict[str, str], draw: random.Random) -> Iterator[Case]:
    """Cases that meet a combination, at some of the sizes that allow it."""
    sizes = list(space.schemes)
    draw.shuffle(sizes)
    found = 0
    for size in sizes:
        if found == _TRIED_SIZES:
            return
        schemes = [scheme for scheme in space.schemes[size] if _agrees(scheme_values(scheme, size), target)]
        loads = [load for load in space.loads[size] if _agrees(load_values(load), target)]
        drawn = [(draw.choice(schemes), draw.choice(loads)) for _ in range(_DRAWN if schemes and loads else 0)]
        cases = [make_case(scheme, size, load) for scheme, load in drawn if not refused(load.regime, scheme)]
        found += bool(cases)
        yield from cases


def _variants(space: CaseSpace, target: dict[str, str], chosen: Iterable[Case]) -> Iterator[Case]:
    """Chosen cases under another regime, token distribution or call, where that meets a combination."""
    fixed = {name: value for name, value in target.items() if name not in ("regime", "distribution", "call")}
    regimes = [target["regime"]] if "regime" in target else list(REGIMES)
    for case in chosen:
        if _agrees(factors(case), fixed):
            distribution = target.get("distribution", case.problem.distribution)
            if case.problem.kind == "dense" and distribution != "balanced":
                continue
            problem = replace(case.problem, distribution=distribution)
            call = {"plain": ()}.get(target["call"], (target["call"],)) if "call" in target else case.call
            others = (replace(case, problem=problem, regime=regime, call=call) for regime in regimes)
            yield from (other for other in others if space.allows(other))


def _agrees(values: dict[str, str], target: dict[str, str]) -> bool:
    """Whether no factor among ``values`` has another value in ``target``."""
    return all(values[name] == value for name, value in target.items() if name in values)


def _compiled(case: Case) -> Case:
    """What cases that share a compiled kernel have in common: all but regime, distribution and the judge's calls."""
    call = tuple(option for option in case.call if option not in CUDA_CALLS)
    return replace(case, problem=replace(case.problem, distribution="balanced"), regime="random", call=call)


@cache
def _space(kernel: str) -> CaseSpace:
    (found,) = find_kernels([kernel])
    return CaseSpace(found.kernel)
