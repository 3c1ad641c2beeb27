# SPDX-License-Identifier: Apache-2.0
"""Who imports what: the layers, the libraries under test, and what the controller never loads."""

import ast
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "humming_conformance"
HEAVY = {"torch", "triton", "humming", "vllm"}
TORCH_TWIN = PACKAGE / "problems" / "torch_arrays.py"  # the operand generator on the device
KERNEL_PROCESS = {
    PACKAGE / name
    for name in (
        *(f"execution/{name}.py" for name in ("build_case", "calls", "guarded", "run_case", "select_cases")),
        *(f"measure/{name}.py" for name in ("roofs", "round", "timing")),
    )
}  # run nowhere else


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
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.split(".")[0]


def test_plugin_is_light():
    """The controller loads the plugin, and neither torch nor a kernel library with it."""
    assert not HEAVY & loaded_by("import humming_conformance.pytest_plugin")


def test_rooms_are_light():
    """No room outside kernels/ loads torch or a kernel library when it is imported."""
    files = set(PACKAGE.rglob("*.py")) - {TORCH_TWIN} - KERNEL_PROCESS  # rglob follows no links
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    modules = sorted(name.removesuffix(".__init__") for name in names)
    assert "humming_conformance.protocols" in modules
    assert not HEAVY & loaded_by("import " + ", ".join(modules))


@pytest.mark.parametrize("room", ["formats", "problems", "oracle"])
def test_mathematics_needs_only_numpy(room):
    """What decides right from wrong imports NumPy, ml_dtypes and the standard library."""
    files = set((PACKAGE / room).glob("**/*.py")) - {TORCH_TWIN}
    assert files
    allowed = sys.stdlib_module_names | {"numpy", "ml_dtypes", "humming_conformance"}
    assert {file.name: foreign for file in files if (foreign := set(imported_by(file)) - allowed)} == {}


def test_every_import_is_declared():
    """What a room imports from outside is a dependency of ours, not a guest of another package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {Requirement(text).name for text in project["dependencies"]}
    imported = {name for file in PACKAGE.rglob("*.py") for name in imported_by(file)}
    assert "numpy" in imported
    outside = imported - sys.stdlib_module_names - {"humming_conformance"}
    owners = packages_distributions()
    assert {name for name in outside if declared.isdisjoint(owners.get(name, []))} == set()


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
