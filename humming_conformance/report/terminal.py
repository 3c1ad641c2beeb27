# SPDX-License-Identifier: Apache-2.0
"""The summary of a run as lines of plain text."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from humming_conformance.ledger import (
    OUTCOMES,
    ExitStatus,
    Ledger,
    Waiver,
    count_by_kernel_and_suite,
    is_judged,
    performance_kind,
)
from humming_conformance.protocols import Verdict

_MIN_WIDTH = 40
_MAX_WIDTH = 110
_MAX_FAILURES = 8  # two lines each
_MAX_LINES = 10  # of every other list
_MAX_TEXT_LINES = 3


def summary_lines(
    ledger: Ledger,
    status: ExitStatus,
    *,
    stale: Sequence[Waiver] = (),
    told: Sequence[str] = (),
    folder: Path | None = None,
    width: int = _MAX_WIDTH,
) -> list[str]:
    """The summary of a merged ledger.

    Lines are wrapped or cut at ``width`` (40 to 110), but for the table, and for subjects, which are there to
    be copied. ``told`` are lines for the account, ``folder`` where the ledger lies, None when it is not kept.
    Raises ValueError for a ledger without head or end.
    """
    if ledger.head is None or ledger.end is None:
        raise ValueError("the ledger has no head or no end; merge it first")
    width = max(_MIN_WIDTH, min(width, _MAX_WIDTH))
    verdicts = ledger.verdicts
    lines = _table(verdicts)
    lines += _failures(verdicts, folder, width)
    lines += _not_judged(verdicts, width)
    lines += _section("waivers that match nothing planned (remove them?)", [item.key for item in stale], width)
    lines += _section("files whose last line was cut off by a killed writer", ledger.truncated, width)
    lines += _section("accounting mismatches", map(str, ledger.end.mismatches), width)
    lines += _section("red because", status.reasons, width)
    lines += ["", _fit(_accounting(ledger, len(ledger.head.plan)), width)]
    if ledger.end.exit_reason != "finished":
        lines.append(_fit(f"run {ledger.end.exit_reason}", width))
    lines += [_fit(line, width) for line in told]
    lines.append(_counts(verdicts))
    return lines


def _table(verdicts: Iterable[Verdict]) -> list[str]:
    counts = count_by_kernel_and_suite(verdicts)
    rows = [["kernel", "suite", *OUTCOMES]]
    rows += [
        [kernel, suite, *(str(count[outcome] or "-") for outcome in OUTCOMES)]
        for (kernel, suite), count in sorted(counts.items())
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(size) if index < 2 else cell.rjust(size)
            for index, (cell, size) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _failures(verdicts: Iterable[Verdict], folder: Path | None, width: int) -> list[str]:
    """Failures and errors by fault class, most frequent first; every class is named, examples are limited."""
    classes: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.outcome in ("fail", "error"):
            name = str(verdict.evidence.get("fault_class") or "unclassified")
            classes.setdefault(name, []).append(verdict)
    if not classes:
        return []
    total = sum(map(len, classes.values()))
    per_class = max(1, _MAX_FAILURES // len(classes))
    shown = 0
    lines = ["", f"failures and errors ({total})"]
    for name, found in sorted(classes.items(), key=lambda item: -len(item[1])):
        lines.append(f"  {name} ({len(found)})")
        for verdict in found[: min(per_class, _MAX_FAILURES - shown)]:
            lines += [
                f"    {verdict.subject}",
                _fit(f"      {verdict.suite} {verdict.outcome}: {verdict.reason}", width),
            ]
            shown += 1
    if shown < total:
        place = f"see {folder}" if folder else "--ledger DIR keeps them all"
        lines.append(f"  and {total - shown} more, {place}")
    return lines


def _not_judged(verdicts: Iterable[Verdict], width: int) -> list[str]:
    groups = Counter(
        (verdict.outcome, verdict.reason or "no reason given")
        for verdict in verdicts
        if not is_judged(verdict) and verdict.outcome != "error"
    )
    if not groups:
        return []
    lines = ["", f"could not be judged, and why ({groups.total()})"]
    for (outcome, reason), count in groups.most_common(_MAX_LINES):
        lines += _wrap(f"{count:8} ", f"{outcome}: {reason}", width)
    if len(groups) > _MAX_LINES:
        rest = groups.most_common()[_MAX_LINES:]
        lines.append(f"  and {sum(count for _, count in rest)} more, for {len(rest)} other reasons")
    return lines


def _section(title: str, items: Iterable[str], width: int) -> list[str]:
    texts = list(items)
    if not texts:
        return []
    lines = ["", f"{title} ({len(texts)})"]
    for text in texts[:_MAX_LINES]:
        lines += _wrap("  ", text, width)
    if len(texts) > _MAX_LINES:
        lines.append(f"  and {len(texts) - _MAX_LINES} more")
    return lines


def _accounting(ledger: Ledger, planned: int) -> str:
    counts = Counter(verdict.outcome for verdict in ledger.verdicts)
    terms = " + ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome]) or "0"
    if counts.total() == planned:
        return f"planned {planned} = {terms}"
    return f"planned {planned}, but {counts.total()} verdicts = {terms}"


def _counts(verdicts: Iterable[Verdict]) -> str:
    """The last line: what isn't red by default and must not be overlooked."""
    counts = Counter[str]()
    for verdict in verdicts:
        counts.update((verdict.outcome, performance_kind(verdict)))
    return "  ".join(f"{name} {counts[name]}" for name in ("slow", "ambiguous", "unsupported", "not_run", "waived"))


def _wrap(start: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        width=width,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        max_lines=_MAX_TEXT_LINES,
        placeholder=" …",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _fit(text: str, width: int) -> str:
    line = text.replace("\n", " ").rstrip()
    return line if len(line) <= width else f"{line[: width - 1]}…"
