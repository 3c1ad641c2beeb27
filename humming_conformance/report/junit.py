# SPDX-License-Identifier: Apache-2.0
"""A verdict as JUnit properties."""

from __future__ import annotations

import json

from humming_conformance.ledger import as_read
from humming_conformance.protocols import Verdict


def junit_properties(verdict: Verdict) -> list[tuple[str, str]]:
    """(name, value) pairs: what is judged, rulings (``ruling.<rule>``) and evidence (``evidence.<name>``).

    Evidence that is no string is written as JSON.
    """
    properties = [
        ("subject", str(verdict.subject)),
        ("kernel", verdict.subject.kernel),
        ("case", verdict.subject.case_id),
        ("device", verdict.subject.device),
        ("suite", verdict.suite),
        ("outcome", verdict.outcome),
        ("reason", verdict.reason),
    ]
    if verdict.waiver:
        properties.append(("waiver", verdict.waiver))
    properties += [(f"ruling.{item.rule}", f"{item.outcome}: {item.reason}") for item in verdict.rulings]
    for name, value in verdict.evidence.items():
        text = value if isinstance(value, str) else json.dumps(as_read(value, name))
        properties.append((f"evidence.{name}", text))
    return properties
