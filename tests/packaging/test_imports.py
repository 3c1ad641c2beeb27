# SPDX-License-Identifier: Apache-2.0
"""Who imports what: the layers, the libraries under test, and what the controller never loads."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "humming_conformance"
HEAVY = {"torch", "triton", "humming", "vllm"}


def loaded_by(statements):
    """The names of all modules that a fresh interpreter holds after `statements`."""
    done = subprocess.run(
        [sys.executable, "-c", f"{statements}\nimport sys\nprint(*sys.modules, sep='\\n')"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def lint_imports(cwd):
    """Check the contracts of pyproject.toml on the package in `cwd`."""
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def imported_by(path):
    """The top-level names of the absolute imports in a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.split(".")[0]


def test_plugin_is_light():
    """The controller loads the plugin, and neither torch nor a kernel library with it."""
    assert not HEAVY & loaded_by("import humming_conformance.pytest_plugin")


def test_rooms_are_light():
    """No room outside kernels/ loads torch or a kernel library when it is imported."""
    files = sorted(PACKAGE.rglob("*.py"))  # does not follow the links, so neither kernels/ nor suites/
    modules = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    assert "humming_conformance.protocols" in modules
    assert not HEAVY & loaded_by("import " + ", ".join(modules))


@pytest.mark.parametrize("room", ["formats", "problems", "oracle"])
def test_mathematics_needs_only_numpy(room):
    """What decides right from wrong imports NumPy, ml_dtypes and the standard library."""
    files = sorted((PACKAGE / room).glob("**/*.py"))
    assert files
    allowed = sys.stdlib_module_names | {"numpy", "ml_dtypes", "humming_conformance"}
    assert {file.name: foreign for file in files if (foreign := set(imported_by(file)) - allowed)} == {}


def test_contracts_hold():
    """Imports go down the list of rooms, and only the named rooms import a library."""
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("room", "statement", "contract"),
    [
        ("formats", "from humming_conformance import protocols", "Imports only go down the list of rooms"),
        ("kernels", "from humming_conformance import suites", "Imports only go down the list of rooms"),
        ("problems", "import triton", "Only kernels/ imports a library under test"),
        ("oracle", "import torch", "Only what runs in a kernel process imports torch"),
    ],
)
def test_contracts_catch(tmp_path, room, statement, contract):
    """One forbidden import, in a function of a new file, breaks the contract that forbids it."""
    for folder in ("humming_conformance", "kernels", "suites", "baselines"):
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "humming_conformance" / room / "seeded.py").write_text(f"def f():\n    {statement}\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout
    assert f"{contract} BROKEN" in done.stdout
