# SPDX-License-Identifier: Apache-2.0
"""A process of its own for a library under test, that may fault, hang, abort or run out of memory.

A task is a function named ``package.module:function``. The process imports it, calls it with JSON-able
arguments and returns its dict of JSON-able values and NumPy arrays. Whatever happens instead is an
:class:`ExecutionError` with its evidence, and the parent goes on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.reduction import recv_handle
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import humming_conformance
from humming_conformance.execution.arrays import Packed, unpack
from humming_conformance.execution.environment import process_environment
from humming_conformance.execution.errors import ProcessDied, ProcessStartFailed, TaskRaised, TimeLimit
from humming_conformance.execution.evidence import CapturedOutput, cuda_context_lost, exit_status

WORKER = "humming_conformance.execution.worker"

#: Makes the worker dump every thread's stack.
STACK_SIGNAL = signal.SIGUSR1

#: Seconds a process may take until it accepts tasks; it imports NumPy, and no library under test yet.
START_LIMIT = 120.0
#: Seconds a process may take to end by itself once it is told to, or once it closed its control pipe.
END_LIMIT = 5.0
#: Seconds to wait for the stacks of a hanging process.
STACK_LIMIT = 10.0
#: Seconds to wait for a killed process to be gone: one that sits in a driver call may never be.
KILL_LIMIT = 30.0


@dataclass(frozen=True)
class ProcessSpec:
    """Which kernel process: equal specs may share one.

    Attributes:
        name: what messages call it.
        python_path: folders searched for modules before all others, such as a library build's.
        environment: variables added to the allowed ones (``environment.py``), as pairs.
        launcher: words before the interpreter's: a program that starts it as its child, hands on its descriptors and
            ends when it ends, such as a memory checker.
        slowdown: how many times the usual limits its start and its end may take.
    """

    name: str
    python_path: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    launcher: tuple[str, ...] = ()
    slowdown: float = 1.0

    def __post_init__(self) -> None:
        for variable, _ in self.environment:
            if variable == "PYTHONPATH" or variable.startswith("PYTEST_"):
                raise ValueError(
                    f"environment of kernel process {self.name!r}: {variable} cannot be set; "
                    "name folders in python_path, and keep pytest out of kernel processes"
                )


@dataclass(frozen=True)
class Reply:
    """What a task returned: its dict, arrays in place, and the seconds it ran, import and transfer apart."""

    value: dict[str, Any]
    seconds: float


class KernelProcess:
    """One running kernel process; takes one call at a time, from one thread at a time.

    It leads a session and process group of its own. Both end with this object, at the latest when this
    process ends, however it ends: the kernel kills the group when the parent's end of a pipe closes.

    Raises:
        ProcessStartFailed: it did not come to where it takes tasks.
    """

    def __init__(self, spec: ProcessSpec) -> None:
        self.spec = spec
        #: Whether this object has ended it; one that died by itself is neither ended nor alive.
        self.ended = False
        self._log = CapturedOutput()
        self._stack = CapturedOutput()
        self._control, control = Pipe()
        lifeline, self._lifeline = Pipe(duplex=False)
        passed = (control.fileno(), lifeline.fileno(), self._stack.fileno())
        try:
            self._process = subprocess.Popen(
                [*spec.launcher, sys.executable, "-P", "-m", WORKER, *map(str, passed)],
                env=process_environment(spec.python_path, dict(spec.environment)),
                stdin=subprocess.DEVNULL,
                stdout=self._log.fileno(),
                stderr=subprocess.STDOUT,
                pass_fds=passed,
                start_new_session=True,
            )
        except OSError as error:
            self._close_files()
            raise ProcessStartFailed(spec.name, str(error), "") from error
        finally:
            control.close()
            lifeline.close()
        limit = START_LIMIT * spec.slowdown
        try:
            hello = self._receive(limit)
        except TimeoutError:
            _, log = self._end()
            raise ProcessStartFailed(spec.name, f"no sign of life within {limit:g} s", log) from None
        except (EOFError, ConnectionError):
            status, log = self._end(within=self._end_limit)
            raise ProcessStartFailed(spec.name, f"{status} before its first task", log) from None
        except BaseException:
            self._end()
            raise
        #: The worker, which a launcher has started in turn.
        self._worker: int = hello["pid"]
        package = hello["package"]
        if not Path(package).samefile(humming_conformance.__file__):
            _, log = self._end()
            reason = f"it found humming_conformance at {package}, not at {humming_conformance.__file__}"
            raise ProcessStartFailed(spec.name, f"{reason}; install this one, or put it on PYTHONPATH", log)

    @property
    def pid(self) -> int:
        """Process id of the worker or of its launcher, and the id of its process group."""
        return self._process.pid

    @property
    def _end_limit(self) -> float:
        return END_LIMIT * self.spec.slowdown

    @property
    def alive(self) -> bool:
        """Whether it takes tasks."""
        return not self.ended and not self._has_exited()

    def call(self, function: str, *, timeout: float, **arguments: Any) -> Reply:
        """Run ``module:function`` with keyword ``arguments`` there.

        Args:
            function: dotted module, colon, function.
            timeout: seconds until the reply, the module's import included.
            arguments: JSON-able.

        Raises:
            TaskRaised: it raised; the process lives on unless the CUDA context is lost.
            ProcessDied: the process ended before it replied, or before this call.
            TimeLimit: no reply in time; the process group is killed.
        """
        request = json.dumps({"function": function, "arguments": arguments}).encode()
        if self.ended:
            raise ProcessDied("ended before this call", "")
        if not self._has_exited():  # else the log says why
            self._log.clear()
        try:
            self._control.send_bytes(request)
            message = self._receive(timeout)
        except TimeoutError:
            stack = self._read_stack()
            _, log = self._end()
            raise TimeLimit(timeout, stack, log) from None
        except (EOFError, ConnectionError):
            status, log = self._end(within=self._end_limit)
            raise ProcessDied(status, log) from None
        except BaseException:
            self._end()  # the reply may come yet, and the next call would take it for its own
            raise
        if raised := message.get("raised"):
            log = self._log.tail()
            if cuda_context_lost(raised["traceback"]):
                self.close()
            raise TaskRaised(**raised, log=log)
        return Reply(message["value"], message["seconds"])

    def close(self) -> None:
        """End the process: let it leave by itself, then kill what is left of its group. Twice is as once."""
        if not self.ended:
            self._control.close()
            self._end(within=self._end_limit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _receive(self, limit: float) -> dict[str, Any]:
        """The next message, arrays in place.

        The process's end is looked for too: a child it forked can hold the pipe open after it died.
        """
        deadline = time.monotonic() + limit
        while True:
            exited = self._has_exited()  # asked first: a reply sent before the end counts
            remaining = deadline - time.monotonic()
            if self._control.poll(0 if exited else max(0.0, min(remaining, 0.2))):
                break
            if exited:
                raise EOFError
            if remaining <= 0:
                raise TimeoutError
        message: dict[str, Any] = json.loads(self._control.recv_bytes())
        if "value" in message:
            memory = recv_handle(self._control) if message["memory"] else None
            message["value"] = unpack(Packed(message["value"], message["layout"], memory))
        return message

    def _has_exited(self, within: float = 0.0) -> bool:
        """Whether it has ended, at the latest ``within`` seconds from now.

        It is not reaped here, so that its process group's id is nobody else's when :meth:`_end` kills it.
        """
        deadline = time.monotonic() + within
        while os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        return True

    def _end(self, within: float = 0.0) -> tuple[str, str]:
        """Kill and reap the group, after ``within`` seconds to end by itself; its status and last output."""
        self.ended = True
        by_itself = self._has_exited(within)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        status = "it closed its control pipe and was killed"
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(KILL_LIMIT)
            if by_itself:
                status = exit_status(code)
        log = self._log.tail()
        self._close_files()
        return status, log

    def _close_files(self) -> None:
        for resource in (self._control, self._lifeline, self._log, self._stack):
            resource.close()

    def _read_stack(self) -> str:
        """Every thread's Python stack, or nothing where the process does not answer in a few seconds."""
        with suppress(ProcessLookupError):  # it died, and its launcher lives
            os.kill(self._worker, STACK_SIGNAL)
        deadline = time.monotonic() + STACK_LIMIT
        before = text = ""
        while time.monotonic() < deadline and not (text and text == before):  # until it grows no more
            time.sleep(0.2)
            before, text = text, self._stack.tail()
        return text
