# SPDX-License-Identifier: Apache-2.0
"""The committed lists of cases: ``tier_lists/<suite>/<tier>/<kernel>.txt``, one case id a line, ``#`` comments.

Tiers are cumulative: ``gate`` includes ``smoke``, ``full`` includes both. Lists are append-only, so that a
verdict of last year has its case today; ``humming_conformance.campaign.arrays`` extends them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from humming_conformance.problems.ids import CaseIdError, parse_case

TIERS = ("smoke", "gate", "full")

LISTS = Path(__file__).parent / "tier_lists"


class TierError(ValueError):
    """A tier has no such name, or a list holds what it must not; the text names it, the rule and the mend."""


@cache
def load_tier(tier: str, kernel: str, suite: str = "numerics") -> tuple[str, ...]:
    """Case ids of a kernel's tier, those of the tiers below it first, in the order of the lists.

    A kernel without a list gets the union of the suite's lists: whoever plans a run leaves out what it doesn't claim.

    Raises:
        TierError: unknown tier, or a list with an invalid or repeated id; names the file and the line.
    """
    kernels = [kernel] if kernel in listed_kernels(suite) else listed_kernels(suite)
    included = TIERS[: _position(tier) + 1]
    return tuple(dict.fromkeys(case_id for name in kernels for case_id in _read(included, name, suite)))


def listed_kernels(suite: str = "numerics") -> tuple[str, ...]:
    """Kernels with a list in some tier of a suite, in alphabetical order."""
    return tuple(sorted({path.stem for tier in TIERS for path in (LISTS / suite / tier).glob("*.txt")}))


def append_to_tier(tier: str, kernel: str, case_ids: Iterable[str], suite: str = "numerics") -> None:
    """Add lines to a kernel's list of a tier, which is made if there is none; lines that are there stay.

    Raises:
        TierError: unknown tier, or the list would hold an invalid or repeated id; then it stays as it was.
    """
    case_ids = list(case_ids)
    path = _path(TIERS[_position(tier)], kernel, suite)
    if not case_ids:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.read_text() if path.exists() else f"# Cases of {kernel}, tier {tier}: append-only.\n"
    text += "".join(f"{case_id}\n" for case_id in case_ids)
    seen = dict.fromkeys(_read(TIERS[: _position(tier)], kernel, suite), "a tier below")
    _parse(path, text, seen)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(path)
    load_tier.cache_clear()


def _position(tier: str) -> int:
    if tier not in TIERS:
        nearest = difflib.get_close_matches(tier, TIERS, n=1, cutoff=0.0)[0]
        raise TierError(f"tier {tier!r} is not one of {', '.join(TIERS)}; nearest: {nearest}")
    return TIERS.index(tier)


def _path(tier: str, kernel: str, suite: str) -> Path:
    return LISTS / suite / tier / f"{kernel}.txt"


def _read(tiers: Iterable[str], kernel: str, suite: str) -> list[str]:
    seen: dict[str, str] = {}
    for tier in tiers:
        path = _path(tier, kernel, suite)
        if path.exists():
            _parse(path, path.read_text(), seen)
    return list(seen)


def _parse(path: Path, text: str, seen: dict[str, str]) -> None:
    """Add the ids of a list to ``seen``, each with the place where it stands."""
    for number, line in enumerate(text.splitlines(), start=1):
        case_id = line.partition("#")[0].strip()
        if not case_id:
            continue
        place = f"{path.parent.name}/{path.name}, line {number}"
        if case_id in seen:
            raise TierError(f"{place}: {case_id} is there already ({seen[case_id]}); list each case once")
        try:
            parse_case(case_id)
        except CaseIdError as error:
            raise TierError(f"{place}: {error}") from error
        seen[case_id] = place
