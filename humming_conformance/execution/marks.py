# SPDX-License-Identifier: Apache-2.0
"""Marks in a JIT folder: empty files that say what was built into it.

A mark lies in the folder that it vouches for, so that both go together. Where it is wrong nevertheless (somebody
removed a compiled kernel), the kernel is compiled when it is needed.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

#: The marks' own folder in a JIT folder.
FOLDER = "built_ahead"


def mark(folder: Path, *parts: str) -> Path:
    """The mark in a JIT folder of what these texts name, set or not."""
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return folder / FOLDER / digest[:32]


def set_mark(path: Path) -> None:
    """Set a mark; setting it twice is as once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
