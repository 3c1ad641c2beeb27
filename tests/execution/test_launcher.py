# SPDX-License-Identifier: Apache-2.0
"""A kernel process whose interpreter another program starts, as a memory checker does."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from humming_conformance.execution import KernelProcess, ProcessDied, ProcessSpec, ProcessStartFailed, TimeLimit
from humming_conformance.execution import process as process_module

HERE = str(Path(__file__).parent)
LONG = 60.0

#: Starts its words as a child, hands on its descriptors, and ends a little later than the child, with its status.
LAUNCHER = """\
import os, subprocess, sys, time
group = {"same": None, "own": 0}[sys.argv[1]]
child = subprocess.Popen(sys.argv[2:], close_fds=False, process_group=group)
status = child.wait()
time.sleep(0.3)
print("the launcher ends", flush=True)
os._exit(status if status >= 0 else 128 - status)
"""


@pytest.fixture(params=["same", "own"])
def spec(request):
    """A process behind a launcher, in the launcher's process group or in one of its own."""
    launcher = (sys.executable, "-c", LAUNCHER, request.param)
    return ProcessSpec("launched", (HERE,), launcher=launcher, slowdown=2.0)


def test_tasks_run_behind_a_launcher(spec, wait_gone):
    """Arguments, replies and arrays pass; closing ends the worker, and then the launcher by itself."""
    with KernelProcess(spec) as process:
        assert process.call("tasks:echo", timeout=LONG, a=1).value == {"a": 1}
        assert process.call("tasks:large", timeout=LONG, mebibytes=1).value["bytes"].shape == (1 << 20,)
        worker = process.call("tasks:count", timeout=LONG).value["pid"]
        assert worker != process.pid
    wait_gone(worker)
    wait_gone(process.pid)


def test_a_hang_shows_the_worker_s_stack_and_ends_all(spec, tmp_path, wait_gone):
    """The signal for the stacks goes to the worker, and neither it nor its launcher outlives the time limit."""
    marker = tmp_path / "marker"
    with KernelProcess(spec) as process, pytest.raises(TimeLimit) as caught:
        process.call("tasks:hang", timeout=2.0, how="python", marker=str(marker))
    assert "in spin" in caught.value.stack
    wait_gone(int(marker.read_text().split()[0]))
    wait_gone(process.pid)


def test_a_worker_that_dies_is_told(spec):
    """The launcher is given the time to end by itself; its status and both outputs are the evidence."""
    with KernelProcess(spec) as process, pytest.raises(ProcessDied) as caught:
        process.call("tasks:die", timeout=LONG, how="SIGSEGV")
    assert caught.value.status == "exit status 139"
    assert "read_null" in caught.value.log
    assert "the launcher ends" in caught.value.log


def test_a_launcher_that_cannot_start():
    """What it prints is in the error; one that isn't there is named."""
    with pytest.raises(ProcessStartFailed, match="exit status 3 before its first task") as caught:
        KernelProcess(ProcessSpec("launched", launcher=("/bin/sh", "-c", "echo no such option; exit 3")))
    assert caught.value.log == "no such option\n"
    with pytest.raises(ProcessStartFailed, match="no_such_program"):
        KernelProcess(ProcessSpec("launched", launcher=("/no_such_program",)))


def test_slowdown_stretches_the_start(monkeypatch):
    """Four times as slow, four times the patience."""
    monkeypatch.setattr(process_module, "START_LIMIT", 0.1)
    started = time.monotonic()
    with pytest.raises(ProcessStartFailed, match=r"no sign of life within 0\.4 s"):
        KernelProcess(ProcessSpec("launched", launcher=("/bin/sh", "-c", "sleep 60"), slowdown=4.0))
    assert time.monotonic() - started >= 0.4
