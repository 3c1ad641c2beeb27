# SPDX-License-Identifier: Apache-2.0
"""A kernel process runs tasks, and survives or reports whatever they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from humming_conformance.execution import (
    ExecutionError,
    KernelProcess,
    ProcessDied,
    ProcessSpec,
    ProcessStartFailed,
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


def test_a_task_is_called_with_its_arguments_in_another_process(pool, spec):
    """What a task returns comes back, with the time it took."""
    arguments = {"case": "é", "seeds": [1, 2.5, None, True], "more": {"x": "y"}}
    reply = pool.call(spec, "tasks:echo", timeout=LONG, **arguments)
    assert reply.value == arguments
    assert 0 <= reply.seconds < LONG
    assert pool.call(spec, "tasks:count", timeout=LONG).value["pid"] != os.getpid()


def test_a_module_is_imported_once(process):
    """State that a task leaves in its module is there at the next call."""
    first = process.call("tasks:count", timeout=LONG).value
    second = process.call("tasks:count", timeout=LONG).value
    assert (first["calls"], second["calls"]) == (1, 2)
    assert first["pid"] == second["pid"] == process.pid


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


def test_an_exception_leaves_the_process_usable(process):
    """A raising task is reported with type, text and traceback, and the next one runs in the same process."""
    with pytest.raises(TaskRaised, match="no such tile") as caught:
        process.call("tasks:raises", timeout=LONG, kind="value", message="no such tile")
    assert (caught.value.type, caught.value.message) == ("ValueError", "no such tile")
    assert "in raises" in caught.value.traceback
    assert process.call("tasks:count", timeout=LONG).value["pid"] == process.pid


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        ("tasks:raises", {"kind": "exit"}, "SystemExit: 3"),
        (
            "tasks:raises",
            {"kind": "unprintable"},
            "tasks.UnprintableError: (its text could not be made: RuntimeError)",
        ),
        ("tasks:absent", {}, "AttributeError: module 'tasks' has no attribute 'absent'"),
        ("no_such_module:run", {}, "ModuleNotFoundError: No module named 'no_such_module'"),
        ("tasks:count", {"unknown": 1}, "TypeError: count() got an unexpected keyword argument 'unknown'"),
    ],
)
def test_any_exception_is_reported(pool, spec, function, arguments, message):
    """Neither SystemExit nor an exception without a text nor a wrong name ends the process."""
    with pytest.raises(TaskRaised) as caught:
        pool.call(spec, function, timeout=LONG, **arguments)
    assert f"{caught.value.type}: {caught.value.message}" == message
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("list", "the result is a list"),
        ("set", r"value['a']['b'] is a set"),
        ("key", r"the key 1 at value['a'] is no string"),
        ("object", r"value['a'] has dtype object"),
        ("bfloat16", r"value['a'][0] has dtype bfloat16"),
        ("complex", r"value['a'] is a complex64"),
    ],
)
def test_a_result_that_cannot_be_sent_is_named(pool, spec, kind, text):
    """The error says which part of the result is wrong and what it is."""
    with pytest.raises(TaskRaised) as caught:
        pool.call(spec, "tasks:returns", timeout=LONG, kind=kind)
    assert caught.value.type == "TypeError"
    assert text in caught.value.message


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


def test_output_harms_no_reply(process):
    """A megabyte of garbage on both outputs changes nothing in the reply."""
    assert process.call("tasks:print_garbage", timeout=LONG, mebibytes=1, then_raise=False).value == {
        "ok": True
    }


def test_the_end_of_the_output_is_evidence(process):
    """An error carries the last output of its own call, bounded, and none of an earlier call."""
    with pytest.raises(TaskRaised) as caught:
        process.call("tasks:print_garbage", timeout=LONG, mebibytes=1, then_raise=True)
    assert caught.value.log.endswith("the last line\n")
    assert len(caught.value.log) <= 8192
    assert "the last line" in str(caught.value)
    with pytest.raises(TaskRaised) as caught:
        process.call("tasks:raises", timeout=LONG, kind="value")
    assert caught.value.log == ""


def test_arguments_must_be_json(process):
    """An argument that JSON cannot carry is refused before anything is sent."""
    with pytest.raises(TypeError, match="not JSON serializable"):
        process.call("tasks:echo", timeout=LONG, values={1, 2})
    assert process.call("tasks:count", timeout=LONG).value["calls"] == 1


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


def test_closing_ends_the_process(spec, wait_gone):
    """A closed process is gone, and closing it twice is as once."""
    with KernelProcess(spec) as process:
        assert process.alive
    process.close()
    assert not process.alive
    wait_gone(process.pid)


def test_a_process_outlives_the_thread_that_started_it(spec):
    """It ends with the parent process, not with whichever thread started it."""
    started = []
    thread = threading.Thread(target=lambda: started.append(KernelProcess(spec)))
    thread.start()
    thread.join()
    with started[0] as process:
        assert process.call("tasks:count", timeout=LONG).value["calls"] == 1


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


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise RuntimeError('broken here')", "exit status 1"),
        ("import os; os.abort()", "SIGABRT"),
    ],
)
def test_a_process_that_cannot_start_says_why(tmp_path, code, reason):
    """What stops the process before its first task is in the error, with what it printed."""
    (tmp_path / "numpy.py").write_text(code)
    with pytest.raises(ProcessStartFailed, match=reason) as caught:
        KernelProcess(ProcessSpec("broken", python_path=(str(tmp_path),)))
    assert isinstance(caught.value, ExecutionError)
    assert "'broken'" in str(caught.value)
    if "raise" in code:
        assert "broken here" in caught.value.log


def test_a_process_with_another_copy_of_this_package_is_refused(tmp_path):
    """Tasks must come from the code that judges them."""
    here = Path(process_module.__file__).parent
    copy = tmp_path / "humming_conformance"
    copy.mkdir()
    (copy / "__init__.py").touch()
    (copy / "execution").symlink_to(here)
    with pytest.raises(ProcessStartFailed, match="install this one"):
        KernelProcess(ProcessSpec("copy", python_path=(str(tmp_path),)))


def test_no_descriptor_stays_open(spec):
    """Ended processes leave no descriptor in the parent, however they ended."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with KernelProcess(spec) as process:
        process.call("tasks:arrays", timeout=LONG)
    with KernelProcess(spec) as process, pytest.raises(ProcessDied):
        process.call("tasks:die", timeout=LONG, how="exit")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
