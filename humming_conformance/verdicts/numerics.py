# SPDX-License-Identifier: Apache-2.0
"""The numerics question: every output element right, within what the kernel's declared arithmetic allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from humming_conformance.oracle import (
    Comparison,
    Diagnosis,
    compare,
    diagnose,
    differing_bits,
    is_exact,
    judged_region,
    reference,
    spot_check,
)
from humming_conformance.oracle.contract import Contract
from humming_conformance.problems import REGIMES, Case, Operands, build_operands
from humming_conformance.protocols import Outcome, Route, Ruling, Subject, Verdict
from humming_conformance.verdicts.failure import failure_text

Codes = NDArray[np.uint16]

#: Where the comparison shows nothing, what a failed rule says by itself.
_TOLD_BY_RULE = (
    ("all written", Diagnosis("tail", ("what was not written was to be NaN, so no comparison shows it",))),
    ("activation format", Diagnosis("route", ())),
    ("repeatable", Diagnosis("race", ())),
    ("batch-invariant", Diagnosis("race", ())),
    ("replayed", Diagnosis("race", ())),
    ("concurrent", Diagnosis("race", ())),
)
#: Worst first: the outcome of a verdict is that of its worst ruling.
_SEVERITY: tuple[Outcome, ...] = ("error", "fail", "pass")


@dataclass(frozen=True, eq=False)
class NumericsEvidence:
    """What a kernel process brought back for a case.

    Attributes:
        output: (L, rows, N) codes of the output format.
        digest: of the operands as the kernel process built them.
        route, contract: as the adapter reports them.
        unwritten: elements of the owned rows that still hold what the output was filled with.
        trouble: what was written outside the owned rows, as sentences.
        repeat: (1, rows, N) codes of the first launch run again, or None.
        fewer: codes (1, rows, N) of the first launch's first tokens as problems of their own.
        replayed: (L, rows, N) codes of earlier replays of the CUDA graphs that ``output`` is of.
        concurrent: (L, rows, N) codes of launches that ran beside those of ``output``.
        seconds: of prepare and run.
    """

    output: Codes
    digest: str
    route: Route
    contract: Contract
    unwritten: int = 0
    trouble: tuple[str, ...] = ()
    repeat: Codes | None = None
    fewer: tuple[Codes, ...] = ()
    replayed: tuple[Codes, ...] = ()
    concurrent: tuple[Codes, ...] = ()
    seconds: Mapping[str, float] | None = None


def judge_numerics(subject: Subject, case: Case, evidence: NumericsEvidence) -> Verdict:
    """Judge one case.

    The rules: the same operands on both sides, owned memory only, the bound or equality, the quality floor, the
    executed activation format, what the contract declares about repeats and batches, and the same result by every
    replay and beside other launches.
    """
    operands = build_operands(case)
    if operands.digest() != evidence.digest:
        reason = f"operands differ: built here {operands.digest()[:12]}, in the kernel process {evidence.digest[:12]}"
        return Verdict(subject, "numerics", "error", reason, reason, (Ruling("operands", "error", reason),))
    contract = evidence.contract
    regime = REGIMES[case.regime]
    exact = is_exact(contract, regime.exact_bits)
    region = judged_region(case, operands)

    def compared(output: Codes) -> Comparison:
        return compare(case, operands, contract, output, exact=exact, region=region, floor=regime.has_floor)

    comparison = compared(evidence.output)
    rulings = [
        _ruling("owned memory", "; ".join(evidence.trouble[:3])),
        _ruling("all written", f"{evidence.unwritten} elements were never written" if evidence.unwritten else ""),
        _ruling("exact" if exact else "bound", _wrong_text(comparison)),
        _ruling("quality floor", _quality_text(comparison)),
        _ruling("activation format", _route_text(case, evidence.route, contract)),
        *_relations(case, evidence),
        *_other_runs(evidence, comparison, compared),
    ]
    if case.regime == "random":
        rulings.append(_reference_ruling(case, operands, contract, comparison))
    outcome = min((ruling.outcome for ruling in rulings), key=_SEVERITY.index)
    failed = [ruling for ruling in rulings if ruling.outcome != "pass"]
    diagnosis = _diagnosis(case, operands, comparison, evidence, failed)
    measured: dict[str, Any] = {
        "digest": evidence.digest,
        "contract": contract.text(),
        "contract_fields": asdict(contract),
        "route": asdict(evidence.route),
        "margin": comparison.margin,
        "margin_before_rounding": comparison.margin_before_rounding,
        "quality": None if comparison.quality is None else asdict(comparison.quality),
        "exact": exact,
        "elements": comparison.total,
        "wrong": comparison.wrong_count,
        "seconds": dict(evidence.seconds or {}),
    }
    if comparison.first is not None:
        measured["first"] = asdict(comparison.first)
    if diagnosis is not None:
        measured["fault_class"] = diagnosis.fault_class
    return Verdict(
        subject,
        "numerics",
        outcome,
        "; ".join(ruling.reason for ruling in failed),
        _message(subject, comparison, diagnosis, evidence, failed) if failed else "",
        tuple(rulings),
        measured,
    )


def _ruling(rule: str, trouble: str) -> Ruling:
    return Ruling(rule, "fail" if trouble else "pass", trouble)


def _wrong_text(comparison: Comparison) -> str:
    if not comparison.wrong_count:
        return ""
    what = "differ from the exact result" if comparison.exact else "lie outside the contract's bound"
    return f"{comparison.wrong_count} of {comparison.total} elements {what}"


def _quality_text(comparison: Comparison) -> str:
    quality = comparison.quality
    if quality is None or quality.passed:
        return ""
    return f"error in norm {quality.error:.3g} is above twice that of QDQ ({quality.limit:.3g})"


def _route_text(case: Case, route: Route, contract: Contract) -> str:
    """A declared and sourced rounding of the activations (QDQ's) is judged by the bound, not here."""
    executed = route.activation_format
    if executed in ("", case.activation.element, contract.activation_input):
        return ""
    return f"activations were executed as {executed}, not as {case.activation.element}"


def _relations(case: Case, evidence: NumericsEvidence) -> Iterator[Ruling]:
    """What the contract declares: equal bits of repeats, and of tokens whatever the batch."""
    first = evidence.output[:1]
    if evidence.repeat is not None:
        differing = len(differing_bits(first, evidence.repeat))
        trouble = f"the same launch again differs in {differing} elements, against the contract" if differing else ""
        yield _ruling("repeatable", trouble)
    if "batch_invariant" in case.call and not evidence.contract.batch_invariant:
        yield _ruling("batch-invariant", "bits that don't depend on the batch were asked for, and are not promised")
    elif evidence.fewer:
        differences = [
            f"the first {few.shape[1] // case.problem.top_k} tokens alone differ in {differing} elements, "
            "against the contract"
            for few in evidence.fewer
            if (differing := len(differing_bits(first[:, : few.shape[1]], few)))
        ]
        yield _ruling("batch-invariant", "; ".join(differences))


def _other_runs(
    evidence: NumericsEvidence, comparison: Comparison, compared: Callable[[Codes], Comparison]
) -> Iterator[Ruling]:
    """Replays and launches side by side: the same bits where the contract says repeatable, else judged like the output.

    Where the output itself is wrong, another one that is no better says nothing.
    """
    for rule, runs, what in (
        ("replayed", evidence.replayed, "another replay of the same graph"),
        ("concurrent", evidence.concurrent, "a launch at the same time"),
    ):
        if not runs:
            continue
        trouble = ""
        if evidence.contract.repeatable:
            differing = max(len(differing_bits(evidence.output, run)) for run in runs)
            trouble = f"{what} differs in {differing} elements, against the contract" if differing else ""
        elif comparison.passed:
            worst = max((compared(run) for run in runs), key=lambda other: (other.wrong_count, not other.passed))
            found = _wrong_text(worst) or _quality_text(worst)
            trouble = f"{what}: {found}" if found else ""
        yield _ruling(rule, trouble)


def _reference_ruling(case: Case, operands: Operands, contract: Contract, comparison: Comparison) -> Ruling:
    """The judge checks itself: a reference that disagrees with element-by-element sums judges nothing."""
    off = spot_check(case, operands, contract, reference(case, operands, contract, comparison.region))
    if off <= 1:
        return Ruling("reference", "pass", "")
    return Ruling(
        "reference",
        "error",
        f"the reference is off by {off:.3g} times what fp64 allows: a fault of the judge",
    )


def _diagnosis(
    case: Case, operands: Operands, comparison: Comparison, evidence: NumericsEvidence, failed: list[Ruling]
) -> Diagnosis | None:
    """The likely fault class: what the rules say where they say it, else what the wrong elements look like."""
    rules = {ruling.rule for ruling in failed}
    if not rules:
        return None
    if "owned memory" in rules:
        return Diagnosis("unowned write", evidence.trouble)
    if comparison.wrong_count and not rules & {"replayed", "concurrent"}:
        return diagnose(case, operands, comparison)
    told = (diagnosis for rule, diagnosis in _TOLD_BY_RULE if rule in rules)
    return next(told, Diagnosis("precision", ()))


def _message(
    subject: Subject,
    comparison: Comparison,
    diagnosis: Diagnosis | None,
    evidence: NumericsEvidence,
    failed: list[Ruling],
) -> str:
    route = evidence.route
    words = [
        route.path,
        route.mma_class,
        f"tile {route.tile}" if route.tile else "",
        f"split_k {route.split_k}",
    ]
    return failure_text(
        subject,
        first=comparison.first,
        wrong=comparison.wrong_count,
        total=comparison.total,
        where=diagnosis.sentences if diagnosis else (),
        fault_class=diagnosis.fault_class if diagnosis else "",
        reasons=[f"{ruling.rule}: {ruling.reason}" for ruling in failed],
        route=", ".join(filter(None, words)),
        contract=evidence.contract.text(),
    )
