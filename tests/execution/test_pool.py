# SPDX-License-Identifier: Apache-2.0
"""A pool keeps the processes it needs, few at a time."""

from __future__ import annotations

import logging
import os
import signal
from dataclasses import replace

import pytest

from humming_conformance.execution import ProcessDied, ProcessPool

LONG = 60.0


@pytest.fixture
def own_pool():
    """A pool of the test's own, for two processes."""
    with ProcessPool(max_processes=2) as pool:
        yield pool


@pytest.fixture
def count(own_pool):
    """Call ``tasks:count`` in the process of a spec."""
    return lambda spec: own_pool.call(spec, "tasks:count", timeout=LONG).value


def test_equal_specs_share_a_process(count, spec):
    """A second call, with an equal spec, runs in the process of the first."""
    first, second = count(spec), count(replace(spec))
    assert first["pid"] == second["pid"]
    assert second["calls"] == 2


def test_different_specs_have_processes_of_their_own(count, spec):
    """A spec that differs in one variable is another process."""
    assert count(spec)["pid"] != count(replace(spec, environment=(("TRITON_INTERPRET", "1"),)))["pid"]


def test_the_next_call_after_a_death_starts_afresh(own_pool, count, spec, caplog):
    """A task that kills its process costs that one call."""
    first = count(spec)
    with caplog.at_level(logging.WARNING), pytest.raises(ProcessDied, match="SIGSEGV"):
        own_pool.call(spec, "tasks:die", timeout=LONG, how="SIGSEGV")
    second = count(spec)
    assert second["pid"] != first["pid"]
    assert second["calls"] == 1
    assert not caplog.records


def test_a_death_between_calls_is_logged_and_blames_no_task(count, spec, caplog, wait_gone):
    """A process found dead is replaced before the call, and a warning says so."""
    first = count(spec)
    os.kill(first["pid"], signal.SIGKILL)
    wait_gone(first["pid"])
    with caplog.at_level(logging.WARNING):
        assert count(spec)["calls"] == 1
    assert [record.message for record in caplog.records] == [
        "kernel process 'tests' died between two tasks; starting another"
    ]


def test_the_process_unused_for_longest_gives_way(count, spec, wait_gone):
    """With room for two, a third ends the one not used last, and that one alone."""
    a, b, c = (replace(spec, name=name) for name in "abc")
    pids = {one: count(one)["pid"] for one in (a, b)}
    count(a)
    count(c)
    wait_gone(pids[b])
    assert count(a) == {"calls": 3, "pid": pids[a]}


def test_closing_ends_every_process(own_pool, count, spec, wait_gone):
    """After close no process is left, and the pool starts new ones when asked."""
    pids = [count(one)["pid"] for one in (spec, replace(spec, name="other"))]
    own_pool.close()
    for pid in pids:
        wait_gone(pid)
    assert count(spec)["calls"] == 1


def test_a_pool_without_room_is_refused():
    """A pool for no process could never run a task."""
    with pytest.raises(ValueError, match="max_processes is 0"):
        ProcessPool(max_processes=0)
