# SPDX-License-Identifier: Apache-2.0
"""What waivers do to verdicts."""

import datetime as dt
from collections.abc import Callable
from dataclasses import replace

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from humming_conformance.ledger import Planned, Target, Waiver, apply, quarantined, stale
from humming_conformance.protocols import Outcome, Ruling, Subject, Verdict

SUBJECT = Subject("humming_lib", "moe_indexed-w_int4.g128.bf16-a_bf16-m16.n256.k512.e8.top2-random", "h200")
TARGET = Target(Version("0.1.17"), 90, dt.date(2030, 6, 30))
WAIVER = Waiver(
    query="humming_lib:moe_*-w_int4*:h200",
    reference="HC-001",
    reason="drops the last group",
    kind="tolerate",
    library=SpecifierSet(">=0.1.16,<0.1.20"),
    expires=dt.date(2030, 12, 31),
)
QUARANTINE = replace(WAIVER, kind="quarantine")


def verdict(outcome: Outcome, suite: str = "numerics", **evidence: object) -> Verdict:
    """A verdict on SUBJECT with one ruling."""
    return Verdict(SUBJECT, suite, outcome, "found", rulings=(Ruling("bound", outcome, "found"),), evidence=evidence)


def test_a_tolerated_failure_is_waived() -> None:
    """The outcome becomes `waived`, with the waiver's key and reason, and the original ruling is kept."""
    after = apply([WAIVER], verdict("fail"), TARGET)
    assert after.outcome == "waived"
    assert after.waiver == WAIVER.key == "HC-001 humming_lib:moe_*-w_int4*:h200"
    assert after.reason == f"{WAIVER.key}: drops the last group; found"
    assert [ruling.outcome for ruling in after.rulings] == ["fail", "waived"]


def test_an_unexpected_pass_fails() -> None:
    """A pass under a waiver is a failure that names the waiver and says what to do with it."""
    after = apply([WAIVER], verdict("pass"), TARGET)
    assert after.outcome == "fail"
    assert after.waiver == WAIVER.key
    assert after.reason.startswith("unexpected pass: HC-001")
    assert "remove the waiver" in after.message
    assert after.rulings[-1].outcome == "fail"


@pytest.mark.parametrize(("kind", "outcome"), [("slow", "pass"), ("ambiguous", "pass"), ("same", "fail")])
def test_an_undecided_timing_is_no_unexpected_pass(kind: str, outcome: Outcome) -> None:
    """A known slowdown that measures slow or ambiguous today has not gone away."""
    timing = verdict("pass", "performance", performance=kind)
    assert apply([WAIVER], timing, TARGET).outcome == outcome


@pytest.mark.parametrize("outcome", ["error", "unsupported", "not_run", "waived"])
def test_other_outcomes_stay(outcome: Outcome) -> None:
    """Only failures are tolerated: a crash, a hang or a refusal is something else."""
    assert apply([WAIVER], verdict(outcome), TARGET) == verdict(outcome)


def test_applying_twice_changes_nothing() -> None:
    """A failure that is an unexpected pass is not waived by the same waiver."""
    for outcome in ("pass", "fail"):
        once = apply([WAIVER], verdict(outcome), TARGET)
        assert apply([WAIVER], once, TARGET) == once


@pytest.mark.parametrize(
    "change",
    [
        lambda w: replace(w, query="humming_lib:moe_*-w_int8*:h200"),
        lambda w: replace(w, query="humming_lib:moe_*-W_int4*:h200"),
        lambda w: replace(w, suites=("routing",)),
        lambda w: replace(w, architectures=(80, 89)),
        lambda w: replace(w, library=SpecifierSet(">=0.1.18")),
    ],
    ids=["case", "letter case", "suite", "architecture", "library version"],
)
def test_a_waiver_covers_only_its_scope(change: Callable[[Waiver], Waiver]) -> None:
    """One part of the scope that doesn't fit leaves failure and launch as they are."""
    assert apply([change(WAIVER)], verdict("fail"), TARGET) == verdict("fail")
    assert quarantined([change(QUARANTINE)], Planned("numerics", SUBJECT), TARGET) is None


def test_scopes_that_fit_are_covered() -> None:
    """Suite, architecture and any library version, given and right, cover the subject."""
    fitting = replace(WAIVER, suites=("numerics", "routing"), architectures=(80, 90), library=None)
    assert apply([fitting], verdict("fail"), TARGET).outcome == "waived"


@pytest.mark.parametrize(
    ("version", "covered"),
    [("0.1.15", False), ("0.1.16", True), ("0.1.19.dev3+g12ab", True), ("0.1.20rc1", False), (None, False)],
)
def test_library_versions_decide(version: str | None, covered: bool) -> None:  # noqa: FBT001
    """Bounds are as written, development builds count, and a missing library matches no range."""
    target = replace(TARGET, library_version=Version(version) if version else None)
    assert (apply([WAIVER], verdict("fail"), target).outcome == "waived") is covered


@pytest.mark.parametrize(("today", "outcome"), [(dt.date(2030, 12, 31), "waived"), (dt.date(2031, 1, 1), "fail")])
def test_a_date_is_the_last_day(today: dt.date, outcome: Outcome) -> None:
    """On its date a waiver still holds; the day after, the failure counts and says why."""
    after = apply([WAIVER], verdict("fail"), replace(TARGET, today=today))
    assert after.outcome == outcome
    if outcome == "fail":
        assert after.reason == f"found; waiver {WAIVER.key} expired after 2030-12-31"
        assert after.waiver == ""


def test_a_version_ends_a_waiver() -> None:
    """From the version in `expires` on, the failure counts and says why."""
    waiver = replace(WAIVER, library=SpecifierSet(">=0.1.16"), expires=SpecifierSet(">=0.1.18"))
    assert apply([waiver], verdict("fail"), TARGET).outcome == "waived"
    after = apply([waiver], verdict("fail"), replace(TARGET, library_version=Version("0.1.18")))
    assert after.outcome == "fail"
    assert "expired with library>=0.1.18" in after.reason


def test_an_expired_waiver_leaves_a_pass_alone() -> None:
    """A pass after the waiver's end is a pass, without remarks."""
    assert apply([WAIVER], verdict("pass"), replace(TARGET, today=dt.date(2031, 1, 1))) == verdict("pass")


def test_a_quarantined_subject_is_not_launched() -> None:
    """It gets a `waived` verdict that says so, until its expiry; `tolerate` never stops a launch."""
    planned = Planned("numerics", SUBJECT)
    found = quarantined([WAIVER, QUARANTINE], planned, TARGET)
    assert found is not None
    assert (found.outcome, found.subject, found.suite) == ("waived", SUBJECT, "numerics")
    assert found.reason == f"not launched, quarantined by {QUARANTINE.key}: drops the last group"
    assert found.evidence == {"quarantined": True}
    assert quarantined([WAIVER], planned, TARGET) is None
    assert quarantined([QUARANTINE], planned, replace(TARGET, today=dt.date(2031, 1, 1))) is None


def test_the_end_of_a_quarantine_explains_an_error() -> None:
    """A crash that comes back when its quarantine has expired names the quarantine."""
    after = apply([QUARANTINE], verdict("error"), replace(TARGET, today=dt.date(2031, 1, 1)))
    assert after.outcome == "error"
    assert "HC-001" in after.reason


def test_stale_waivers_match_nothing_that_was_planned() -> None:
    """A waiver is stale when its kernel and suite were planned and none of the subjects matches."""
    plan = [Planned("numerics", SUBJECT)]
    typo = replace(WAIVER, query="humming_lib:moe_*-w_int5*:h200")
    elsewhere = [replace(typo, query="qdq:*:cpu"), replace(typo, suites=("routing",))]
    other_version = replace(WAIVER, library=SpecifierSet(">=9"))
    assert stale([WAIVER, typo, *elsewhere, other_version], plan) == (typo,)
