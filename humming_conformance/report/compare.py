# SPDX-License-Identifier: Apache-2.0
"""Two ledgers side by side: what was judged otherwise, and what only one of them holds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from humming_conformance.protocols import Subject, Verdict
from humming_conformance.report.margins import damaged


@dataclass(frozen=True)
class LedgerComparison:
    """The numerics verdicts of two ledgers.

    Attributes:
        both: how many subjects are in both.
        changed: what differs, as texts, by subject.
        only: the subjects that are in the first ledger alone, and in the second.
        margin: the subject whose margin differs most, its margin in either; None where none differs. A kernel
            that isn't repeatable has another margin in every run, so margins are told and don't count.
    """

    both: int
    changed: Mapping[Subject, tuple[str, ...]]
    only: tuple[tuple[Subject, ...], tuple[Subject, ...]]
    margin: tuple[Subject, float, float] | None

    @property
    def identical(self) -> bool:
        """The same subjects, judged alike."""
        return not self.changed and not any(self.only)

    def lines(self, first: str, second: str) -> list[str]:
        """The comparison as text; ``first`` and ``second`` name the ledgers."""
        lines = [f"{self.both} numerics verdicts in both ledgers, {len(self.changed)} of them differ"]
        for subject, differences in self.changed.items():
            lines += [str(subject), *(f"  {difference}" for difference in differences)]
        for name, subjects in zip((first, second), self.only, strict=True):
            if subjects:
                lines += [f"only in {name} ({len(subjects)})", *(f"  {subject}" for subject in subjects)]
        if self.margin is not None:
            subject, before, after = self.margin
            lines.append(f"largest change of a margin: {before:.4g} → {after:.4g} ({subject}); margins don't count")
        return lines


def compare_ledgers(first: Sequence[Verdict], second: Sequence[Verdict]) -> LedgerComparison:
    """Compare numerics verdicts by outcome, number of wrong elements and the outcome of every rule.

    Of several verdicts on one subject the last counts. Verdicts of other suites are left out.

    Raises:
        LedgerError: a margin that is no number; names the subject.
    """
    before, after = _by_subject(first), _by_subject(second)
    both = [subject for subject in before if subject in after]
    changed = {subject: tuple(_differences(before[subject], after[subject])) for subject in both}
    margins = [
        (subject, old, new)
        for subject in both
        for old, new in [(_margin(before[subject]), _margin(after[subject]))]
        if math.isfinite(old) and math.isfinite(new) and old != new
    ]
    return LedgerComparison(
        both=len(both),
        changed={subject: differences for subject, differences in changed.items() if differences},
        only=(
            tuple(subject for subject in before if subject not in after),
            tuple(subject for subject in after if subject not in before),
        ),
        margin=max(margins, key=lambda item: abs(item[1] - item[2]), default=None),
    )


def _by_subject(verdicts: Sequence[Verdict]) -> dict[Subject, Verdict]:
    return {verdict.subject: verdict for verdict in verdicts if verdict.suite == "numerics"}


def _differences(before: Verdict, after: Verdict) -> Iterator[str]:
    if before.outcome != after.outcome:
        yield f"outcome: {before.outcome} → {after.outcome}" + (f" ({after.reason})" if after.reason else "")
    wrong = before.evidence.get("wrong"), after.evidence.get("wrong")
    if wrong[0] != wrong[1]:
        yield "wrong elements: " + " → ".join("not judged" if count is None else str(count) for count in wrong)
    old, new = ({ruling.rule: ruling.outcome for ruling in verdict.rulings} for verdict in (before, after))
    for rule in dict.fromkeys([*old, *new]):
        if old.get(rule) != new.get(rule):
            yield f"rule {rule}: {old.get(rule, 'not ruled on')} → {new.get(rule, 'not ruled on')}"


def _margin(verdict: Verdict) -> float:
    try:
        return float(verdict.evidence.get("margin", math.nan))
    except (TypeError, ValueError) as error:
        raise damaged(verdict, error) from error
