# SPDX-License-Identifier: Apache-2.0
"""What can go wrong between asking for a task and having its result, each with its evidence."""

# ruff: noqa: A002, N818 - these are named for what happened, and their parts as Python names them

from __future__ import annotations


class ExecutionError(Exception):
    """A task gave no result. The subclass says how, and therefore what the verdict's evidence is."""


class ProcessStartFailed(ExecutionError):
    """A kernel process could not be brought to where it takes tasks.

    Attributes:
        name: the spec's name.
        reason: what stopped it, one sentence.
        log: the end of what it printed.
    """

    def __init__(self, name: str, reason: str, log: str) -> None:
        super().__init__(f"kernel process {name!r} did not start: {reason}{_section('it printed', log)}")
        self.name, self.reason, self.log = name, reason, log


class TaskRaised(ExecutionError):
    """The task raised. The process takes further tasks, unless its CUDA context is lost (see ``process.py``).

    Attributes:
        type: qualified name of the exception's class in the kernel process.
        message: its text.
        traceback: as Python prints it, causes included.
        log: the end of what the task printed.
    """

    def __init__(self, type: str, message: str, traceback: str, log: str = "") -> None:
        super().__init__(f"{type}: {message}{_section('traceback', traceback)}{_section('it printed', log)}")
        self.type, self.message, self.traceback, self.log = type, message, traceback, log


class ProcessDied(ExecutionError):
    """The kernel process ended while it owed a result.

    Attributes:
        status: a signal's name (``SIGSEGV``) or ``exit status N``.
        log: the end of what it printed; after a fault, with the Python stack of every thread.
    """

    def __init__(self, status: str, log: str) -> None:
        hint = " (nobody here sent it; often the out-of-memory killer)" if status == "SIGKILL" else ""
        super().__init__(f"the kernel process died: {status}{hint}{_section('it printed', log)}")
        self.status, self.log = status, log


class TimeLimit(ExecutionError):
    """The task did not answer in time; its process group was killed.

    Attributes:
        seconds: the limit.
        stack: Python stack of every thread at that time; empty where the process could not give it.
        log: the end of what the task printed.
    """

    def __init__(self, seconds: float, stack: str, log: str) -> None:
        evidence = _section("stack", stack) or "; it gave no stack"
        super().__init__(f"no result within {seconds:g} s{evidence}{_section('it printed', log)}")
        self.seconds, self.stack, self.log = seconds, stack, log


class LeaseTimeout(ExecutionError):
    """Others held the GPU for as long as this lease was ready to wait."""


def _section(title: str, text: str) -> str:
    """``text`` under a heading, or nothing."""
    return f"\n--- {title}:\n{text.rstrip()}" if text.strip() else ""
