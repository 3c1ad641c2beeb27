# SPDX-License-Identifier: Apache-2.0
"""Waivers: known failures, each with its issue or finding, its scope, and when it ends."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from humming_conformance.ledger.accounting import performance_kind
from humming_conformance.ledger.records import Planned
from humming_conformance.protocols import Ruling, Verdict


@dataclass(frozen=True)
class Target:
    """What the subjects of one kernel are judged on: decides scope and expiry of waivers.

    ``library_version`` is None for a kernel without a library; ``sm`` is 90 for sm_90 and 0 for CPUs.
    """

    library_version: Version | None
    sm: int
    today: dt.date


@dataclass(frozen=True)
class Waiver:
    """One entry of a waiver file; docs/waivers.md explains the keys.

    ``library`` None: any version. ``expires`` is the last day it holds, or the versions that end it.
    """

    query: str
    reference: str
    reason: str
    kind: Literal["tolerate", "quarantine"]
    library: SpecifierSet | None
    expires: dt.date | SpecifierSet
    suites: tuple[str, ...] = ()
    architectures: tuple[int, ...] = ()

    @property
    def key(self) -> str:
        """How verdicts and reports name it."""
        return f"{self.reference} {self.query}"

    @property
    def kernel(self) -> str:
        """The kernel that it is about."""
        return self.query.partition(":")[0]

    def matches(self, planned: Planned) -> bool:
        """Whether suite and subject are what it is about, on any version and architecture."""
        return (not self.suites or planned.suite in self.suites) and fnmatchcase(str(planned.subject), self.query)

    def covers(self, planned: Planned, target: Target) -> bool:
        """Whether it is about this subject on this library version and architecture, expired or not."""
        if not self.matches(planned) or (self.architectures and target.sm not in self.architectures):
            return False
        return self.library is None or _holds(self.library, target.library_version)

    def expired(self, target: Target) -> str:
        """Empty while it holds, else since when it doesn't."""
        if isinstance(self.expires, dt.date):
            return f"expired after {self.expires}" if target.today > self.expires else ""
        return f"expired with library{self.expires}" if _holds(self.expires, target.library_version) else ""


def apply(waivers: Iterable[Waiver], verdict: Verdict, target: Target) -> Verdict:
    """The verdict after waivers of kind ``tolerate``.

    A failure becomes ``waived``. A pass becomes ``fail``: the waiver is to be removed; a timing that is
    ``slow`` or ``ambiguous`` does not count as a pass here. An expired waiver changes nothing, but the reason
    of a failure names it. A verdict that a waiver has touched already stays as it is.
    """
    if verdict.waiver or verdict.outcome not in ("pass", "fail", "error"):
        return verdict
    planned = Planned(verdict.suite, verdict.subject)
    covering = [waiver for waiver in waivers if waiver.covers(planned, target)]
    active = next((item for item in covering if item.kind == "tolerate" and not item.expired(target)), None)
    if active is not None and verdict.outcome == "fail":
        return _ruled(verdict, Ruling("waiver", "waived", f"{active.key}: {active.reason}"), active)
    if active is not None and verdict.outcome == "pass" and performance_kind(verdict) not in ("slow", "ambiguous"):
        reason = f"unexpected pass: {active.key} says that this fails; remove the waiver or narrow it"
        return _ruled(verdict, Ruling("waiver", "fail", reason), active)
    expired = [f"waiver {item.key} {item.expired(target)}" for item in covering if item.expired(target)]
    if expired and verdict.outcome != "pass":
        return replace(verdict, reason="; ".join(filter(None, [verdict.reason, *expired])))
    return verdict


def quarantined(waivers: Iterable[Waiver], planned: Planned, target: Target) -> Verdict | None:
    """The ``waived`` verdict of a subject that must not be launched, or None to launch it."""
    for waiver in waivers:
        if waiver.kind == "quarantine" and waiver.covers(planned, target) and not waiver.expired(target):
            reason = f"not launched, quarantined by {waiver.key}: {waiver.reason}"
            return Verdict(
                planned.subject,
                planned.suite,
                "waived",
                reason=reason,
                rulings=(Ruling("waiver", "waived", reason),),
                evidence={"quarantined": True},
                waiver=waiver.key,
            )
    return None


def stale(waivers: Iterable[Waiver], plan: Sequence[Planned]) -> tuple[Waiver, ...]:
    """Waivers that match nothing planned, though their kernel was planned in a suite that they are about."""
    planned_suites = {(item.subject.kernel, item.suite) for item in plan}
    return tuple(
        waiver
        for waiver in waivers
        if any(
            kernel == waiver.kernel and (not waiver.suites or suite in waiver.suites)
            for kernel, suite in planned_suites
        )
        and not any(map(waiver.matches, plan))
    )


def _ruled(verdict: Verdict, ruling: Ruling, waiver: Waiver) -> Verdict:
    reason = "; ".join(filter(None, [ruling.reason, verdict.reason]))
    return replace(
        verdict,
        outcome=ruling.outcome,
        reason=reason,
        message=verdict.message or reason,
        rulings=(*verdict.rulings, ruling),
        waiver=waiver.key,
    )


def _holds(versions: SpecifierSet, version: Version | None) -> bool:
    # A prerelease or a development build is judged like the release it leads to.
    return version is not None and versions.contains(version, prereleases=True)
