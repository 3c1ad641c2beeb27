# SPDX-License-Identifier: Apache-2.0
"""Records as lines of JSON; docs/ledger.md is the published schema.

Every line carries ``schema``, so that a shard says what it is without its head. A reader ignores keys it
doesn't know and refuses a newer schema.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from humming_conformance.ledger.records import (
    OUTCOMES,
    End,
    Entry,
    Head,
    LedgerError,
    Mismatch,
    Planned,
    Record,
)
from humming_conformance.protocols import Outcome, Ruling, Subject, Verdict

SCHEMA = 1


@dataclass(frozen=True)
class RecordFile:
    """What a file of records holds; ``truncated``: its last line was cut off and is not among the records."""

    records: tuple[Record, ...]
    truncated: bool


def format_record(record: Record) -> str:
    """One line of JSON with its newline; raises LedgerError for evidence or environment that JSON can't hold.

    Numbers that JSON lacks are written as the strings ``nan``, ``inf`` and ``-inf``, which ``float()`` reads.
    """
    match record:
        case Head():
            body = {
                "record": "head",
                "environment": as_read(record.environment, "environment"),
                "tier": record.tier,
                "command": list(record.command),
                "plan": [_planned_fields(planned) for planned in record.plan],
            }
        case Entry():
            verdict = record.verdict
            body = {
                "record": "verdict",
                **_planned_fields(record.planned),
                "outcome": verdict.outcome,
                "reason": verdict.reason,
                "message": verdict.message,
                "rulings": [
                    {"rule": ruling.rule, "outcome": ruling.outcome, "reason": ruling.reason}
                    for ruling in verdict.rulings
                ],
                "evidence": as_read(verdict.evidence, f"{record.planned}: evidence"),
                "waiver": verdict.waiver,
                "worker": record.worker,
            }
        case End():
            body = {
                "record": "end",
                "exit_reason": record.exit_reason,
                "counts": dict(record.counts),
                "mismatches": [
                    {**_planned_fields(item.planned), "problem": item.problem} for item in record.mismatches
                ],
                "truncated": list(record.truncated),
            }
    return json.dumps({"schema": SCHEMA, **body}, allow_nan=False) + "\n"


def parse_record(line: bytes) -> Record:
    """Read one line; raises LedgerError that names the rule broken (the caller adds file and line)."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise LedgerError(f"not a line of JSON ({error})") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("schema"), int):
        raise LedgerError("not a ledger record: a record is an object with an integer `schema`")
    if fields["schema"] > SCHEMA:
        raise LedgerError(
            f"schema {fields['schema']} is newer than {SCHEMA}, the newest known here; "
            "read it with a newer humming-conformance"
        )
    parse = _RECORD_PARSERS.get(str(fields.get("record")))
    if parse is None:
        raise LedgerError(f"record {fields.get('record')!r} is not one of {', '.join(_RECORD_PARSERS)}")
    try:
        return parse(fields)
    except KeyError as error:
        raise LedgerError(f"the key {error} is missing") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise LedgerError(f"a value has the wrong type or form: {error}") from None


def read_records(path: Path) -> RecordFile:
    """Read a file of records.

    A last line without its newline that isn't whole was cut off by a killed writer: it is left out and
    reported. Raises LedgerError naming file and line for anything else that is no record.
    """
    lines = path.read_bytes().split(b"\n")
    truncated = not _is_json(lines[-1])
    if truncated or not lines[-1]:
        lines.pop()
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(parse_record(line))
        except LedgerError as error:
            raise LedgerError(f"{path}, line {number}: {error}") from None
    return RecordFile(tuple(records), truncated)


def _is_json(line: bytes) -> bool:
    """Whether the piece after the last newline is nothing at all or a whole JSON text."""
    try:
        json.loads(line or b"{}")
    except ValueError:
        return False
    return True


def _planned_fields(planned: Planned) -> dict[str, Any]:
    return {"suite": planned.suite, "subject": str(planned.subject)}


def _parse_planned(fields: Mapping[str, Any]) -> Planned:
    return Planned(_text(fields, "suite"), Subject.parse(_text(fields, "subject")))


def _parse_head(fields: Mapping[str, Any]) -> Head:
    return Head(
        environment=dict(fields["environment"]),
        tier=_text(fields, "tier"),
        command=tuple(map(str, fields["command"])),
        plan=tuple(map(_parse_planned, fields["plan"])),
    )


def _parse_entry(fields: Mapping[str, Any]) -> Entry:
    planned = _parse_planned(fields)
    verdict = Verdict(
        subject=planned.subject,
        suite=planned.suite,
        outcome=_outcome(fields),
        reason=_text(fields, "reason"),
        message=_text(fields, "message"),
        rulings=tuple(Ruling(_text(item, "rule"), _outcome(item), _text(item, "reason")) for item in fields["rulings"]),
        evidence=dict(fields["evidence"]),
        waiver=_text(fields, "waiver"),
    )
    return Entry(verdict, _text(fields, "worker"))


def _parse_end(fields: Mapping[str, Any]) -> End:
    return End(
        exit_reason=_text(fields, "exit_reason"),
        counts={str(outcome): int(count) for outcome, count in fields["counts"].items()},
        mismatches=tuple(Mismatch(_parse_planned(item), _text(item, "problem")) for item in fields["mismatches"]),
        truncated=tuple(map(str, fields["truncated"])),
    )


_RECORD_PARSERS: dict[str, Callable[[Mapping[str, Any]], Record]] = {
    "head": _parse_head,
    "verdict": _parse_entry,
    "end": _parse_end,
}


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is {value!r}, not a string")
    return value


def _outcome(fields: Mapping[str, Any]) -> Outcome:
    for outcome in OUTCOMES:
        if fields["outcome"] == outcome:
            return outcome
    raise ValueError(f"outcome {fields['outcome']!r} is not one of {', '.join(OUTCOMES)}")


def as_read(value: object, where: str = "value") -> Any:
    """``value`` as a reader of its record gets it: tuples as lists, non-finite numbers as strings.

    Raises LedgerError for what JSON can't hold, naming ``where`` in the value it stands.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else str(float(value))
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: as_read(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_read(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise LedgerError(
        f"{where} is a {type(value).__name__}, which JSON can't hold; pass plain numbers, strings, lists and "
        "dicts with string keys"
    )
