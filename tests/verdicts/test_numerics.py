# SPDX-License-Identifier: Apache-2.0
"""The numerics verdict, from evidence made by hand: the reference itself, and then one thing wrong at a time."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from humming_conformance.formats import element_format
from humming_conformance.ledger import as_read
from humming_conformance.oracle import Contract, reference, round_output
from humming_conformance.problems import build_operands, parse_case
from humming_conformance.protocols import Route, Subject
from humming_conformance.verdicts import NumericsEvidence, judge_numerics, numerics

RANDOM = "dense-w_int8.channel.bf16-a_bf16-m2.n8.k32-random"
READOUT = "dense-w_int8.channel.bf16-a_bf16-m2.n8.k32-readout"
MOE = "moe_indexed-w_int4.g32.bf16-a_bf16-m4.n32.k64.e4.top2-random"


def evidence(case_id, **changes):
    """What a perfect kernel brings back."""
    case = parse_case(case_id)
    operands = build_operands(case)
    contract = Contract(case.output)
    exact = reference(case, operands, contract)
    values = round_output(case, contract, exact.product, exact.bias, exact.output_scale)
    perfect = NumericsEvidence(
        output=element_format(case.output).encode(values).astype(np.uint16),
        digest=operands.digest(),
        route=Route("by hand", activation_format=case.activation.element),
        contract=contract,
        seconds={"run": 0.5},
    )
    return replace(perfect, **changes)


def judged(case_id, found):
    """The verdict, and the outcome of each of its rules."""
    verdict = judge_numerics(Subject("mine", case_id, "cpu"), parse_case(case_id), found)
    rulings = {ruling.rule: ruling.outcome for ruling in verdict.rulings}
    assert json.loads(json.dumps(as_read(verdict.evidence), allow_nan=False)) is not None
    return verdict, rulings


def changed(codes, place, value):
    """A copy of codes with one of them changed."""
    copy = codes.copy()
    copy[place] = value
    return copy


@pytest.mark.parametrize("case_id", [RANDOM, READOUT, MOE])
def test_the_reference_passes(case_id):
    """Every rule is ruled on, none fails, and what was measured is kept."""
    found = evidence(case_id)
    first, same = found.output[:1], (found.output, found.output)
    fewer = (first[:, : parse_case(case_id).problem.top_k],)
    verdict, rulings = judged(case_id, replace(found, repeat=first, fewer=fewer, replayed=same, concurrent=same))
    assert (verdict.outcome, verdict.reason, verdict.message) == ("pass", "", "")
    assert set(rulings.values()) == {"pass"}
    exact = case_id == READOUT
    assert {"owned memory", "quality floor", "activation format", "repeatable", "batch-invariant"} <= rulings.keys()
    assert {"replayed", "concurrent"} <= rulings.keys()
    assert ("exact" in rulings, "bound" in rulings) == (exact, not exact)
    assert ("reference" in rulings) == (not exact)
    measured = verdict.evidence
    assert measured["digest"] == found.digest
    assert measured["exact"] is exact
    assert (measured["elements"], measured["wrong"]) == (found.output.size, 0)
    assert 0 <= measured["margin"] <= 1
    assert measured["route"]["path"] == "by hand"
    assert measured["contract_fields"]["output_format"] == "bf16"
    assert measured["seconds"] == {"run": 0.5}


@pytest.mark.parametrize(("case_id", "rule"), [(RANDOM, "bound"), (READOUT, "exact"), (MOE, "bound")])
@pytest.mark.parametrize("code", [0x4BBB, 0x7FE5], ids=["far off", "nan"])
def test_a_wrong_element(case_id, rule, code):
    """One element far off, or one that was never written, fails the case and is named."""
    found = evidence(case_id)
    verdict, rulings = judged(case_id, replace(found, output=changed(found.output, (0, 1, 3), code)))
    assert verdict.outcome == "fail"
    assert rulings[rule] == "fail"
    assert f"1 of {found.output.size} elements" in verdict.reason
    assert "launch 0, row 1, column 3" in verdict.message
    first = verdict.evidence["first"]
    assert (first["launch"], first["row"], first["column"]) == (0, 1, 3)
    assert (first["token"], first["slot"]) == ((0, 1) if case_id == MOE else (1, 0))
    assert verdict.evidence["fault_class"]


def test_an_error_below_one_rounding_passes_only_the_bound():
    """A neighbour of the rounded result breaks equality; the bound takes it only if the contract's terms reach it."""
    found = evidence(READOUT)
    place = tuple(np.argwhere(found.output[..., :] & 0x7FFF)[0])
    verdict, _ = judged(READOUT, replace(found, output=changed(found.output, place, found.output[place] + 1)))
    assert verdict.outcome == "fail"
    assert "must be equal" in verdict.message
    assert verdict.evidence["margin"] in (float("inf"), "Infinity")


def test_writes_outside_the_output():
    """Trouble with memory fails a case whose numbers are right, and is its fault class."""
    sentence = "launch 0: 3 elements written behind the output"
    verdict, rulings = judged(RANDOM, evidence(RANDOM, trouble=(sentence,)))
    assert (verdict.outcome, rulings["owned memory"], rulings["bound"]) == ("fail", "fail", "pass")
    assert sentence in verdict.reason
    assert verdict.evidence["fault_class"] == "unowned write"


@pytest.mark.parametrize(
    ("relation", "rule", "words"),
    [
        ("repeat", "repeatable", "the same launch again differs in 1 elements"),
        ("fewer", "batch-invariant", "the first 1 tokens alone differ in 1 elements"),
        ("replayed", "replayed", "another replay of the same graph differs in 1 elements"),
        ("concurrent", "concurrent", "a launch at the same time differs in 1 elements"),
    ],
)
def test_a_broken_relation(relation, rule, words):
    """One bit of difference breaks a promise of the contract, though both results are within the bound."""
    found = evidence(RANDOM)
    other = found.output[:1, :1] if relation == "fewer" else found.output[:1]
    differing = changed(other, (0, 0, 5), other[0, 0, 5] ^ 1)
    given = {"repeat": differing, "fewer": (differing,)}.get(relation, (other, differing))
    verdict, rulings = judged(RANDOM, replace(found, **{relation: given}))
    assert verdict.outcome == "fail"
    assert {name for name, outcome in rulings.items() if outcome == "fail"} == {rule}
    assert f"{words}, against the contract" in verdict.reason
    assert verdict.evidence["fault_class"] == "race"


def test_batches_of_several_sizes():
    """Each number of tokens that differs is named, in MoE by tokens and not by rows."""
    found = evidence(MOE)
    fewer = [changed(found.output[:1, :rows], (0, 0, 5), 0) for rows in (2, 4)]
    verdict, _ = judged(MOE, replace(found, fewer=(fewer[0], found.output[:1, :4])))
    assert "the first 1 tokens alone differ" in verdict.reason
    verdict, _ = judged(MOE, replace(found, fewer=(found.output[:1, :2], fewer[1])))
    assert "the first 2 tokens alone differ" in verdict.reason
    assert "first 1 tokens" not in verdict.reason


UNREPEATABLE = Contract("bf16", repeatable=False, sources={"repeatable": "its documentation"})


@pytest.mark.parametrize("rule", ["replayed", "concurrent"])
def test_an_unrepeatable_kernel_may_differ_within_the_bound(rule):
    """Other runs of such a kernel are judged as its output is: the bound decides, and the worst of them."""
    found = evidence(RANDOM, contract=UNREPEATABLE)
    near = changed(found.output, (0, 0, 5), found.output[0, 0, 5] ^ 1)
    far = changed(found.output, (0, 1, 3), 0x4BBB)
    declared = replace(
        UNREPEATABLE,
        split_k=8,
        reduction_format="bf16",
        sources=dict.fromkeys(("repeatable", "split_k", "reduction_format"), "its documentation"),
    )
    _, rulings = judged(RANDOM, replace(found, contract=declared, **{rule: (near,)}))
    assert rulings[rule] == "pass"
    verdict, rulings = judged(RANDOM, replace(found, **{rule: (found.output, far, found.output)}))
    assert {name for name, outcome in rulings.items() if outcome == "fail"} == {rule}
    assert "1 of 16 elements lie outside the contract's bound" in verdict.reason
    assert verdict.evidence["fault_class"] == "race"


def test_an_unrepeatable_kernel_that_is_wrong_anyway_is_no_race():
    """Where the output is wrong, another run that is wrong tells nothing about replays or concurrency."""
    found = evidence(RANDOM, contract=UNREPEATABLE)
    wrong = changed(found.output, (0, 1, 3), 0x4BBB)
    verdict, rulings = judged(RANDOM, replace(found, output=wrong, replayed=(wrong,)))
    assert {name for name, outcome in rulings.items() if outcome == "fail"} >= {"bound"}
    assert rulings["replayed"] == "pass"
    assert verdict.evidence["fault_class"] != "race"


def test_batch_invariance_that_was_asked_for_must_be_promised():
    """A contract that doesn't promise what the call asks for fails, whatever the bits."""
    case_id = RANDOM.replace("-random", "-call_batch_invariant-random")
    weaker = Contract("bf16", batch_invariant=False, sources={"batch_invariant": "its documentation"})
    verdict, rulings = judged(case_id, evidence(case_id, contract=weaker))
    assert {name for name, outcome in rulings.items() if outcome == "fail"} == {"batch-invariant"}
    assert "were asked for, and are not promised" in verdict.reason
    assert judged(case_id, evidence(case_id))[0].outcome == "pass"


def test_other_operands_judge_nothing():
    """A kernel process that built other operands is an error, whatever its output."""
    verdict, rulings = judged(RANDOM, evidence(RANDOM, digest="f" * 64))
    assert (verdict.outcome, rulings) == ("error", {"operands": "error"})
    assert "f" * 12 in verdict.reason
    assert build_operands(parse_case(RANDOM)).digest()[:12] in verdict.reason


def test_activations_in_another_format():
    """Right numbers by another precision of the activations fail, unless the contract declares that rounding."""
    route = Route("by hand", activation_format="fp8_e4m3")
    verdict, rulings = judged(RANDOM, evidence(RANDOM, route=route))
    assert {name for name, outcome in rulings.items() if outcome == "fail"} == {"activation format"}
    assert "executed as fp8_e4m3, not as bf16" in verdict.reason
    assert verdict.evidence["fault_class"] == "route"
    declared = Contract("bf16", activation_input="fp8_e4m3", sources={"activation_input": "its documentation"})
    _, rulings = judged(RANDOM, evidence(RANDOM, route=route, contract=declared))
    assert rulings["activation format"] == "pass"


def test_a_reference_that_is_off_judges_nothing(monkeypatch):
    """Where the judge's own spot check disagrees, the verdict is an error, not a pass."""
    monkeypatch.setattr(numerics, "spot_check", lambda *_: 7.0)
    verdict, rulings = judged(RANDOM, evidence(RANDOM))
    assert verdict.outcome == "error"
    assert rulings["reference"] == "error"
    assert "off by 7 times" in verdict.reason


def test_the_worst_rule_decides():
    """An error outweighs failures, and every rule that failed is in the reason."""
    found = evidence(RANDOM, trouble=("launch 0: a row was written",), route=Route("x", activation_format="int8"))
    verdict, _ = judged(RANDOM, replace(found, output=changed(found.output, (0, 0, 0), 0x4BBB)))
    assert verdict.outcome == "fail"
    assert all(words in verdict.reason for words in ("a row was written", "1 of 16", "executed as int8"))
    assert verdict.evidence["fault_class"] == "unowned write"


def test_output_of_another_shape_is_refused():
    """Evidence that doesn't fit the case is no verdict of this function."""
    found = evidence(RANDOM)
    with pytest.raises(ValueError, match=r"output has shape \(1, 1, 8\)"):
        judge_numerics(Subject("mine", RANDOM, "cpu"), parse_case(RANDOM), replace(found, output=found.output[:, :1]))


def test_what_was_never_written_fails_even_where_nan_is_right():
    """The output is filled with a NaN, which no comparison tells from a NaN that was computed."""
    verdict, rulings = judged(RANDOM, evidence(RANDOM, unwritten=3))
    assert verdict.outcome == "fail"
    assert rulings["all written"] == "fail"
    assert verdict.reason == "3 elements were never written"
