# SPDX-License-Identifier: Apache-2.0
"""What was found, one JSON object a line, appended as it comes: a run that was cut off goes on from there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from tests.seeded_faults.fault import Fault
from tests.seeded_faults.seeding import change_of

FILE = "results.jsonl"

#: A case's outcome that a gate would stop at.
RED = ("fail", "error")


class ResultsError(ValueError):
    """The results in a folder are of another run; the text names what differs and the mend."""


class Results:
    """The records of a folder.

    Attributes:
        head: what is judged: library build, kernel, device, tier.
        planned: ids of all cases that are to be judged.

    Args:
        folder: made where it is missing.
        head: of this run; left out, that of the records found is taken.
        planned: of this run; a list grown since the last one is no reason to begin anew.

    Raises:
        ResultsError: the folder's records have another head, or there are none and no head is given.
    """

    def __init__(self, folder: Path, head: Mapping[str, str] | None = None, planned: Sequence[str] = ()) -> None:
        self.path = folder / FILE
        self._lock = Lock()
        self._cases: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
        self._not_applicable: dict[tuple[str, str], str] = {}
        records = self._read()
        self.planned = tuple(planned)
        if records:
            found = records.pop(0)
            if head is not None and found != dict(head):
                raise ResultsError(f"{self.path} holds results of {found}, not of {dict(head)}; name another folder")
            self.head: Mapping[str, str] = found
            if not planned:
                self.planned = tuple(next(record["planned"] for record in reversed(records) if "planned" in record))
        elif head is None:
            raise ResultsError(f"{self.path} holds no results; run without --tables-only first")
        else:
            folder.mkdir(parents=True, exist_ok=True)
            self.head = dict(head)
            self._append(self.head)
        if planned:
            self._append({"planned": list(planned)})
        for record in records:
            if "planned" not in record:
                self._remember(record)

    def add(self, fault: Fault | None, verdict: Mapping[str, Any]) -> None:
        """Keep the verdict on a case of a seeded build; of the unseeded one where ``fault`` is None."""
        name, change = _key(fault)
        record = {"fault": name, "change": change, **verdict}
        self._append(record)
        self._remember(record)

    def add_not_applicable(self, fault: Fault, reason: str) -> None:
        """Keep that this release lacks what the fault changes."""
        name, change = _key(fault)
        record = {"fault": name, "change": change, "not_applicable": reason}
        self._append(record)
        self._remember(record)

    def of(self, fault: Fault | None) -> dict[str, dict[str, Any]]:
        """Verdicts by case id on a seeded build, or on the unseeded one."""
        with self._lock:
            return dict(self._cases.get(_key(fault), {}))

    def not_applicable(self, fault: Fault) -> str:
        """Why the fault can't be seeded into this release; empty where it can, or wasn't tried."""
        return self._not_applicable.get(_key(fault), "")

    def caught(self, fault: Fault) -> dict[str, dict[str, Any]]:
        """The cases that fail or don't run with the fault, and pass without it."""
        control = self.of(None)
        return {
            case_id: verdict
            for case_id, verdict in self.of(fault).items()
            if verdict["outcome"] in RED and verdict["compiled"] and control.get(case_id, {}).get("outcome") == "pass"
        }

    def _read(self) -> list[dict[str, Any]]:
        if not self.path.is_file():
            return []
        text = self.path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # the last line was cut off while it was written
            self.path.write_text(whole, encoding="utf-8")
        return [json.loads(line) for line in whole.splitlines()]

    def _append(self, record: Mapping[str, Any]) -> None:
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def _remember(self, record: dict[str, Any]) -> None:
        key = (record["fault"], record["change"])
        with self._lock:
            if "not_applicable" in record:
                self._not_applicable[key] = record["not_applicable"]
            else:
                self._cases.setdefault(key, {})[record["case"]] = record


def _key(fault: Fault | None) -> tuple[str, str]:
    return ("", "") if fault is None else (fault.name, change_of(fault))
