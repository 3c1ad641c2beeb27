# SPDX-License-Identifier: Apache-2.0
"""The tutorial shows what is there: its code is the example's, its commands print what it shows."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = DOCS / "examples" / "my_kernel.py"
TUTORIAL = (DOCS / "tutorial.md").read_text()


def _sections() -> dict[str, list[tuple[str, str]]]:
    """By heading, the fenced blocks as (language, text)."""
    parts = re.split(r"^## (.+)$", TUTORIAL, flags=re.MULTILINE)
    blocks = [re.findall(r"^```(\w+)\n(.*?)^```$", part, re.MULTILINE | re.DOTALL) for part in parts[2::2]]
    return dict(zip(parts[1::2], blocks, strict=True))


def _changed(source: str, diff: str) -> str:
    """``source`` after a diff whose old lines it holds exactly once."""
    lines = diff.splitlines(keepends=True)
    old = "".join(line[1:] for line in lines if line[0] in " -")
    new = "".join(line[1:] for line in lines if line[0] in " +")
    assert source.count(old) == 1, old
    return source.replace(old, new)


def _pattern(shown: str) -> str:
    """A regular expression for shown output: ``…`` is any text, on a line of its own any lines."""
    lines = [
        "(?:.*\n)*?" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + "\n"
        for line in shown.splitlines()
    ]
    return "".join(lines)


def _run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one of the tutorial's pytest commands in ``folder``, on the CPU as the tutorial did."""
    program, *arguments = shlex.split(command)
    assert program == "pytest"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, "--device", "cpu"],
        cwd=folder,
        env=environment | {"COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_example_is_one_short_file():
    """A kernel and its adapter take less than 150 lines."""
    assert len(EXAMPLE.read_text().splitlines()) < 150


def test_quoted_code_is_the_examples():
    """Every Python block of the tutorial stands in the example, word for word but for its indent."""
    quoted = [text for blocks in _sections().values() for language, text in blocks if language == "python"]
    assert len(quoted) >= 5
    example = EXAMPLE.read_text()
    for text in quoted:
        assert text in example or indent(text, "    ") in example, text


@pytest.mark.parametrize("heading", ["Run it", "Read a failure", "Declare a weaker field"])
def test_commands_print_what_is_shown(heading: str, tmp_path: Path):
    """Each section's diffs apply to the example in order, and its commands end and print as shown."""
    kernel = tmp_path / "my_kernel.py"
    kernel.write_text(EXAMPLE.read_text())
    commands = 0
    for language, text in _sections()[heading]:
        if language == "diff":
            kernel.write_text(_changed(kernel.read_text(), text))
        elif language == "console":
            command, shown = text.removeprefix("$ ").split("\n", 1)
            result = _run(command, tmp_path)
            assert re.search(_pattern(shown), result.stdout), result.stdout + result.stderr
            assert result.returncode == (1 if "failed in" in shown or "failed," in shown else 0)
            commands += 1
    assert commands
