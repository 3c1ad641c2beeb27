# SPDX-License-Identifier: Apache-2.0
"""Counts, requirements and the exit status of a run."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from humming_conformance.ledger.records import SUITES, Mismatch
from humming_conformance.protocols import Verdict

_REQUIREMENT = re.compile(r"(?P<kernel>[^:=]+)(?::(?P<suite>[^:=]+))?(?:=(?P<count>\d+))?")
_MAX_REASONS = 3


class RequirementError(ValueError):
    """A ``--require`` text is not KERNEL[:SUITE][=N], or names nothing known."""


def performance_kind(verdict: Verdict) -> str:
    """``same``, ``fast``, ``slow`` or ``ambiguous`` for a judged timing, else empty."""
    return str(verdict.evidence.get("performance", ""))


def is_judged(verdict: Verdict) -> bool:
    """Whether the kernel ran and was judged: pass, fail, or waived other than by quarantine."""
    return verdict.outcome in ("pass", "fail", "waived") and not verdict.evidence.get("quarantined")


def count_by_kernel_and_suite(verdicts: Iterable[Verdict]) -> dict[tuple[str, str], Counter[str]]:
    """Counts by outcome for each (kernel, suite), in alphabetical order; older paths count by themselves."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for verdict in verdicts:
        counts.setdefault((verdict.subject.heading, verdict.suite), Counter())[verdict.outcome] += 1
    return dict(sorted(counts.items()))


@dataclass(frozen=True)
class Requirement:
    """At least ``count`` subjects of ``kernel`` (in ``suite``, empty: in any) must be judged."""

    kernel: str
    suite: str = ""
    count: int = 1

    def __str__(self) -> str:
        return f"{self.kernel}:{self.suite}" if self.suite else self.kernel

    @classmethod
    def parse(cls, text: str, kernels: Collection[str]) -> Self:
        """Read ``KERNEL[:SUITE][=N]``, N at least 1; raises RequirementError with the nearest valid name."""
        match = _REQUIREMENT.fullmatch(text)
        count = int(match["count"] or 1) if match else 0
        if match is None or count < 1:
            raise RequirementError(
                f"--require {text!r} is not KERNEL[:SUITE][=N] with N at least 1; write for instance "
                "humming:numerics=100"
            )
        kernel, suite = match["kernel"], match["suite"] or ""
        _require_known(text, "kernel", kernel, kernels)
        if suite:
            _require_known(text, "suite", suite, SUITES)
        return cls(kernel, suite, count)

    def check(self, verdicts: Iterable[Verdict]) -> str:
        """Empty when met; else what is lacking and the commonest reasons why."""
        relevant = [
            verdict
            for verdict in verdicts
            if verdict.subject.kernel == self.kernel and self.suite in ("", verdict.suite)
        ]
        judged = sum(map(is_judged, relevant))
        if judged >= self.count:
            return ""
        text = f"{self}: {judged} of {self.count} required judged"
        if not relevant:
            return f"{text}; nothing of it was planned"
        reasons = Counter(
            verdict.reason or f"{verdict.outcome}, no reason given" for verdict in relevant if not is_judged(verdict)
        )
        if not reasons:
            return f"{text}; no more was planned"
        first = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(_MAX_REASONS))
        return f"{text}; first reasons: {first}"


@dataclass(frozen=True)
class ExitStatus:
    """0 or 1, with one line for each thing that makes the run red."""

    code: int
    reasons: tuple[str, ...]


def exit_status(
    verdicts: Sequence[Verdict],
    *,
    mismatches: Sequence[Mismatch] = (),
    unmet: Sequence[str] = (),
    strict_verdicts: bool = False,
) -> ExitStatus:
    """Decide whether the run is red.

    Args:
        verdicts: all verdicts of the run.
        mismatches: where plan and verdicts disagree.
        unmet: what :meth:`Requirement.check` returned for requirements that are not met.
        strict_verdicts: ``slow`` and ``ambiguous`` are red too.
    """
    unexpected = sum(verdict.outcome == "fail" and bool(verdict.waiver) for verdict in verdicts)
    counts = Counter(verdict.outcome for verdict in verdicts)
    found = [
        (counts["fail"] - unexpected, "failed"),
        (counts["error"], "ended in an error"),
        (unexpected, "passed though a waiver says that they fail"),
        (len(mismatches), "accounting mismatches between plan and verdicts"),
    ]
    if strict_verdicts:
        kinds = Counter(map(performance_kind, verdicts))
        found += [(kinds[kind], f"{kind} (--strict-verdicts)") for kind in ("slow", "ambiguous")]
    reasons = [f"{count} {what}" for count, what in found if count]
    reasons += [f"--require {text}" for text in unmet]
    return ExitStatus(int(bool(reasons)), tuple(reasons))


def _require_known(text: str, what: str, name: str, known: Collection[str]) -> None:
    if name in known:
        return
    nearest = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    raise RequirementError(
        f"--require {text!r}: {what} {name!r} is not one of {', '.join(sorted(known)) or 'none'}{hint}"
    )
