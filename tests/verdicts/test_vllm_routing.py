# SPDX-License-Identifier: Apache-2.0
"""Each promise of vLLM's selection is broken alone, by answers that are made up."""

from __future__ import annotations

import pytest

from humming_conformance.protocols import Subject
from humming_conformance.verdicts.vllm_routing import RULES, judge_vllm

SUBJECT = Subject("vllm_0_33_0", "moe_indexed-w_int4.g128.bf16-a_bf16-m1.n1536.k2048.e8.top2-random", "h100")


def _served(backend, *warnings):
    return {"backend": backend, "experts": "", "method": "M", "warnings": list(warnings)}


def _refused(kind="ValueError", message="not supported", place="oracle/w4a8.py:73 select"):
    return {"refusal": {"kind": kind, "message": message, "place": place}, "warnings": []}


GOOD = {"auto": _served("MARLIN"), "humming": _served("HUMMING"), "marlin": _served("MARLIN"), "triton": _refused()}


def test_good_answers_pass():
    """A refusal that speaks is as good as service; all answers are kept."""
    verdict = judge_vllm(SUBJECT, GOOD)
    assert (verdict.outcome, verdict.suite) == ("pass", "vllm")
    assert [ruling.rule for ruling in verdict.rulings] == list(RULES)
    assert verdict.evidence["answers"] == GOOD


@pytest.mark.parametrize(
    ("rule", "changes", "told"),
    [
        (
            "auto finds what there is",
            {"auto": _refused(message="no backend")},
            "auto is refused (ValueError: no backend), and humming, marlin would serve it",
        ),
        ("a request is honoured", {"humming": _served("CUTLASS")}, "without a word, humming got CUTLASS"),
        ("a refusal speaks", {"triton": _refused("AssertionError", "", "x.py:71 create")}, "AssertionError at x.py:71"),
        ("a refusal speaks", {"triton": _refused("ValueError", "")}, "ValueError at oracle/w4a8.py:73 select"),
        (
            "no rule of another backend",
            {name: _refused(place="w4a8.py:71 create_weights") for name in GOOD},
            "every request is refused at w4a8.py:71 create_weights",
        ),
    ],
)
def test_each_rule_alone(rule, changes, told):
    """Just this rule fails, and the message shows every answer."""
    verdict = judge_vllm(SUBJECT, {**GOOD, **changes})
    failed = {ruling.rule: ruling.reason for ruling in verdict.rulings if ruling.outcome == "fail"}
    assert list(failed) == [rule]
    assert told in failed[rule]
    assert all(f"  {request}: " in verdict.message for request in GOOD)


@pytest.mark.parametrize(
    "changes",
    [
        {"humming": _served("CUTLASS", "humming can't serve this layer")},
        {name: _refused() for name in GOOD},
    ],
)
def test_what_is_no_fault(changes):
    """A warning is a word; a layer that nothing serves is refused by each backend's own selection."""
    assert judge_vllm(SUBJECT, {**GOOD, **changes}).outcome == "pass"


def test_every_rule_is_broken_above():
    """No rule without its test."""
    (mark,) = test_each_rule_alone.pytestmark
    assert {arguments[0] for arguments in mark.args[1]} == RULES.keys()
