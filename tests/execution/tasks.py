# SPDX-License-Identifier: Apache-2.0
"""Tasks that the kernel processes of these tests run; the good ones first."""

from __future__ import annotations

import ctypes
import importlib
import itertools
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

calls = itertools.count(1)


def count():
    """How often this process has been called, and which process it is."""
    return {"calls": next(calls), "pid": os.getpid()}


def echo(**arguments):
    """The arguments."""
    return arguments


def state():
    """What a process is started with."""
    return {
        "environment": dict(os.environ),
        "path": sys.path,
        "arguments": sys.argv[1:],
        "core": list(resource.getrlimit(resource.RLIMIT_CORE)),
        "session": os.getsid(0),
        "descriptors": descriptors(),
    }


def descriptors():
    """What this process has open; the descriptor of the listing itself is closed again by then."""
    paths = list(Path("/proc/self/fd").iterdir())
    return [str(path.readlink()) for path in paths if os.path.lexists(path)]


def where(module):
    """The file a module is imported from."""
    return {"file": importlib.import_module(module).__file__}


def arrays():
    """Arrays of many dtypes, layouts and places."""
    grid = np.arange(60, dtype=np.uint16).reshape(5, 12)
    return {
        "codes": grid,
        "parts": [{"transposed": grid.T, "strided": grid[::2, 1::3]}, grid[::-1]],
        "pair": (np.uint8(7), np.float32(0.5), np.True_),
        "empty": np.empty((0, 4), np.float16),
        "scalar": np.array(2.5),
        "swapped": np.arange(4, dtype=">f4"),
        "words": np.array(["gemm", "moe"]),
        "nothing": None,
        "numbers": [1, -2.5, float("inf"), "é"],
    }


def large(mebibytes):
    """Random bytes, from a fixed seed."""
    return {"bytes": np.random.default_rng(7).integers(0, 256, mebibytes << 20, dtype=np.uint8)}


def returns(kind):
    """A result that cannot be sent."""
    import ml_dtypes

    return {
        "list": [],
        "set": {"a": {"b": {1}}},
        "key": {"a": {1: 2}},
        "object": {"a": np.array([None])},
        "bfloat16": {"a": [np.zeros(3, ml_dtypes.bfloat16)]},
        "complex": {"a": np.complex64(1j)},
    }[kind]


def print_garbage(mebibytes, then_raise):
    """Fill both outputs, as bytes that are no text and as C code does."""
    line = b'\xff\x00{"value": 1}\n'
    for _ in range((mebibytes << 20) // len(line)):
        os.write(1, line)
    os.write(2, b"the last line\n")
    if then_raise:
        raise ValueError("after the garbage")
    return {"ok": True}


class UnprintableError(Exception):
    """Its text cannot be made."""

    def __str__(self):
        raise RuntimeError


def raises(kind, message=""):
    """Raise."""
    if kind == "caused":
        try:
            raise RuntimeError(message)  # noqa: TRY301 - a cause is wanted
        except RuntimeError as error:
            raise ValueError("could not prepare") from error
    raise {
        "value": ValueError(message),
        "runtime": RuntimeError(message),
        "exit": SystemExit(3),
        "unprintable": UnprintableError(),
    }[kind]


def die(how):
    """End this process the hard way."""
    match how:
        case "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        case "SIGSEGV":
            read_null()
        case "SIGABRT":
            os.abort()
        case "exit":
            os._exit(3)
        case "close":
            os.closerange(3, 256)
    time.sleep(1000)


def read_null():
    """Follow a null pointer."""
    ctypes.string_at(0)


def die_with_child_holding_the_pipe(pid_file):
    """Fork, leave the child with every descriptor, and exit."""
    child = os.fork()
    if child == 0:
        time.sleep(1000)
    Path(pid_file).write_text(str(child))
    os._exit(7)


def hang(how, marker):
    """Write this process's id and that of a child to ``marker``, and never return."""
    child = subprocess.Popen(["/bin/sleep", "1000"])
    Path(marker + ".new").write_text(f"{os.getpid()} {child.pid}")
    Path(marker + ".new").rename(marker)
    {"python": spin, "native": native_sleep, "native_with_lock": native_sleep_with_lock}[how]()


def spin():
    """Loop in Python."""
    while True:
        pass


def native_sleep():
    """Sleep in C, the interpreter's lock released."""
    ctypes.CDLL(None).sleep(1000)


def native_sleep_with_lock():
    """Sleep in C, no other Python thread able to run."""
    ctypes.PyDLL(None).sleep(1000)


def interrupt_parent():
    """What Ctrl-C does to the parent, while it waits for this."""
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(1000)
