# SPDX-License-Identifier: Apache-2.0
"""What a memory checker adds to the verdict on a case."""

from __future__ import annotations

from dataclasses import replace

from humming_conformance.execution.sanitizer import Findings, fault_class
from humming_conformance.protocols import Outcome, Ruling, Verdict

#: Worst first. A waived failure of another rule waives no report.
_SEVERITY: tuple[Outcome, ...] = ("error", "fail", "waived", "pass")
#: Reports that a message quotes.
_QUOTED = 3


def add_findings(verdict: Verdict, tool: str, findings: Findings) -> Verdict:
    """The verdict with one more ruling, named after the tool; one on a case that was not judged stays as it is.

    ``fail`` for any report, ``error`` for a log that was cut off, else ``pass``. The evidence gains ``sanitizer``.
    """
    if verdict.outcome not in _SEVERITY:
        return verdict
    first = findings.reports[0] if findings.reports else "its log quotes none"
    ruling = Ruling(tool, "pass", "")
    if findings.count:
        ruling = Ruling(tool, "fail", f"{tool} reported {findings.count} errors, the first: {first}")
    elif not findings.complete:
        ruling = Ruling(tool, "error", f"{tool} came to no summary: nothing says that it looked to the end")
    evidence = dict(verdict.evidence)
    evidence["sanitizer"] = {"tool": tool, "count": findings.count, "reports": list(findings.reports)}
    if findings.count:
        evidence["fault_class"] = fault_class(tool, first)
    verdict = replace(verdict, rulings=(*verdict.rulings, ruling), evidence=evidence)
    if ruling.outcome == "pass":
        return verdict
    quoted = [f"{tool:>14}: {report}" for report in findings.reports[:_QUOTED] or (ruling.reason,)]
    return replace(
        verdict,
        outcome=min(verdict.outcome, ruling.outcome, key=_SEVERITY.index),
        reason="; ".join(filter(None, [ruling.reason, verdict.reason])),
        message="\n".join([verdict.message or str(verdict.subject), *quoted]),
    )
