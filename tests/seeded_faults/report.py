# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/seeded_faults.md, made from the results of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from humming_conformance.problems import parse_case
from humming_conformance.problems.tiers import TIERS, load_tier
from tests.seeded_faults.fault import Fault
from tests.seeded_faults.results import Results

#: On the page, what follows this line is written by the script.
MARKER = "<!-- what follows is written by `python -m tests.seeded_faults` -->"


@dataclass(frozen=True)
class Row:
    """What was found on one fault.

    Attributes:
        state: ``caught``, ``not caught``, ``not applicable``, ``does not compile`` or ``open`` (cases are left).
        tier: of a caught fault, the smallest whose list holds a case that catches it.
        judged, caught: verdicts by case id; only cases that pass without the fault count.
        reason: why it isn't applicable, or what is left.
    """

    fault: Fault
    state: str
    tier: str
    judged: Mapping[str, Mapping[str, Any]]
    caught: Mapping[str, Mapping[str, Any]]
    reason: str = ""

    @property
    def regimes(self) -> dict[str, tuple[int, int]]:
        """By regime, how many of its cases caught the fault, and how many were judged."""
        counts: Counter[str] = Counter(_regime(case_id) for case_id in self.caught)
        judged: Counter[str] = Counter(_regime(case_id) for case_id in self.judged)
        return {regime: (counts[regime], judged[regime]) for regime in sorted(judged)}

    @property
    def diagnosed(self) -> Counter[str]:
        """Fault classes that the failures were diagnosed as."""
        return Counter(verdict["fault_class"] or "none" for verdict in self.caught.values())

    @property
    def right(self) -> bool:
        """Whether most of the failures were diagnosed as what the fault is."""
        return 2 * self.diagnosed[self.fault.fault_class] > self.diagnosed.total()

    @property
    def seconds(self) -> float:
        """What judging it took, processes added up."""
        return float(sum(verdict["seconds"] for verdict in self.judged.values()))


def row(fault: Fault, results: Results) -> Row:
    """What the results say of a fault."""
    control = results.of(None)
    everything = results.of(fault)
    judged = {
        case_id: verdict
        for case_id, verdict in everything.items()
        if control.get(case_id, {}).get("outcome", "pass") == "pass"
    }
    caught = results.caught(fault)
    kernel, tier = results.head["kernel"], results.head["tier"]
    if reason := results.not_applicable(fault):
        return Row(fault, "not applicable", "", {}, {}, reason)
    if any(not verdict["compiled"] for verdict in everything.values()):
        return Row(fault, "does not compile", "", {}, {})
    if caught:
        tiers = [name for name in TIERS if set(load_tier(name, kernel)) & set(caught)]
        return Row(fault, "caught", tiers[0] if tiers else tier, judged, caught)
    left = len(set(results.planned) - set(everything))
    if left:
        return Row(fault, "open", "", judged, caught, f"{left} of {len(results.planned)} cases were not judged")
    return Row(fault, "not caught", "", judged, caught)


def render(results: Results, faults: Sequence[Fault]) -> str:
    """All tables."""
    rows = [row(fault, results) for fault in faults]
    head = results.head
    control = results.of(None)
    red = sum(verdict["outcome"] != "pass" for verdict in control.values())
    kernel, device, planned = head["kernel"], head["device"], len(results.planned)
    lines = [
        f"{head['library']} {head['version']} (build {head['build']}), kernel `{kernel}`, on `{device}`, tier",
        f"`{head['tier']}`: {planned} cases. {len(control)} of them were judged without a fault too; the {red} that",
        "don't pass then count for nothing.",
        "",
        *_summary(rows),
        "",
        "## Fault by fault",
        "",
        *_table(("fault", "class", "caught at", "cases", "by regime", "diagnosed as", "s"), map(_cells, rows)),
        "",
        "## By regime",
        "",
        *_table(("regime", "faults caught", "faults tried"), _by_regime(rows)),
        "",
        *_details(rows),
    ]
    return "\n".join(lines) + "\n"


def write_page(page: Path, tables: str) -> None:
    """Replace what follows the marker on a page.

    Raises:
        ValueError: the page has no marker.
    """
    text = page.read_text(encoding="utf-8")
    prose, marker, _ = text.partition(MARKER)
    if not marker:
        raise ValueError(f"{page} has no line {MARKER!r}; put it where the tables belong")
    draft = page.with_suffix(".new")
    draft.write_text(f"{prose}{MARKER}\n\n{tables}", encoding="utf-8")
    draft.replace(page)


def _summary(rows: Sequence[Row]) -> list[str]:
    caught = [found for found in rows if found.state == "caught"]
    cells = [(f"caught in {tier}", str(sum(found.tier == tier for found in caught))) for tier in TIERS]
    states = ("not caught", "open", "does not compile", "not applicable")
    cells += [(state, str(sum(found.state == state for found in rows))) for state in states]
    right = sum(found.right for found in caught)
    cells.append(("most failures diagnosed as what the fault is", f"{right} of {len(caught)}"))
    return _table((f"{len(rows)} faults", ""), cells)


def _cells(found: Row) -> tuple[str, ...]:
    regimes = ", ".join(f"{regime} {caught}/{judged}" for regime, (caught, judged) in found.regimes.items())
    classes = ", ".join(f"{name} {count}" for name, count in found.diagnosed.most_common())
    where = found.tier if found.state == "caught" else f"**{found.state}**"
    cases = f"{len(found.caught)}/{len(found.judged)}"
    return (found.fault.name, found.fault.fault_class, where, cases, regimes, classes, f"{found.seconds:.0f}")


def _by_regime(rows: Sequence[Row]) -> Iterable[tuple[str, ...]]:
    tried = sorted({regime for found in rows for regime in found.regimes})
    for regime in tried:
        counts = [found.regimes[regime] for found in rows if regime in found.regimes]
        yield regime, str(sum(caught > 0 for caught, _ in counts)), str(len(counts))


def _details(rows: Sequence[Row]) -> Iterable[str]:
    for state, title in (("not caught", "Not caught"), ("open", "Not judged to the end")):
        found = [entry for entry in rows if entry.state == state]
        if found:
            yield from (f"## {title}", "")
            yield from map(_detail, found)
            yield ""
    yield from ("## What each fault breaks", "")
    yield from (_detail(entry) for entry in rows if entry.state not in ("not caught", "open"))


def _detail(found: Row) -> str:
    text = f"- `{found.fault.name}` ({found.fault.file}): {found.fault.breaks}"
    if found.caught:
        case_id, verdict = next(iter(found.caught.items()))
        text += f" First caught by `{case_id}`: {verdict['reason']}."
    return text + (f" ({found.reason})" if found.reason else "")


def _regime(case_id: str) -> str:
    return parse_case(case_id).regime


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (head, ("---",) * len(head), *rows)]
