# SPDX-License-Identifier: Apache-2.0
"""What the head of a ledger says about the machine and the software: read from metadata, nothing is imported."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import humming_conformance
from humming_conformance.campaign.plan import Task
from humming_conformance.devices import describe_gpus

_PACKAGES = ("torch", "triton", "numpy", "ml_dtypes", "pytest", "pytest-xdist")

#: Keys whose change makes verdicts of two runs incomparable; a ledger is only resumed where they agree.
IDENTITY = ("gpus", "packages", "libraries", "conformance")


def describe_environment(plan: Sequence[Task]) -> dict[str, Any]:
    """JSON-able description: system, packages, GPUs with driver and clocks, library builds, our own commit."""
    gpus = describe_gpus()
    builds = {task.build.name: task.build for task in plan if task.build is not None}
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
        "conformance": {"version": humming_conformance.__version__, "commit": _commit()},
    }


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
