# SPDX-License-Identifier: Apache-2.0
"""What the head of a ledger says about the machine and the software: read from metadata, nothing is imported."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import humming_conformance
from humming_conformance.campaign.plan import Task
from humming_conformance.devices import describe_gpus
from humming_conformance.execution import sanitizer

_PACKAGES = ("torch", "triton", "numpy", "ml_dtypes", "pytest", "pytest-xdist")

#: Keys whose change makes verdicts of two runs incomparable; a ledger is only resumed where they agree.
IDENTITY = ("gpus", "packages", "libraries", "kernels", "waivers", "sanitizer", "conformance")


def describe_environment(plan: Sequence[Task], waivers: Sequence[Path], sanitize: str = "") -> dict[str, Any]:
    """What is judged, where and by what, JSON-able; sources and waiver files as short hashes of their contents.

    ``sanitize``: the memory checker that kernel processes run under, if any.
    """
    gpus = describe_gpus()
    builds = {task.build.name: task.build for task in plan if task.build is not None}
    references = sorted({task.kernel.reference for task in plan})
    return {
        "system": {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "machine": platform.machine(),
        },
        "packages": {name: _version(name) for name in _PACKAGES},
        "gpus": [{key: gpu[key] for key in ("name", "driver", "cuda", "sm")} for gpu in gpus],
        "clocks": [gpu["clocks"] for gpu in gpus],
        "libraries": {
            name: {"version": build.version, "build_hash": build.build_hash} for name, build in builds.items()
        },
        "kernels": {reference: source_hash(reference) for reference in references},
        "waivers": _hash_of(waivers),
        "sanitizer": {"tool": sanitize, "version": sanitizer.version()} if sanitize else None,
        "compiler": shutil.which("nvcc") or "",
        "conformance": {"version": humming_conformance.__version__, "commit": _commit(), "source": _own_hash()},
    }


def source_hash(reference: str) -> str:
    """A short hash of a loaded adapter's source: its file, or all of its folder where it is a package."""
    file = Path(sys.modules[reference.partition(":")[0]].__file__ or "")
    files = sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]
    return _hash_of(files)


def _own_hash() -> str:
    """A short hash of our own source, which a commit doesn't name while it is being edited."""
    return _hash_of(sorted(Path(humming_conformance.__file__).parent.rglob("*.py")))


def _hash_of(files: Iterable[Path]) -> str:
    sha = hashlib.sha256()
    for file in files:
        sha.update(file.name.encode() + b"\0" + file.read_bytes())
    return sha.hexdigest()[:12]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _commit() -> str:
    """The commit of the checkout we run from, ``-dirty`` with uncommitted changes; empty for an installed copy."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
