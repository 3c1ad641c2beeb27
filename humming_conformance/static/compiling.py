# SPDX-License-Identifier: Apache-2.0
"""Compiles CUDA source to machine code and reads it, once for each content: the next run finds the answer."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from humming_conformance.static.machine_code import MachineCode, read_cubin
from humming_conformance.static.toolchain import Toolchain

#: Changes when what is kept of a compilation changes.
_FORMAT = 2


@dataclass(frozen=True)
class Source:
    """What is compiled.

    Attributes:
        code: CUDA C++ with one kernel instantiated.
        arguments: of nvcc, without input, output and include folders.
        includes: folders of headers, whose contents count.
    """

    code: str
    arguments: tuple[str, ...]
    includes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Compiled:
    """What came of it.

    Attributes:
        machine_code: None where the compiler failed or took too long.
        log: what the compiler said, the end of it.
        seconds: that it took when it ran.
        late: whether it was ended at its time limit.
    """

    machine_code: MachineCode | None
    log: str
    seconds: float
    late: bool = False


def compile_cached(source: Source, tools: Toolchain, folder: Path, limit: float) -> Compiled:
    """Compile ``source``, or find in ``folder`` what came of it.

    Args:
        source: what to compile.
        tools: with what; the compiler's version counts.
        folder: of kept results, made when missing. What took too long isn't kept.
        limit: seconds for the compiler.

    Raises:
        UnreadableError: a disassembler couldn't read what the compiler made.
    """
    kept = folder / f"{_key(source, tools)}.json"
    if kept.exists():
        return _from_json(json.loads(kept.read_text(encoding="utf-8")))
    compiled = _compile(source, tools, limit)
    if not compiled.late:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = kept.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(asdict(compiled)), encoding="utf-8")
        temporary.replace(kept)
    return compiled


def _compile(source: Source, tools: Toolchain, limit: float) -> Compiled:
    with tempfile.TemporaryDirectory(prefix="compile-") as name:
        folder = Path(name)
        (folder / "kernel.cu").write_text(source.code, encoding="utf-8")
        includes = [f"-I{include}" for include in source.includes]
        command = [tools.nvcc, folder / "kernel.cu", "-o", folder / "kernel.cubin", *source.arguments, *includes]
        started = time.monotonic()
        late, status, log = _run(list(map(str, command)), limit)
        seconds = time.monotonic() - started
        cubin = folder / "kernel.cubin"
        machine_code = read_cubin(cubin, tools) if not late and status == 0 and cubin.exists() else None
        return Compiled(machine_code, log[-8000:], round(seconds, 2), late)


def _run(command: Sequence[str], limit: float) -> tuple[bool, int, str]:
    """Whether it was late, its status, its output. nvcc starts others, which end with it."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            process.wait(limit)
            late = False
        except subprocess.TimeoutExpired:
            late = True
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        return late, process.returncode, output.read().decode(errors="replace")


def _key(source: Source, tools: Toolchain) -> str:
    parts: list[Any] = [_FORMAT, tools.version, source.code, source.arguments, *map(_headers, source.includes)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@cache
def _headers(folder: str) -> str:
    """A hash of all headers below a folder."""
    sha = hashlib.sha256()
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file():
            sha.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return sha.hexdigest()


def _from_json(stored: dict[str, Any]) -> Compiled:
    code = stored["machine_code"]
    return Compiled(**{**stored, "machine_code": None if code is None else MachineCode(**code)})
