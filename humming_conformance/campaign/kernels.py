# SPDX-License-Identifier: Apache-2.0
"""Finds kernel adapters: built in, registered by an installed package, or named on the command line."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import humming_conformance.kernels
from humming_conformance.protocols import Kernel, Library

#: Entry point group with which a package brings its own adapters: ``name = "package.module:object"``, the name being
#: the kernel's.
ENTRY_POINT_GROUP = "humming_conformance.kernels"

_ATTRIBUTES = ("name", "device_kinds", "claims", "library", "support", "prepare", "run", "route", "contract")


class KernelError(ValueError):
    """A kernel name or reference can't be used; the text names it, the rule and the mend."""


@dataclass(frozen=True)
class KernelReference:
    """An adapter, and how a kernel process finds it.

    Attributes:
        kernel: the adapter.
        reference: ``package.module:attribute``.
        python_path: the folder to import it from, when it isn't installed.
    """

    kernel: Kernel
    reference: str
    python_path: tuple[str, ...] = ()


def find_kernels(names: Iterable[str] = ()) -> tuple[KernelReference, ...]:
    """The adapters to judge: all built-in and registered ones, or those named.

    Args:
        names: kernel names, or references ``package.module:attribute`` (the current folder is searched too).

    Raises:
        KernelError: no such kernel, the object isn't an adapter, or two of them have one name.
    """
    names = dict.fromkeys(names)
    points = entry_points(group=ENTRY_POINT_GROUP)
    # A broken adapter of somebody else's is no matter to a run that names its kernels.
    wanted = [point for point in points if point.name in names or not names]
    known = _by_name([*_built_in(), *map(_registered, wanted)])
    chosen = []
    for name in names:
        if ":" in name:
            chosen.append(load_kernel(name, search_here=True))
        elif name in known:
            chosen.append(known[name])
        else:
            valid = dict.fromkeys([*known, *(point.name for point in points)])
            near = difflib.get_close_matches(name, valid, n=1, cutoff=0.0)
            raise KernelError(
                f"kernel {name!r} is not known; there are {', '.join(valid)}, or name one of your own as "
                f"package.module:attribute (did you mean {near[0]}?)"
            )
    return tuple(_by_name(chosen).values()) if chosen else tuple(known.values())


def load_kernel(reference: str, *, search_here: bool = False) -> KernelReference:
    """Import ``package.module:attribute`` and check that it is an adapter.

    Raises:
        KernelError: it can't be imported or lacks a part of :class:`~humming_conformance.protocols.Kernel`.
    """
    module_name, _, attribute = reference.partition(":")
    if not (module_name and attribute.isidentifier()):
        raise KernelError(f"kernel {reference!r} is not package.module:attribute, as in my_kernel:kernel")
    here = str(Path.cwd())
    if search_here and here not in sys.path:
        sys.path.append(here)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # any code may run at import
        raise KernelError(
            f"kernel {reference!r}: {module_name} can't be imported ({type(error).__name__}: {error}); give "
            "package.module:attribute of an installed module or of one below the current folder"
        ) from error
    if not hasattr(module, attribute):
        near = difflib.get_close_matches(attribute, vars(module), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise KernelError(f"kernel {reference!r}: {module_name} has no {attribute}{hint}")
    kernel = getattr(module, attribute)
    if isinstance(kernel, type):
        raise KernelError(f"kernel {reference!r} is a class; name an instance of it, as in kernel = {attribute}()")
    missing = [name for name in _ATTRIBUTES if not hasattr(kernel, name)]
    if missing:
        raise KernelError(
            f"kernel {reference!r} is no adapter: it lacks {', '.join(missing)}; see docs/tutorial.md for one in full"
        )
    adapter: Kernel = kernel
    if adapter.library is not None and not isinstance(adapter.library, Library):
        raise KernelError(f"kernel {reference!r}: its library is {adapter.library!r}; it must be a Library or None")
    if not re.fullmatch(r"[a-z0-9_]+", str(adapter.name)):
        raise KernelError(f"kernel {reference!r} is named {adapter.name!r}; names are lower case letters, digits and _")
    levels = module_name.count(".") + hasattr(module, "__path__")  # the file of a package is its __init__.py
    root = Path(module.__file__ or "").resolve().parents[levels]
    installed = module_name.startswith("humming_conformance.")
    return KernelReference(adapter, reference, () if installed else (str(root),))


def _built_in() -> list[KernelReference]:
    package = humming_conformance.kernels
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return [load_kernel(f"{package.__name__}.{name}:kernel") for name in names if not name.startswith("_")]


def _registered(point: EntryPoint) -> KernelReference:
    """The adapter of an entry point; raises KernelError naming the point and its distribution."""
    told = f"entry point {point.name!r} of {point.dist.name if point.dist else 'an unknown distribution'}"
    try:
        found = load_kernel(point.value)
    except KernelError as error:
        raise KernelError(f"{told}: {error}") from error
    if found.kernel.name != point.name:
        raise KernelError(f"{told}: its kernel is named {found.kernel.name!r}; give both one name")
    return found


def _by_name(references: Iterable[KernelReference]) -> dict[str, KernelReference]:
    """By the name that subjects carry; two adapters of one name would share their verdicts."""
    found: dict[str, KernelReference] = {}
    for reference in references:
        name = reference.kernel.name
        if name in found:
            raise KernelError(f"{found[name].reference} and {reference.reference} are both named {name!r}; rename one")
        found[name] = reference
    return found
