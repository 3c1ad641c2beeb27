# SPDX-License-Identifier: Apache-2.0
"""The inside of a kernel process: takes one task after another, and ends with its parent.

Started by ``process.py`` as ``python -P -m humming_conformance.execution.worker CONTROL LIFELINE STACK``,
three inherited descriptors. Requests and replies are JSON over CONTROL, so that whatever a library prints
harms neither; arrays follow a reply as the descriptor of their memory (``arrays.py``).
"""

from __future__ import annotations

import faulthandler
import fcntl
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from typing import Any

import humming_conformance
from humming_conformance.execution.arrays import pack
from humming_conformance.execution.process import STACK_SIGNAL


def main() -> None:
    """Serve tasks until the parent closes its end of CONTROL."""
    control_fd, lifeline, stack = (int(argument) for argument in sys.argv[1:])
    del sys.argv[1:]
    for descriptor in (control_fd, lifeline, stack):
        os.set_inheritable(descriptor, False)
    _end_with_parent(lifeline)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    faulthandler.enable()
    faulthandler.register(STACK_SIGNAL, file=stack)
    control: Connection[Any, Any] = Connection(control_fd)
    hello = {"package": humming_conformance.__file__, "pid": os.getpid()}
    control.send_bytes(json.dumps(hello).encode())
    while True:
        try:
            request = json.loads(control.recv_bytes())
        except EOFError:
            return
        reply, memory = _serve(request["function"], request["arguments"])
        control.send_bytes(reply)
        if memory is not None:
            send_handle(control, memory, None)
            os.close(memory)


def _serve(function: str, arguments: dict[str, Any]) -> tuple[bytes, int | None]:
    """Run one task; the reply to send, and the memory of its arrays to send after it."""
    try:
        module, _, name = function.partition(":")
        task = getattr(importlib.import_module(module), name)
        started = time.perf_counter()
        value = task(**arguments)
        seconds = time.perf_counter() - started
        packed = pack(value)
    except BaseException as error:  # noqa: BLE001 - SystemExit too: no exception of a task ends the process
        return json.dumps({"raised": _describe(error)}).encode(), None
    reply = {
        "value": packed.tree,
        "layout": packed.layout,
        "memory": packed.file is not None,
        "seconds": seconds,
    }
    return json.dumps(reply).encode(), packed.file


def _describe(error: BaseException) -> dict[str, str]:
    """An exception in words; one that cannot even be printed is still reported."""
    kind = type(error)
    try:
        message = str(error)
    except Exception as second:  # noqa: BLE001 - any code may run here
        message = f"(its text could not be made: {type(second).__name__})"
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return {"type": name, "message": message, "traceback": "".join(traceback.format_exception(error))}


def _end_with_parent(lifeline: int) -> None:
    """Have the kernel kill this process group once the parent's end of ``lifeline`` is closed.

    The parent never writes to it, so the only event is its end. A thread waiting for that would not run while
    a native call hangs with the interpreter's lock held, and Linux's parent-death signal comes when the
    *thread* that started the process ends.
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # closed before the line above
        sys.exit(1)


if __name__ == "__main__":
    main()
