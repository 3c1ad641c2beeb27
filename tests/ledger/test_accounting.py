# SPDX-License-Identifier: Apache-2.0
"""Counts, requirements, and what makes a run red."""

import pytest

from humming_conformance.ledger import (
    Mismatch,
    Planned,
    Requirement,
    RequirementError,
    count_by_kernel_and_suite,
    exit_status,
    is_judged,
)
from humming_conformance.protocols import Outcome, Subject, Verdict

KERNELS = ("humming_lib", "qdq", "triton_fused")


def verdict(
    outcome: Outcome,
    reason: str = "",
    *,
    kernel: str = "qdq",
    suite: str = "numerics",
    waiver: str = "",
    **evidence: object,
) -> Verdict:
    """A verdict on one fixed case."""
    return Verdict(Subject(kernel, "c", "cpu"), suite, outcome, reason, evidence=evidence, waiver=waiver)


def test_counts_are_kept_apart_by_kernel_and_suite() -> None:
    """The same outcome in another suite or of another kernel is counted in its own cell."""
    counts = count_by_kernel_and_suite(
        [
            verdict("pass"),
            verdict("pass"),
            verdict("fail", suite="routing"),
            verdict("error", kernel="triton_fused"),
        ]
    )
    assert counts == {
        ("qdq", "numerics"): {"pass": 2},
        ("qdq", "routing"): {"fail": 1},
        ("triton_fused", "numerics"): {"error": 1},
    }


def test_an_older_path_is_counted_by_itself() -> None:
    """Its verdicts stand under its device, beside those of the kernel's best one."""
    subjects = [Subject("humming", "c", device) for device in ("h200", "sm_80_on_sm_90", "sm_80_on_sm_90")]
    counts = count_by_kernel_and_suite([Verdict(subject, "numerics", "pass") for subject in subjects])
    assert counts == {
        ("humming", "numerics"): {"pass": 1},
        ("humming on sm_80_on_sm_90", "numerics"): {"pass": 2},
    }


@pytest.mark.parametrize(
    ("one", "judged"),
    [
        (verdict("pass"), True),
        (verdict("fail"), True),
        (verdict("waived"), True),
        (verdict("waived", quarantined=True), False),
        (verdict("error"), False),
        (verdict("unsupported"), False),
        (verdict("not_run"), False),
    ],
)
def test_judged_means_that_the_kernel_ran(one: Verdict, judged: bool) -> None:  # noqa: FBT001
    """Pass, fail and waived count as judged; a quarantined subject was not launched and doesn't."""
    assert is_judged(one) is judged


@pytest.mark.parametrize("outcome", ["pass", "unsupported", "waived", "not_run"])
def test_these_outcomes_alone_are_green(outcome: Outcome) -> None:
    """Outcomes that are only counted leave the status at 0."""
    assert exit_status([verdict("pass"), verdict(outcome)]).code == 0


def test_slow_and_ambiguous_are_red_only_when_strict() -> None:
    """`--strict-verdicts` turns the two kinds of pass red, each with its own line."""
    verdicts = [verdict("pass", performance=kind) for kind in ("slow", "ambiguous", "same", "fast")]
    assert exit_status(verdicts).code == 0
    strict = exit_status(verdicts, strict_verdicts=True)
    assert strict.code == 1
    assert strict.reasons == ("1 slow (--strict-verdicts)", "1 ambiguous (--strict-verdicts)")
    assert exit_status(verdicts[2:], strict_verdicts=True).code == 0


@pytest.mark.parametrize(
    ("verdicts", "options", "reason"),
    [
        ([verdict("fail")], {}, "1 failed"),
        ([verdict("error")], {}, "1 ended in an error"),
        ([verdict("fail", waiver="HC-001 q")], {}, "1 passed though a waiver says that they fail"),
        (
            [],
            {"mismatches": [Mismatch(Planned("numerics", Subject("a", "b", "c")), "twice")]},
            "1 accounting mismatches between plan and verdicts",
        ),
        ([], {"unmet": ["qdq: 0 of 1 required judged"]}, "--require qdq: 0 of 1 required judged"),
    ],
)
def test_each_cause_of_red_is_named_alone(verdicts: list[Verdict], options: dict[str, list[str]], reason: str) -> None:
    """Each cause alone makes the run red with exactly its own line."""
    status = exit_status([verdict("pass"), *verdicts], **options)  # type: ignore[arg-type]
    assert (status.code, status.reasons) == (1, (reason,))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("qdq", Requirement("qdq", "", 1)),
        ("qdq=12", Requirement("qdq", "", 12)),
        ("qdq:routing", Requirement("qdq", "routing", 1)),
        ("humming_lib:numerics=100", Requirement("humming_lib", "numerics", 100)),
    ],
)
def test_a_requirement_is_kernel_suite_and_number(text: str, expected: Requirement) -> None:
    """Suite and number may be left out."""
    assert Requirement.parse(text, KERNELS) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"'' is not KERNEL\[:SUITE\]\[=N\]"),
        ("qdq=", "is not KERNEL"),
        ("qdq=0", "N at least 1"),
        ("qdq=-3", "is not KERNEL"),
        ("qdq:=3", "is not KERNEL"),
        ("qdq:numerics:cpu", "is not KERNEL"),
        ("huming_lib", "kernel 'huming_lib' is not one of .*did you mean humming_lib"),
        ("qdq:numeric", "suite 'numeric' is not one of .*did you mean numerics"),
        ("zzz", "kernel 'zzz' is not one of humming_lib, qdq, triton_fused$"),
    ],
)
def test_a_bad_requirement_says_what_is_wrong(text: str, message: str) -> None:
    """Bad text shows the form; an unknown name shows the known ones and the nearest."""
    with pytest.raises(RequirementError, match=message):
        Requirement.parse(text, KERNELS)


def test_a_requirement_counts_what_was_judged_in_its_suite() -> None:
    """Only judged verdicts of the kernel and suite count, and N of them meet it."""
    verdicts = [verdict("pass"), verdict("fail"), verdict("error", "boom"), verdict("pass", suite="routing")]
    assert Requirement("qdq", "numerics", 2).check(verdicts) == ""
    assert Requirement("qdq", "", 3).check(verdicts) == ""
    assert Requirement("qdq", "numerics", 3).check(verdicts) == (
        "qdq:numerics: 2 of 3 required judged; first reasons: boom (1)"
    )


def test_an_unmet_requirement_gives_the_commonest_reasons() -> None:
    """The three commonest reasons are shown with their counts, most frequent first."""
    reasons = ["no CUDA GPU"] * 4 + ["rare"] + ["library missing"] * 3 + ["old driver"] * 2
    verdicts = [verdict("not_run", reason, kernel="humming_lib") for reason in reasons]
    assert Requirement("humming_lib").check(verdicts) == (
        "humming_lib: 0 of 1 required judged; first reasons: no CUDA GPU (4); library missing (3); old driver (2)"
    )


def test_a_requirement_on_what_was_not_planned_says_so() -> None:
    """Nothing planned, and all that was planned judged but too few, are told apart."""
    assert Requirement("humming_lib").check([verdict("pass")]).endswith("nothing of it was planned")
    assert Requirement("qdq", "", 2).check([verdict("pass")]).endswith("1 of 2 required judged; no more was planned")
