# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's compute-sanitizer around a kernel process: how it is started, what it needs, what its log says.

Options are those of docs.nvidia.com/compute-sanitizer; CUDA 12 and newer have all of them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from humming_conformance.devices import Device
from humming_conformance.problems import Case
from humming_conformance.protocols import Support

NAME = "compute-sanitizer"

#: How many times longer than usual a process under it may take to start, to run a case and to end.
SLOWDOWN = 10.0

#: Every tensor is to be an allocation of the driver's: in a cached block of megabytes, what lies behind it is valid.
ENVIRONMENT: Mapping[str, str] = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}

_COMMON = (
    # Compilers that a library starts have no kernels.
    *("--target-processes", "application-only"),
    # Importing a library takes longer than the 10 s it would wait for CUDA, and a case may fail before it.
    *("--launch-timeout", "0", "--require-cuda-init", "no", "--check-exit-code", "no"),
    # A port for each of the sanitized processes of a machine.
    *("--max-connections", "64"),
    *("--show-backtrace", "no", "--print-limit", "20"),
)

#: Parts of mangled kernel names of torch and cuBLAS.
_FOREIGN = ("at6native", "nvjet")

#: The tools and their own options.
TOOLS: Mapping[str, tuple[str, ...]] = {
    "memcheck": (
        # Libraries ask the driver for what it may not have, and go on.
        *("--report-api-errors", "no"),
        # Allocations may lie back to back: these bytes between them belong to nobody.
        *("--padding", "1024"),
        # The kernel ends at its first wrong access, the context does not: the case is judged to its end.
        *("--destroy-on-device-error", "kernel"),
    ),
    # Below errors it tells of hazards that may be meant, as when all threads write the same value. Whether torch's
    # and cuBLAS's kernels are free of races is not asked here.
    "racecheck": (
        *("--racecheck-report", "analysis", "--racecheck-detect-level", "error"),
        *(word for name in _FOREIGN for word in ("--kernel-name-exclude", f"kns={name}")),
    ),
    # Copies of memory that nobody wrote are no reads of a kernel. No kernel can be left out: it is their writes, and
    # copies from the host, that initialize memory.
    "initcheck": ("--check-api-memory-access", "no"),
}

_SUMMARY = re.compile(r"^=+ (?:ERROR|RACECHECK) SUMMARY: (\d+)", re.MULTILINE)
_BOILERPLATE = re.compile(r"COMPUTE-SANITIZER|[A-Z]+ SUMMARY|Target application|Error: process didn't|Error: Target")


@dataclass(frozen=True)
class Findings:
    """What the log of one case says.

    Attributes:
        reports: one text a report: what, kernel, thread, address.
        count: of the reports, those that were not printed included.
        complete: whether the tool came to its summary; without it, nothing says that it looked to the end.
    """

    reports: tuple[str, ...]
    count: int
    complete: bool


def missing(tool: str, case: Case, device: Device) -> Support | None:
    """Why a case cannot be judged under the tool here; None where it can."""
    if device.kind != "cuda":
        return Support("absent", f"{tool} looks into CUDA kernels, and {device.name} runs none", "leave out --sanitize")
    if "graph" in case.call:
        reason = f"{tool} needs a driver allocation for each tensor, which torch refuses while it captures a graph"
        return Support("absent", reason, "leave out --sanitize, or the call option graph")
    if find() is None:
        return Support(
            "absent", f"{NAME} is not here", "install the CUDA toolkit's, and put it on PATH or set CUDA_HOME"
        )
    return None


def find() -> str | None:
    """The path of compute-sanitizer: on PATH, in CUDA_HOME, or where the toolkit is usually."""
    folders = [os.environ.get("PATH", ""), str(Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin"))]
    return shutil.which(NAME, path=os.pathsep.join(folders))


def version() -> str:
    """What compute-sanitizer says of its version, one line; empty where it is not here or says nothing."""
    path = find()
    if path is None:
        return ""
    try:
        done = subprocess.run([path, "--version"], check=True, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return ""
    return next((line.strip() for line in done.stdout.splitlines() if line.startswith("Version")), "")


def command(tool: str, log: Path) -> tuple[str, ...]:
    """The words before an interpreter's that put it under the tool, reporting to the file ``log``.

    Raises:
        FileNotFoundError: compute-sanitizer is not here; :func:`missing` tells that before.
    """
    path = find()
    if path is None:
        raise FileNotFoundError(f"{NAME} is not here")
    return (path, "--tool", tool, "--log-file", str(log), *_COMMON, *TOOLS[tool])


def read_log(text: str) -> Findings:
    """The findings in a log.

    A report is a line that starts at the first column behind the prefix of ``=`` and the indented ones that follow.
    """
    reports: list[list[str]] = []
    for line in text.splitlines():
        content = re.sub(r"^=+ ?", "", line)
        if not content.strip():
            continue
        if content[0] != " ":
            reports.append([content.strip()])
        elif reports:
            reports[-1].append(content.strip())
    told = tuple(", ".join(lines) for lines in reports if not _BOILERPLATE.match(lines[0]))
    counts = [int(count) for count in _SUMMARY.findall(text)]
    return Findings(told, max([len(told), *counts]), bool(counts))


def fault_class(tool: str, report: str) -> str:
    """The fault class that a report of the tool speaks for."""
    if tool == "racecheck":
        return "race"
    kind = report.partition(", ")[0].lower()
    if tool == "memcheck" and "write" in kind:
        return "unowned write"
    return "tail" if "read" in kind else "crash"
