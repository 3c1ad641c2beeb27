# SPDX-License-Identifier: Apache-2.0
"""pyproject.toml and constraints.txt: exceptions have reasons, dependencies a floor and a tested pin."""

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "pyproject.toml").read_text()
TABLES = tomllib.loads(TEXT)
PROJECT = TABLES["project"]
EXTRAS = PROJECT["optional-dependencies"]
RUFF = TABLES["tool"]["ruff"]["lint"]
PYTEST = TABLES["tool"]["pytest"]["ini_options"]

REQUIREMENTS = [Requirement(text) for text in chain(PROJECT["dependencies"], *EXTRAS.values())]
REASON = re.compile(r"#\s+\S+\s+\S+.*$")


def lines_of(table, key):
    """The lines between `key = [` and `]` in the table headed `[table]`."""
    section = TEXT.split(f"\n[{table}]\n")[1].split("\n[")[0]
    return section.split(f"{key} = [\n")[1].split("\n]")[0].split("\n")


def pins():
    """The exact versions in constraints.txt by distribution name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


@pytest.mark.parametrize(
    ("table", "key", "values"),
    [
        ("project", "dependencies", PROJECT["dependencies"]),
        *(("project.optional-dependencies", extra, values) for extra, values in EXTRAS.items()),
        ("tool.pytest.ini_options", "filterwarnings", PYTEST["filterwarnings"]),
        ("tool.ruff.lint", "ignore", RUFF["ignore"]),
        *(("tool.ruff.lint.per-file-ignores", f'"{key}"', v) for key, v in RUFF["per-file-ignores"].items()),
    ],
)
def test_every_entry_has_a_reason(table, key, values):
    """Each dependency, lint exception and warning filter has a line of its own, with its reason."""
    lines = lines_of(table, key)
    assert len(lines) == len(values)
    assert [line for line in lines if not REASON.search(line)] == []


def test_every_type_exception_has_a_reason():
    """Each setting that loosens mypy for a module says why."""
    sections = [rest.split("\n[")[0] for rest in TEXT.split("[[tool.mypy.overrides]]\n")[1:]]
    assert len(sections) == len(TABLES["tool"]["mypy"]["overrides"])
    settings = [line for section in sections for line in section.strip().split("\n")]
    assert [line for line in settings if not line.startswith("module = ") and not REASON.search(line)] == []


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement.name)
def test_dependency_has_a_floor_only(requirement):
    """A dependency names the oldest version that works and leaves newer ones to the user."""
    assert [clause.operator for clause in requirement.specifier] == [">="]


@pytest.mark.parametrize(
    "requirement",
    [r for r in REQUIREMENTS if r.name != "humming-kernels"],
    ids=lambda requirement: requirement.name,
)
def test_dependency_is_pinned_for_tests(requirement):
    """constraints.txt pins each dependency within its floor; the library judged stays free."""
    assert requirement.specifier.contains(pins()[requirement.name])
