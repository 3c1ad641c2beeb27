# SPDX-License-Identifier: Apache-2.0
"""What log ratios of processes say against a reference: every word, and what makes them say nothing."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from scipy import stats

from humming_conformance.store import CaseBaseline, Ratio
from humming_conformance.verdicts.change import (
    Reference,
    compare,
    compare_pairs,
    control_discoveries,
    reference,
)

#: Five processes of a fifth of a per cent around 0.
STEADY = (-0.002, -0.001, 0.0, 0.001, 0.002)
STORED = Reference(mean=0.0, process_sd=0.002, processes=10, machine_sd=0.002, machines=3)


def _shifted(by):
    return [value + by for value in STEADY]


def _settled(by, stored=STORED):
    return control_discoveries({"case": compare(_shifted(by), stored)})["case"]


@pytest.mark.parametrize(
    ("by", "kind", "failed"),
    [
        (0.0, "same", False),
        (0.004, "same", False),
        (0.017, "slow", False),
        (0.05, "slow", True),
        (-0.05, "fast", False),
    ],
)
def test_words(by, kind, failed):
    """Within the machines' spread the same; beyond it slow or fast; beyond the budget of 2 % a failure."""
    change = _settled(by)
    assert (change.kind, change.failed) == (kind, failed)
    assert change.change == pytest.approx(by)
    assert change.budget == 0.02


def test_interval_by_hand():
    """Welch's interval over processes, on variances of 2.5e-6/5 (their own) and 4e-6/10 (stored)."""
    change = compare(STEADY, STORED)
    own, stored = 2.5e-6 / 5, 4e-6 / 10
    freedom = (own + stored) ** 2 / (own**2 / 4 + stored**2 / 9)
    assert change.half_width == pytest.approx(stats.t.ppf(0.975, freedom) * math.sqrt(own + stored))


def test_the_budget_follows_the_machines():
    """Three times their spread, where that is more than 2 %: a slowdown of 3 % is then no failure."""
    stored = replace(STORED, machine_sd=0.015)
    assert compare(STEADY, stored).budget == pytest.approx(0.045)
    assert not _settled(0.03, stored).failed


@pytest.mark.parametrize(
    ("ratios", "stored", "disturbances", "told"),
    [
        (STEADY[:2], STORED, (), "2 processes; at least 3 are needed"),
        ((), STORED, (), "0 processes"),
        ((-0.2, 0.0, 0.2, 0.1), STORED, (), "is wider than the budget of 2.0%"),
        (STEADY, STORED, ("power brake",), "power brake"),
        (STEADY, replace(STORED, machine_sd=None), (), "the baseline is of one machine"),
    ],
)
def test_what_can_not_be_told_is_ambiguous(ratios, stored, disturbances, told):
    """Never a guess: the reason is told, and no control of discoveries makes a word of it."""
    change = compare(ratios, stored, disturbances)
    assert change.kind == "ambiguous"
    assert told in change.reason
    assert control_discoveries({"case": change})["case"] == change


def test_processes_without_any_spread():
    """All alike to the last bit, as from a made-up clock: the words are still right."""
    stored = Reference(0.0, 0.0, 5, 0.0)
    assert control_discoveries({"a": compare([0.05] * 5, stored)})["a"].failed
    assert control_discoveries({"a": compare([0.0] * 5, stored)})["a"].kind == "same"


def test_discoveries_are_controlled_over_all_cases():
    """What is slow alone is chance among a hundred that aren't; what is far off stays."""
    borderline = compare(_shifted(0.0105), STORED)
    assert 0.001 < borderline.p_slow < 0.05
    assert control_discoveries({"a": borderline})["a"].kind == "slow"
    others = {str(number): compare(_shifted(0.0), STORED) for number in range(100)}
    settled = control_discoveries({**others, "a": borderline, "b": compare(_shifted(0.1), STORED)})
    assert settled["a"].kind == "same"
    assert settled["b"].failed
    assert control_discoveries({}) == {}


def test_pairs_on_one_machine():
    """Nothing stored, no other machine: the pairs' own interval decides."""
    assert control_discoveries({"a": compare_pairs(_shifted(0.01))})["a"].kind == "slow"
    assert control_discoveries({"a": compare_pairs(STEADY)})["a"].kind == "same"
    assert compare_pairs([]).kind == "ambiguous"


def test_a_detectable_slowdown_is_detected():
    """The slowdown that is printed beside a verdict would have been called slow."""
    detectable = compare(STEADY, STORED).detectable
    assert 0 < detectable < 0.05
    assert _settled(detectable).kind == "slow"


def test_a_reference_has_its_family_s_spread():
    """A case whose two machines happen to agree is given the spread of its family; one that is worse keeps its own."""

    def stored(machine_sd):
        return CaseBaseline("copy", {"copy": Ratio(-0.5, 0.004, 10, machine_sd, 2)}, 10.0)

    name = "dense-w_int4.g32.bf16-a_bf16-m{}.n64.k64-random"
    cases = {name.format(1): stored(0.0), name.format(2): stored(0.02), name.format(4096): stored(0.5)}
    family = math.sqrt(0.02**2 / 2)
    assert reference(cases, name.format(1)) == Reference(-0.5, 0.004, 10, pytest.approx(family), 2)
    assert reference(cases, name.format(2)).machine_sd == pytest.approx(0.02)
    assert reference({name.format(1): stored(None)}, name.format(1)).machine_sd is None
