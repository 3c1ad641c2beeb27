# SPDX-License-Identifier: Apache-2.0
"""A kernel process that dies, hangs or is orphaned is reported with evidence, and nothing is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from humming_conformance.execution import (
    ProcessDied,
    TaskRaised,
    TimeLimit,
)
from humming_conformance.execution import process as process_module

LONG = 60.0


def wait_for(file):
    """Wait until a task has written ``file``."""
    deadline = time.monotonic() + LONG
    while not file.exists():
        assert time.monotonic() < deadline, "the task never started"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("how", "status"),
    [("SIGKILL", "SIGKILL"), ("SIGSEGV", "SIGSEGV"), ("SIGABRT", "SIGABRT"), ("exit", "exit status 3")],
)
def test_a_death_is_reported_with_its_status(process, how, status):
    """A task that ends its process costs that process and names the signal or status."""
    with pytest.raises(ProcessDied, match=status) as caught:
        process.call("tasks:die", timeout=LONG, how=how)
    assert caught.value.status == status
    assert not process.alive
    with pytest.raises(ProcessDied, match="ended before this call"):
        process.call("tasks:count", timeout=LONG)


def test_a_fault_leaves_its_stack(process):
    """After a null pointer the evidence shows the Python function that followed it."""
    with pytest.raises(ProcessDied) as caught:
        process.call("tasks:die", timeout=LONG, how="SIGSEGV")
    assert "Segmentation fault" in caught.value.log
    assert "read_null" in caught.value.log


def test_a_closed_control_pipe_is_a_death(process, monkeypatch, wait_gone):
    """A process that closes all its descriptors can never answer, and is killed."""
    monkeypatch.setattr(process_module, "END_LIMIT", 0.1)
    with pytest.raises(ProcessDied, match="closed its control pipe"):
        process.call("tasks:die", timeout=LONG, how="close")
    wait_gone(process.pid)


def test_a_death_is_seen_though_a_child_holds_the_pipe(process, tmp_path, wait_gone):
    """A forked child inherits the pipe; its parent's end is reported all the same, and it is killed."""
    pid_file = tmp_path / "pid"
    with pytest.raises(ProcessDied) as caught:
        process.call("tasks:die_with_child_holding_the_pipe", timeout=LONG, pid_file=str(pid_file))
    assert caught.value.status == "exit status 7"
    wait_gone(int(pid_file.read_text()))


def test_a_death_between_calls_is_reported_by_the_next(process, wait_gone):
    """A process killed while idle is not alive, and a call names the signal."""
    assert process.alive
    os.kill(process.pid, signal.SIGKILL)
    wait_gone(process.pid)
    assert not process.alive
    assert not process.ended
    with pytest.raises(ProcessDied, match="SIGKILL"):
        process.call("tasks:count", timeout=LONG)


@pytest.mark.parametrize("how", ["python", "native", "native_with_lock"])
def test_a_hang_ends_at_its_time_limit_with_its_stack(process, how, tmp_path, monkeypatch, wait_gone):
    """Wherever a task hangs, the error shows where, and its whole process group is gone."""
    marker = tmp_path / "hanging"
    receive = process._receive

    def receive_nothing_once_it_hangs(_):
        wait_for(marker)
        return receive(0.0)

    monkeypatch.setattr(process, "_receive", receive_nothing_once_it_hangs)
    with pytest.raises(TimeLimit) as caught:
        process.call("tasks:hang", timeout=1000.0, how=how, marker=str(marker))
    assert caught.value.seconds == 1000.0
    assert "in hang\n" in caught.value.stack
    assert not process.alive
    for pid in marker.read_text().split():
        wait_gone(int(pid))


def test_a_time_limit_is_kept_in_real_time(process):
    """A hanging task is given up after the stated seconds, and not before."""
    started = time.monotonic()
    with pytest.raises(TimeLimit, match=r"no result within 0\.2 s"):
        process.call("tasks:native_sleep", timeout=0.2)
    assert time.monotonic() - started >= 0.2


@pytest.mark.parametrize(
    ("kind", "message", "lost"),
    [
        ("runtime", "CUDA error: an illegal memory access was encountered", True),
        ("runtime", "device-side assert triggered", True),
        ("caused", "launch failed: cudaErrorLaunchFailure", True),
        ("runtime", "CUDA out of memory. Tried to allocate 2.00 GiB", False),
        ("caused", "no schedule for this shape", False),
    ],
)
def test_a_lost_cuda_context_ends_the_process(process, kind, message, lost):
    """After an error that poisons the CUDA context, even as a cause, no later task may run in it."""
    with pytest.raises(TaskRaised):
        process.call("tasks:raises", timeout=LONG, kind=kind, message=message)
    assert process.alive is not lost


def test_an_interrupted_call_ends_the_process(process, wait_gone):
    """After Ctrl-C the late reply must not be taken for that of the next call."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            process.call("tasks:interrupt_parent", timeout=LONG)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert process.ended
    wait_gone(process.pid)


PARENT = """
import sys
from humming_conformance.execution import KernelProcess, ProcessSpec
process = KernelProcess(ProcessSpec("orphan", python_path=(sys.argv[1],)))
print(process.pid, flush=True)
if sys.argv[2] == "idle":
    sys.stdin.read()
process.call("tasks:hang", timeout=1000, how=sys.argv[2], marker=sys.argv[3])
"""


@pytest.mark.parametrize("how", ["idle", "python", "native_with_lock"])
def test_a_killed_parent_leaves_no_orphan(how, tmp_path, wait_gone):
    """A process ends with its parent even while a native call keeps every Python thread from running."""
    marker = tmp_path / "hanging"
    command = [sys.executable, "-c", PARENT, str(Path(__file__).parent), how, str(marker)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        pids = [int(parent.stdout.readline())]
        if how != "idle":
            wait_for(marker)
            pids = [int(pid) for pid in marker.read_text().split()]
        parent.kill()
        for pid in pids:
            wait_gone(pid)
