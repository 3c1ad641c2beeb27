# SPDX-License-Identifier: Apache-2.0
"""Copies of a library with one line changed."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
from pathlib import Path

from humming_conformance.execution import LibraryBuild
from humming_conformance.protocols import Library
from tests.seeded_faults.fault import Fault


class NotApplicableError(ValueError):
    """A release lacks what a fault changes; the text says which fault, file and release."""


def library_folder(build: LibraryBuild, library: Library) -> Path:
    """The folder that holds a build's package and metadata."""
    if build.path is not None:
        return Path(build.path)
    spec = importlib.util.find_spec(library.module)
    if spec is None or spec.origin is None:
        raise NotApplicableError(f"{library.module} isn't installed as a package; name a build with --library")
    return Path(spec.origin).parents[1]


def change_of(fault: Fault) -> str:
    """12 hex digits that name what a fault changes, so that results of a fault edited since don't count for it."""
    return hashlib.sha256(repr((fault.file, fault.text, fault.replacement)).encode()).hexdigest()[:12]


def check_applicable(fault: Fault, folder: Path, library: Library, version: str) -> str:
    """The source that a fault changes.

    Raises:
        NotApplicableError: this release has no such file, or not exactly one such place in it.
    """
    path = folder / library.module / fault.file
    release = f"{library.distribution} {version}"
    if not path.is_file():
        raise NotApplicableError(f"{fault.name}: {release} has no {library.module}/{fault.file}")
    source = path.read_text(encoding="utf-8")
    count = source.count(fault.text)
    if count != 1:
        raise NotApplicableError(
            f"{fault.name}: its text stands {count} times in {library.module}/{fault.file} of {release}, not once"
        )
    return source


def seed(fault: Fault, folder: Path, target: Path, library: Library, version: str) -> None:
    """Copy the library in ``folder`` to the new folder ``target`` with one place changed.

    Args:
        fault: what to change.
        folder: holds the package and, beside it, its metadata.
        target: does not exist yet.
        library: names package and distribution.
        version: of the release, for the error text.

    Raises:
        NotApplicableError: the release lacks what the fault changes; nothing is copied.
    """
    source = check_applicable(fault, folder, library, version)
    metadata = folder.glob(f"{library.distribution.replace('-', '_')}-*.dist-info")
    for part in (folder / library.module, *metadata):
        shutil.copytree(part, target / part.name, ignore=shutil.ignore_patterns("__pycache__"))
    changed = target / library.module / fault.file
    changed.write_text(source.replace(fault.text, fault.replacement), encoding="utf-8")
