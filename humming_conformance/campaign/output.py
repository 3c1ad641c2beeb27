# SPDX-License-Identifier: Apache-2.0
"""Files that the user names for what we write."""

from __future__ import annotations

from pathlib import Path

from humming_conformance.campaign.plan import PlanError


def output_file(option: str, text: str) -> Path:
    """Where to write a file, checked before anything is judged.

    Raises:
        PlanError: it is a folder, or its folder doesn't exist; the text names ``option``.
    """
    path = Path(text)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise PlanError(f"{option} {text!r} can't be written; give a file in a folder that exists")
    return path
