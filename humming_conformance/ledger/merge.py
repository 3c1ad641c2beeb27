# SPDX-License-Identifier: Apache-2.0
"""The end of a run: shards become one ledger with one verdict for everything planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from humming_conformance.ledger.folder import SETTLED, Ledger, filled_in, read_ledger, write_ledger
from humming_conformance.ledger.records import End, Entry, LedgerError, Mismatch, Planned


def merge(folder: Path, planned: Iterable[Planned], crashed: Mapping[Planned, str], interrupted: str) -> Ledger:
    """Write the whole ledger: one verdict for everything planned, then all that doesn't add up.

    Args:
        folder: what ``start`` or ``resume`` began.
        planned: all that this run was to judge, what an earlier run settled included.
        crashed: what lost workers were running, with the worker's name; ``error`` unless it was reported.
        interrupted: why the run stopped early (``Ctrl-C``, ``-x``), empty when it ran to its end.

    What was planned and never reported is ``not_run``, and a mismatch too unless the run was interrupted. Of
    duplicates the last stands. Verdicts that nobody planned are kept, and are mismatches. Raises LedgerError
    when the folder has no head or is merged already.
    """
    content = read_ledger(folder)
    if content.head is None:
        raise LedgerError(f"{folder} has no head; begin the ledger with start or resume")
    if content.end is not None:
        raise LedgerError(f"{folder} is merged already; continue it with resume")
    planned_now = Counter(planned)
    plan = tuple(dict.fromkeys([*content.head.plan, *planned_now]))
    earlier = {entry.planned: entry for entry in content.merged}
    kept = {
        item: entry for item, entry in earlier.items() if item not in planned_now or entry.verdict.outcome in SETTLED
    }
    latest = kept | {entry.planned: entry for entry in content.reported}

    mismatches = _mismatches(planned_now, plan, kept, content.reported)
    for item in plan:
        if item in latest:
            continue
        if item in crashed:
            latest[item] = filled_in(item, "error", f"worker lost: {crashed[item]} ended while it ran this")
        elif interrupted:
            latest[item] = filled_in(item, "not_run", f"not reached before the run was stopped ({interrupted})")
        else:
            latest[item] = filled_in(item, "not_run", "planned and never reported")
            mismatches.append(Mismatch(item, "planned and never reported, though the run was not interrupted"))
    entries = tuple(latest[item] for item in dict.fromkeys([*plan, *latest]))
    end = End(
        exit_reason=f"interrupted: {interrupted}" if interrupted else "finished",
        counts=Counter(entry.verdict.outcome for entry in entries),
        mismatches=tuple(mismatches),
        truncated=content.truncated,
    )
    head = replace(content.head, plan=plan)
    write_ledger(folder, [head, *entries, end])
    return Ledger(head, merged=entries, reported=(), end=end, truncated=end.truncated)


def _mismatches(
    planned_now: Counter[Planned],
    plan: tuple[Planned, ...],
    kept: Mapping[Planned, Entry],
    reported: tuple[Entry, ...],
) -> list[Mismatch]:
    """Plan entries and verdicts that are there too often, or that the other side lacks."""
    found = [Mismatch(item, f"planned {count} times") for item, count in planned_now.items() if count > 1]
    expected = set(plan)
    for item, count in Counter(entry.planned for entry in reported).items():
        if item not in expected:
            found.append(Mismatch(item, "judged, but not planned"))
        elif count > 1:
            found.append(Mismatch(item, f"{count} verdicts reported"))
        elif item in kept:
            found.append(Mismatch(item, "settled by an earlier run and judged again"))
    return found
