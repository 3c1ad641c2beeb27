# SPDX-License-Identifier: Apache-2.0
"""Which build of a library is judged: the installed one, a released version, a wheel or a folder.

No library is imported here; a build that is not the installed one lies in a folder that its kernel processes
search first (:attr:`LibraryBuild.path`, :attr:`ProcessSpec.python_path`).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

#: Hex digits of a hash that names a build: 48 bits.
HASH_DIGITS = 12

FORMS = "a VERSION (0.1.19), a WHEEL file (….whl) or the FOLDER that holds the module"


class LibraryError(Exception):
    """A request for a library build that cannot be met; the message names it, the rule and the mend."""


@dataclass(frozen=True)
class LibraryBuild:
    """A library build, ready to be loaded.

    Attributes:
        name: as ``--library`` calls the library.
        version: its distribution's; ``unknown`` for a folder without metadata.
        path: the folder to search first; None for the installed build.
        build_hash: of the module's files, names and contents: equal for equal code, however it came here.
    """

    name: str
    version: str
    path: str | None
    build_hash: str


def parse_library_request(text: str) -> tuple[str, str]:
    """``NAME=REQUEST`` as given to ``--library``, in two.

    Raises:
        LibraryError: it has another form.
    """
    name, equals, request = text.partition("=")
    if not (equals and re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) and request):
        raise LibraryError(f"--library {text!r}: write NAME=REQUEST, REQUEST being {FORMS}")
    return name, request


def resolve_library(name: str, distribution: str, module: str, request: str | None) -> LibraryBuild:
    """Find the build that ``request`` asks for; a version or wheel is first installed into the user's cache.

    Args:
        name: as ``--library`` calls the library.
        distribution: the name it is published under.
        module: the top-level package it is imported as.
        request: None for what is installed here; else a version, wheel or folder.

    Raises:
        LibraryError: there is no such build, or it lacks the module.
    """
    if request is None:
        return _installed(name, distribution, module)
    wanted = _Wanted(name, distribution, module, request)
    if request.endswith(".whl"):
        return _wheel(wanted)
    if re.fullmatch(r"\d+(\.\w+)*([-+]\w+(\.\w+)*)?", request):
        return _cached(wanted, f"{distribution}=={request}", key=request)
    folder = Path(request).expanduser().absolute()
    if not folder.is_dir():
        raise LibraryError(f"{wanted}: neither a version nor an existing folder; give {FORMS}")
    return _build(wanted, folder)


@dataclass(frozen=True)
class _Wanted:
    """What is asked for, other than the installed build."""

    name: str
    distribution: str
    module: str
    request: str

    def __str__(self) -> str:
        return f"library {self.name}={self.request}"


def _installed(name: str, distribution: str, module: str) -> LibraryBuild:
    """The build that ``import`` finds in this environment."""
    try:
        found = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        raise LibraryError(
            f"library {name}: {distribution} is not installed here; run 'pip install {distribution}', "
            f"or name a build with --library {name}=REQUEST, REQUEST being {FORMS}"
        ) from None
    top = _module_files(Path(str(found.locate_file(""))), module)
    if top is None:  # an editable install: its files lie elsewhere
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise LibraryError(
                f"library {name}: {distribution} {found.version} is installed here without its module "
                f"{module}; install it again"
            )
        top = Path(spec.origin)
        top = top.parent if spec.submodule_search_locations is not None else top
    return LibraryBuild(name, found.version, None, _hash(top))


def _wheel(wanted: _Wanted) -> LibraryBuild:
    """The build in a wheel file."""
    wheel = Path(wanted.request).expanduser().absolute()
    if not wheel.is_file():
        raise LibraryError(f"{wanted}: there is no such wheel file; give an existing one")
    parts = wheel.name.split("-")
    if len(parts) < 5 or _normalized(parts[0]) != _normalized(wanted.distribution):
        prefix = _normalized(wanted.distribution).replace("-", "_")
        raise LibraryError(
            f"{wanted}: no wheel of {wanted.distribution}; give one, its file name begins {prefix}-VERSION-"
        )
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:HASH_DIGITS]
    return _cached(wanted, str(wheel), key=f"{parts[1]}-{digest}")


def _cached(wanted: _Wanted, requirement: str, key: str) -> LibraryBuild:
    """The build that pip makes of ``requirement``, installed once per ``key`` and Python version."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    libraries = cache / "humming-conformance" / "libraries" / str(sys.implementation.cache_tag)
    builds = libraries / wanted.distribution
    builds.mkdir(parents=True, exist_ok=True)
    folder = builds / key
    with FileLock(builds / f"{key}.lock"):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=builds) as temporary:
                target = Path(temporary) / "install"
                _pip_install(wanted, requirement, target)
                _build(wanted, target)  # what lacks the module is not kept
                target.rename(folder)
    return _build(wanted, folder)


def _pip_install(wanted: _Wanted, requirement: str, target: Path) -> None:
    """Install ``requirement`` alone into the folder ``target``; its dependencies are this environment's."""
    quiet = ("--quiet", "--no-input", "--disable-pip-version-check")
    command = [sys.executable, "-P", "-m", "pip", "install", *quiet, "--no-deps", "--target", str(target)]
    done = subprocess.run(
        [*command, requirement], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise LibraryError(
            f"{wanted}: pip could not install {requirement}; "
            f"correct the request, or what pip complains of:\n{done.stderr.strip()[-2000:]}"
        )


def _build(wanted: _Wanted, folder: Path) -> LibraryBuild:
    """The build that lies in ``folder``."""
    top = _module_files(folder, wanted.module)
    if top is None:
        raise LibraryError(
            f"{wanted}: it holds no {wanted.module}/__init__.py; "
            f"give a folder or build of {wanted.distribution} that does"
        )
    versions = [
        found.version
        for found in importlib.metadata.distributions(path=[str(folder)])
        if _normalized(found.name) == _normalized(wanted.distribution)
    ]
    return LibraryBuild(wanted.name, versions[0] if versions else "unknown", str(folder), _hash(top))


def _module_files(folder: Path, module: str) -> Path | None:
    """The package folder or file of ``module`` in ``folder``."""
    if (folder / module / "__init__.py").is_file():
        return folder / module
    return folder / f"{module}.py" if (folder / f"{module}.py").is_file() else None


def _hash(top: Path) -> str:
    """Short hash over the names and contents of a module's files, compiled Python apart.

    Contents, never an installer's list of them: a build is often a copy with one line changed.
    """
    files = [top] if top.is_file() else sorted(path for path in top.rglob("*") if path.is_file())
    total = hashlib.sha256()
    for path in files:
        relative = path.relative_to(top.parent)
        if "__pycache__" not in relative.parts:
            with path.open("rb") as file:
                total.update(f"{relative.as_posix()}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()[:HASH_DIGITS]


def _normalized(distribution: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", distribution).lower()
