# SPDX-License-Identifier: Apache-2.0
"""A kernel process starts, runs tasks, reports what they raise and print, and ends."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from humming_conformance.execution import (
    ExecutionError,
    KernelProcess,
    ProcessDied,
    ProcessSpec,
    ProcessStartFailed,
    TaskRaised,
)
from humming_conformance.execution import process as process_module

LONG = 60.0


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


def test_output_harms_no_reply(process):
    """A megabyte of garbage on both outputs changes nothing in the reply."""
    assert process.call("tasks:print_garbage", timeout=LONG, mebibytes=1, then_raise=False).value == {"ok": True}


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
