# SPDX-License-Identifier: Apache-2.0
"""The verdicts of performance on timings that are made up, whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from humming_conformance.problems import parse_case
from humming_conformance.problems.families import timing_family
from humming_conformance.store.rounds import Timing, case_baselines
from tests.performance_power import analyse
from tests.performance_power.collect import fixed_cases

CASES = fixed_cases()
#: Standard deviations between processes and machines: of the copy, which travels well, and of the GEMM, which doesn't.
SPREADS = {"copy": (0.004, 0.005), "gemm": (0.004, 0.02)}


def _timings(seed, *, machines=3, processes=15, kernel=analyse.PLAIN, slower=0.0):
    """Timings by the noise model of two spreads, each cycle another half a per cent away."""
    random = np.random.default_rng(seed)
    made = []
    for case in CASES:
        for machine in range(machines):
            of_machine = {anchor: random.normal(0, spread) for anchor, (_, spread) in SPREADS.items()}
            for process in range(processes):
                seconds = {"kernel": [20e-6] * 10}
                for anchor, (spread, _) in SPREADS.items():
                    ratio = of_machine[anchor] + random.normal(0, spread) + slower
                    seconds[anchor] = list(20e-6 * np.exp(-ratio - random.normal(0, 0.005, 10)))
                made.append(Timing(kernel, case, "h200", f"GPU-{machine}", str(process), seconds, {}))
    return made


def test_the_fixed_set_is_varied():
    """At least 24 cases: decode and prefill, dense and with experts, weights of 3, 4 and 8 bits, three activations."""
    cases = [parse_case(case_id) for case_id in CASES]
    assert len(cases) >= 24
    assert {timing_family(case) for case in cases} == {
        f"{a} {b}" for a in ("dense", "MoE") for b in ("decode", "prefill")
    }
    assert {case.weight.format.bits for case in cases} == {3, 4, 8}
    assert {case.activation.element for case in cases} == {"bf16", "int8", "fp8_e4m3"}


def test_false_alarms_are_as_rare_as_stated():
    """Where nothing changed, at most 1 % of case verdicts fail and 5 % are slow, over many made-up fleets."""
    counts = sum((analyse.words(analyse.gates(found, found)) for found in map(_machines, range(6))), analyse.Counter())
    assert counts["all"] == 6 * 9 * len(CASES)
    assert counts["fail"] <= 0.01 * counts["all"]
    assert counts["slow"] <= 0.05 * counts["all"]
    assert counts["ambiguous"] == 0


def _machines(seed):
    return analyse.by_machine(_timings(seed))


def test_a_slowdown_side_by_side_is_found():
    """In pairs on one machine 3 % is slow and 5 % fails, in at least 95 % and 99 % of case verdicts."""
    plain = _machines(1)
    for slower, word, share in ((0.03, "slow", 0.95), (0.05, "fail", 0.99)):
        delayed = analyse.by_machine(_timings(2, kernel="slower", slower=math.log1p(slower)), "slower")
        # Pairs share their machine: the same offsets, which here come from the seed.
        same = {
            machine: {case: _moved(timings, slower, seed) for seed, (case, timings) in enumerate(cases.items())}
            for machine, cases in plain.items()
        }
        assert delayed.keys() == same.keys()
        counts = analyse.words(analyse.pair_gates(plain, same, "gemm"))
        assert counts[word] >= share * counts["all"]


def _moved(timings, slower, seed):
    """The same machine's timings, each of another process, of a kernel that is slower."""
    random = np.random.default_rng(seed)
    moved = []
    for timing in timings:
        factor = (1 + slower) * math.exp(random.normal(0, 0.004))
        seconds = {**timing.seconds, "kernel": [value * factor for value in timing.seconds["kernel"]]}
        moved.append(Timing("slower", timing.case, timing.device, timing.machine, timing.process, seconds, {}))
    return moved


def test_the_smallest_slowdown_that_a_stored_baseline_finds():
    """With machines that differ by half a per cent it is a few per cent; nothing is found where it can't be."""
    found = _machines(3)
    smallest = analyse.smallest_found(found, found)
    assert smallest is not None
    assert 0.01 <= smallest <= 0.05
    assert analyse.smallest_found(found, found, steps=1) is None


def test_the_anchor_that_travels_best_is_chosen():
    """Of two anchors the one that differs less from machine to machine is used, and the table shows both."""
    timings = _timings(4, processes=5)
    lines = analyse.spreads(timings)
    assert any(line.startswith("| dense decode") and "| copy |" in line for line in lines)
    assert {stored.anchor for stored in case_baselines(timings).values()} == {"copy"}


def test_report_is_complete():
    """All tables, with a delay that was measured; a delay that wasn't is left out."""
    slower = _timings(6, kernel="humming_slower_by_30", slower=0.03)
    text = "\n".join(analyse.report([*_timings(5), *slower], {0.03: "humming_slower_by_30", 0.05: "none"}))
    assert text.startswith("3 machines, 45 processes, 26 cases.")
    assert "| delay of 3% |" in text
    assert "delay of 5%" not in text
    assert text.count("at most") == 8


@pytest.mark.parametrize(("found", "total", "upper"), [(0, 300, "1.0%"), (3, 300, "2.6%"), (0, 0, "none drawn")])
def test_rates_have_their_upper_bound(found, total, upper):
    """Clopper and Pearson's, one-sided: three in a hundred where none of a hundred was seen."""
    assert upper in analyse.rate(found, total)
