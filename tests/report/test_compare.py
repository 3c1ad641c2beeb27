# SPDX-License-Identifier: Apache-2.0
"""Two ledgers compared: what makes them differ, and what doesn't."""

from __future__ import annotations

from dataclasses import replace

import pytest

from humming_conformance.protocols import Ruling, Subject, Verdict
from humming_conformance.report import compare_ledgers


def verdict(name, outcome="pass", **evidence):
    """A numerics verdict of a kernel of this name."""
    rulings = (Ruling("owned memory", "pass", ""), Ruling("bound", outcome, ""))
    return Verdict(Subject(name, "case", "h200"), "numerics", outcome, rulings=rulings, evidence=evidence)


RIGHT = verdict("right", wrong=0, margin=0.25)
OTHER = verdict("other", wrong=0, margin="inf")


def test_equal_verdicts_are_identical():
    """Order, times, reasons and margins don't count; the largest change of a margin is told."""
    again = [OTHER, replace(RIGHT, reason="another text", evidence={"wrong": 0, "margin": 0.5, "seconds": {"run": 1}})]
    comparison = compare_ledgers([RIGHT, OTHER], again)
    assert comparison.identical
    assert comparison.lines("a", "b") == [
        "2 numerics verdicts in both ledgers, 0 of them differ",
        "largest change of a margin: 0.25 → 0.5 (right:case:h200); margins don't count",
    ]
    assert compare_ledgers([RIGHT], [RIGHT]).lines("a", "b") == [
        "1 numerics verdicts in both ledgers, 0 of them differ"
    ]


@pytest.mark.parametrize(
    ("after", "differences"),
    [
        (
            replace(verdict("right", "fail", wrong=3, margin="inf"), reason="3 of 16 elements"),
            ["outcome: pass → fail (3 of 16 elements)", "wrong elements: 0 → 3", "rule bound: pass → fail"],
        ),
        (replace(RIGHT, evidence={"wrong": 2}), ["wrong elements: 0 → 2"]),
        (replace(RIGHT, evidence={}), ["wrong elements: 0 → not judged"]),
        (
            replace(RIGHT, rulings=(*RIGHT.rulings, Ruling("replayed", "pass", ""))),
            ["rule replayed: not ruled on → pass"],
        ),
        (replace(RIGHT, rulings=RIGHT.rulings[:1]), ["rule bound: pass → not ruled on"]),
        (replace(RIGHT, outcome="waived"), ["outcome: pass → waived"]),
    ],
)
def test_each_difference_is_named(after, differences):
    """Outcome, number of wrong elements and every rule that was ruled otherwise."""
    comparison = compare_ledgers([RIGHT, OTHER], [after, OTHER])
    assert not comparison.identical
    lines = comparison.lines("a", "b")
    assert lines[0] == "2 numerics verdicts in both ledgers, 1 of them differ"
    assert lines[1] == "right:case:h200"
    assert lines[2 : 2 + len(differences)] == [f"  {difference}" for difference in differences]


def test_subjects_of_one_ledger_alone():
    """They are listed under its name, and make the ledgers differ."""
    comparison = compare_ledgers([RIGHT], [OTHER])
    assert not comparison.identical
    assert comparison.lines("a", "b") == [
        "0 numerics verdicts in both ledgers, 0 of them differ",
        "only in a (1)",
        "  right:case:h200",
        "only in b (1)",
        "  other:case:h200",
    ]


def test_other_suites_and_earlier_verdicts_do_not_count():
    """Timings differ from run to run; of two verdicts on a subject the last one stands."""
    timed = replace(OTHER, suite="performance")
    wrong = verdict("right", "fail", wrong=1)
    assert compare_ledgers([RIGHT, timed], [wrong, RIGHT]).identical
