# SPDX-License-Identifier: Apache-2.0
"""A ledger folder from start to merge: ``ledger.jsonl`` and, while a run lasts, one shard per worker.

``start`` or ``resume`` writes ``ledger.jsonl`` with the head, workers append to shards, ``merge`` (in
:mod:`.merge`) writes the whole ledger and removes the shards. Killed at any point, what was judged can be
read and the run resumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from humming_conformance.ledger.jsonl import as_read, format_record, read_records
from humming_conformance.ledger.records import End, Entry, Head, LedgerError, Planned, Record
from humming_conformance.ledger.writer import replace_text
from humming_conformance.protocols import Outcome, Verdict

LEDGER_NAME = "ledger.jsonl"
_SHARDS = "shard-*.jsonl"
#: Outcomes that a resumed run leaves as they are; `not_run` and `error` are judged again.
SETTLED: frozenset[Outcome] = frozenset({"pass", "fail", "waived", "unsupported"})


@dataclass(frozen=True)
class Ledger:
    """All that a ledger folder holds.

    Attributes:
        head: None when not even the start was written.
        merged: entries of ``ledger.jsonl``: the whole run, or what a resumed run found.
        reported: entries of shards that are not merged yet.
        end: None when the run was never merged.
        truncated: names of the files whose last line was cut off.
    """

    head: Head | None
    merged: tuple[Entry, ...]
    reported: tuple[Entry, ...]
    end: End | None
    truncated: tuple[str, ...] = ()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, the latest of a subject last."""
        return self.merged + self.reported

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdicts of all entries, in order."""
        return tuple(entry.verdict for entry in self.entries)

    @property
    def disputed(self) -> frozenset[Planned]:
        """What was reported twice with different verdicts, or is in an accounting mismatch."""
        disputed = {mismatch.planned for mismatch in self.end.mismatches} if self.end else set()
        first = {entry.planned: entry.verdict for entry in self.merged if entry.verdict.outcome in SETTLED}
        for entry in self.reported:
            if first.setdefault(entry.planned, entry.verdict) != entry.verdict:
                disputed.add(entry.planned)
        return frozenset(disputed)

    def settled(self) -> dict[Planned, Verdict]:
        """The undisputed verdicts that need no second judgement."""
        disputed = self.disputed
        return {
            entry.planned: entry.verdict
            for entry in self.entries
            if entry.verdict.outcome in SETTLED and entry.planned not in disputed
        }


def start(folder: Path, head: Head) -> None:
    """Begin a ledger in ``folder``, which must be new or empty; raises LedgerError otherwise."""
    if folder.exists() and not folder.is_dir():
        raise LedgerError(f"--ledger {folder} is a file; name a new or empty folder")
    if folder.exists() and any(folder.iterdir()):
        raise LedgerError(
            f"--ledger {folder} is not empty; name a new folder, or continue that run with --resume {folder}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_ledger(folder, [head])


def resume(folder: Path, head: Head, identity: Sequence[str]) -> dict[Planned, Verdict]:
    """Continue the run in ``folder`` and return what is settled, so that only the rest is judged.

    ``identity`` names the keys of the environment that say what is judged (library build, GPU…): verdicts on
    another one would make the merged ledger untrue, so a difference raises LedgerError. Shards that a killed
    run left are taken into ``ledger.jsonl``, under the new head.
    """
    ledger = read_ledger(folder)
    if ledger.head is not None:
        _require_same(folder, identity, ledger.head.environment, as_read(head.environment))
    plan = list(ledger.head.plan) if ledger.head else []
    if ledger.end is None:  # a killed run may not have known its plan yet; what it reported had been planned
        plan += [entry.planned for entry in ledger.entries]
    latest = {entry.planned: entry for entry in ledger.entries}
    disputed = ledger.disputed
    entries = []
    for planned in dict.fromkeys(plan):
        entry = latest.get(planned)
        if entry is None or planned in disputed:
            entry = filled_in(planned, "not_run", "an earlier run of this ledger did not settle it")
        entries.append(entry)
    write_ledger(folder, [replace(head, plan=tuple(dict.fromkeys([*plan, *head.plan]))), *entries])
    return ledger.settled()


def read_ledger(folder: Path) -> Ledger:
    """Read a folder, merged or not; raises LedgerError when it holds no ledger or a broken one.

    ``ledger.jsonl`` is written whole and renamed: one that is cut off or has no head isn't ours.
    """
    main = folder / LEDGER_NAME
    shard_paths = sorted(folder.glob(_SHARDS))
    if not main.is_file() and not shard_paths:
        raise LedgerError(f"{folder} holds no ledger; name the folder that an earlier run got by --ledger")
    whole = read_records(main) if main.is_file() else None
    records = whole.records if whole else ()
    if whole and (whole.truncated or not isinstance(next(iter(records), None), Head)):
        raise LedgerError(f"{main} is damaged: it is cut off or has no head; judge again in a new folder with --ledger")
    end = next((record for record in records if isinstance(record, End)), None)
    # Beside an end, shards are what a merge killed at its last step left: the ledger holds all of them.
    shards = {path.name: read_records(path) for path in shard_paths if end is None}
    reported = [record for shard in shards.values() for record in shard.records]
    return Ledger(
        head=next((record for record in records if isinstance(record, Head)), None),
        merged=tuple(record for record in records if isinstance(record, Entry)),
        reported=tuple(record for record in reported if isinstance(record, Entry)),
        end=end,
        truncated=(end.truncated if end else ()) + tuple(name for name, shard in shards.items() if shard.truncated),
    )


def write_ledger(folder: Path, records: Iterable[Record]) -> None:
    """Replace ``ledger.jsonl`` by ``records``, which hold all that the shards hold, and remove the shards."""
    replace_text(folder / LEDGER_NAME, "".join(map(format_record, records)))
    for path in folder.glob(_SHARDS):
        path.unlink()


def filled_in(planned: Planned, outcome: Outcome, reason: str) -> Entry:
    """The entry of what no worker reported."""
    return Entry(Verdict(planned.subject, planned.suite, outcome, reason))


def _require_same(folder: Path, identity: Sequence[str], before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for key in identity:
        if before.get(key) != now.get(key):
            raise LedgerError(
                f"--resume {folder}: its {key} is {before.get(key)!r}, this run's is {now.get(key)!r}; "
                "judge the new one in a new folder with --ledger"
            )
