# SPDX-License-Identifier: Apache-2.0
"""Interleaved samples leave ratios alone when the device drifts, whatever is timed."""

from __future__ import annotations

import numpy as np
import pytest

from humming_conformance.measure.timing import HostTimer, host_seconds, interleaved, repeats_of


class DriftingTimer:
    """A device that gets slower all the time; a work is the seconds it takes at first."""

    def __init__(self, drift=0.0):
        self.now = 0.0
        self.drift = drift
        self.sampled = []

    def capture(self, launches):
        """One work for all launches."""
        return sum(launches)

    def sample(self, work, repeats):
        """At once: nothing is queued on a made-up device."""
        seconds = work * repeats * (1 + self.drift * self.now)
        self.now += seconds
        self.sampled.append((work, repeats))
        return lambda: seconds

    def synchronize(self):
        """Nothing to wait for."""


def test_a_steady_device_gives_the_times():
    """Each name has its own time, in every cycle."""
    found = interleaved(DriftingTimer(), {"kernel": 20e-6, "anchor": 50e-6}, cycles=4)
    assert found["kernel"] == pytest.approx([20e-6] * 4)
    assert found["anchor"] == pytest.approx([50e-6] * 4)


def test_a_drift_cancels_in_ratios():
    """Times grow by a tenth over the cycles; the ratio of neighbours stays to a ten-thousandth."""
    found = interleaved(DriftingTimer(drift=10.0), {"kernel": 20e-6, "anchor": 20e-6}, cycles=8)
    assert found["kernel"][-1] > 1.05 * found["kernel"][0]
    assert found["kernel"] / found["anchor"] == pytest.approx(np.ones(8), abs=1e-4)


def test_a_sample_is_long_enough():
    """A work is repeated until it fills a sample, a long one runs once."""
    timer = DriftingTimer()
    assert repeats_of(timer, 3e-6, sample_seconds=300e-6) == 100
    assert repeats_of(timer, 5e-3, sample_seconds=300e-6) == 1


def test_order_is_there_and_back():
    """A cycle samples all works and then the same in reverse."""
    timer = DriftingTimer()
    interleaved(timer, {"a": 1e-3, "b": 2e-3, "c": 4e-3}, cycles=1, sample_seconds=1e-3)
    assert [work for work, _ in timer.sampled[-6:]] == [1e-3, 2e-3, 4e-3, 4e-3, 2e-3, 1e-3]


@pytest.mark.parametrize(("works", "cycles"), [({}, 3), ({"a": 1e-3}, 0)])
def test_nothing_to_time(works, cycles):
    """No work or no cycle is an error that says so."""
    with pytest.raises(ValueError, match="at least one of each"):
        interleaved(DriftingTimer(), works, cycles)


def test_the_host_times_what_it_runs():
    """Where there is no GPU captured launches are run, all of them, once to warm up and at each sample."""
    ran = []
    timer = HostTimer()
    work = timer.capture([lambda: ran.append("a"), lambda: ran.append("b")])
    assert timer.sample(work, 2)() > 0
    assert ran == ["a", "b"] * 3
    assert host_seconds(lambda: ran.append("c"), timer, calls=5) > 0
    assert ran.count("c") == 6
