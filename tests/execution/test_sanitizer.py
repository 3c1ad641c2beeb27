# SPDX-License-Identifier: Apache-2.0
"""compute-sanitizer: its command line, what it needs, and what its logs say."""

from __future__ import annotations

import pytest

from humming_conformance.devices import Device
from humming_conformance.execution import sanitizer
from humming_conformance.problems import parse_case

CASE = "dense-w_int8.channel.bf16-a_bf16-m2.n8.k32-random"
H200 = Device("h200", "cuda", sm=90, uuid="GPU-0")

READ = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at over_read(const float *, float *)+0x90
=========     by thread (3,0,0) in block (1,0,0)
=========     Access at 0x7f2b40000400 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f2b40000000 of size 1024 bytes
=========
========= Invalid __global__ write of size 2 bytes
=========     at over_write(float *)+0x40
=========
========= ERROR SUMMARY: 40 errors
========= ERROR SUMMARY: 38 errors were not printed. Use --print-limit option to adjust the number of printed errors
"""
RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at racy(int *)+0x50
=========     and Read access at racy(int *)+0x90 [124 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """A compute-sanitizer on PATH that only knows its version."""
    path = tmp_path / sanitizer.NAME
    path.write_text("#!/bin/sh\necho 'NVIDIA (R) Compute Sanitizer'\necho 'Version 2025.3.1.0 (build 1)'\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return path


@pytest.fixture
def no_tool(tmp_path, monkeypatch):
    """Neither PATH nor the toolkit has it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))


def test_reports_are_read():
    """Each report is one text with kind, kernel, thread and address; the summary counts what wasn't printed."""
    found = sanitizer.read_log(READ)
    assert found.count == 40
    assert found.complete
    first, second = found.reports
    assert first.startswith(
        "Invalid __global__ read of size 4 bytes, at over_read(const float *, float *)+0x90, by thr"
    )
    assert "Access at 0x7f2b40000400 is out of bounds, and is 1 bytes after the nearest allocation" in first
    assert second == "Invalid __global__ write of size 2 bytes, at over_write(float *)+0x40"


@pytest.mark.parametrize(
    ("text", "reports", "complete"),
    [
        (CLEAN, 0, True),
        (RACE, 1, True),
        ("", 0, False),
        ("========= COMPUTE-SANITIZER\n", 0, False),
        ("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n", 0, True),
        ("========= ERROR SUMMARY: 3 errors\n", 3, True),
        ("========= Something never seen before\n=========     in a kernel\n", 1, False),
        ("========= Error: process didn't terminate successfully\n========= Target application failed\n", 0, False),
    ],
)
def test_nothing_is_taken_for_a_clean_log(text, reports, complete):
    """Only a summary makes a log complete; errors that it counts, and words nobody knows, are reports."""
    found = sanitizer.read_log(text)
    assert (found.count, found.complete) == (reports, complete)


@pytest.mark.parametrize(
    ("name", "report", "expected"),
    [
        ("memcheck", "Invalid __global__ write of size 2 bytes, at read_only()+0x40", "unowned write"),
        ("memcheck", "Invalid __global__ read of size 4 bytes, at overwrite()+0x90", "tail"),
        ("memcheck", "Barrier error detected. Invalid arrive, at x", "crash"),
        ("racecheck", "Error: Race reported between Write access at racy", "race"),
        ("initcheck", "Uninitialized __global__ memory read of size 4 bytes, at copy", "tail"),
    ],
)
def test_fault_classes(name, report, expected):
    """The kind of access decides, not the kernel's name."""
    assert sanitizer.fault_class(name, report) == expected


@pytest.mark.parametrize("name", sanitizer.TOOLS)
def test_the_command(tool, tmp_path, name):
    """It begins with the program, names tool and log, and every word that follows belongs to an option."""
    words = sanitizer.command(name, tmp_path / "log")
    assert words[0] == str(tool)
    assert words[1:5] == ("--tool", name, "--log-file", str(tmp_path / "log"))
    assert all(word.startswith("--") != (index % 2 == 0) for index, word in enumerate(words[1:], 1))
    assert sanitizer.version() == "Version 2025.3.1.0 (build 1)"


@pytest.mark.usefixtures("tool")
def test_what_is_missing():
    """No CUDA device and a captured graph cannot be judged under a tool; a plain case on a GPU can."""
    case = parse_case(CASE)
    assert sanitizer.missing("memcheck", case, H200) is None
    cpu = sanitizer.missing("memcheck", case, Device("cpu", "cpu"))
    assert cpu.answer == "absent"
    assert "cpu runs none" in cpu.reason
    graph = sanitizer.missing("memcheck", parse_case(CASE.replace("-random", "-call_graph-random")), H200)
    assert "captures a graph" in graph.reason


@pytest.mark.usefixtures("no_tool")
def test_a_tool_that_is_not_here(tmp_path):
    """It is told with its mend; no command is made up."""
    support = sanitizer.missing("racecheck", parse_case(CASE), H200)
    assert (support.answer, support.reason) == ("absent", "compute-sanitizer is not here")
    assert "CUDA_HOME" in support.mend
    assert sanitizer.version() == ""
    with pytest.raises(FileNotFoundError):
        sanitizer.command("racecheck", tmp_path / "log")
