# SPDX-License-Identifier: Apache-2.0
"""Carries NumPy arrays from one process to another through shared memory that has no name.

:func:`pack` takes the arrays out of a value and lays them out in one anonymous file; its descriptor goes
over a Unix socket and :func:`unpack` maps it. With no name there is nothing to leave behind, whichever
process dies when, and the size of ``/dev/shm`` (64 MiB in a container by default) is no limit.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Arrays start at multiples of this many bytes: enough for every dtype and for vector loads.
ALIGNMENT = 64

#: Kinds of dtype whose ``str`` names them completely.
PLAIN_KINDS = "biufcmMSU"

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Packed:
    """A value in two parts.

    Attributes:
        tree: the value with None in place of every array; JSON-able.
        layout: one JSON-able record per array: its path in the tree, dtype, shape and offset in bytes.
        file: descriptor of the memory holding the arrays, for whoever has this object to close; None where
            the arrays hold no bytes.
    """

    tree: dict[str, Any]
    layout: list[dict[str, Any]]
    file: int | None


def pack(value: object) -> Packed:
    """Separate a dict of JSON-able values and arrays, nested in dicts and lists, into tree and memory.

    Tuples become lists and NumPy scalars Python ones.

    Raises:
        TypeError: it is no dict, something in it is neither JSON-able nor an array, or an array's dtype is no
            plain NumPy dtype.
    """
    if not isinstance(value, dict):
        raise TypeError(f"the result is a {type(value).__name__}: return a dict")
    arrays: list[tuple[Path, NDArray[Any]]] = []
    tree = _take_arrays(value, (), arrays)
    layout = []
    size = 0
    for path, array in arrays:
        offset = -(-size // ALIGNMENT) * ALIGNMENT
        layout.append({"path": path, "dtype": array.dtype.str, "shape": array.shape, "offset": offset})
        if array.nbytes:
            size = offset + array.nbytes
    if size == 0:
        return Packed(tree, layout, None)
    file = _anonymous_file(size)
    mapping = mmap.mmap(file, size)
    for record, (_, array) in zip(layout, arrays, strict=True):
        _view(record, mapping)[...] = array
    return Packed(tree, layout, file)


def unpack(packed: Packed) -> dict[str, Any]:
    """The value :func:`pack` took apart, its arrays writable views of the shared memory.

    Closes ``packed.file``. The memory is freed when the last of the arrays is gone.
    """
    mapping = None
    if packed.file is not None:
        try:
            mapping = mmap.mmap(packed.file, 0)
        finally:
            os.close(packed.file)
    for record in packed.layout:
        *parents, last = record["path"]
        node: Any = packed.tree
        for key in parents:
            node = node[key]
        node[last] = _view(record, mapping)
    return packed.tree


def _view(record: dict[str, Any], mapping: mmap.mmap | None) -> NDArray[Any]:
    """The array of one layout record; one without bytes needs no memory."""
    shape, dtype = tuple(record["shape"]), np.dtype(record["dtype"])
    if 0 in shape or dtype.itemsize == 0:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, buffer=mapping, offset=record["offset"])


def _take_arrays(node: Any, path: Path, arrays: list[tuple[Path, NDArray[Any]]]) -> Any:
    """``node`` with its arrays moved, with their paths, to ``arrays``."""
    match node:
        case np.ndarray():
            dtype = node.dtype
            if dtype.kind not in PLAIN_KINDS:
                raise TypeError(
                    f"the array at {_place(path)} has dtype {dtype}, and only plain NumPy dtypes can be "
                    f"sent: return it as one, for instance .view(np.uint{8 * dtype.itemsize})"
                )
            arrays.append((path, node))
            return None
        case np.generic() if isinstance(node.item(), bool | int | float | str):
            return node.item()
        case dict():
            for key in node:
                if not isinstance(key, str):
                    raise TypeError(f"the key {key!r} at {_place(path)} is no string: make it one")
            return {key: _take_arrays(item, (*path, key), arrays) for key, item in node.items()}
        case list() | tuple():
            return [_take_arrays(item, (*path, index), arrays) for index, item in enumerate(node)]
        case None | bool() | int() | float() | str():
            return node
    raise TypeError(
        f"the value at {_place(path)} is a {type(node).__name__}: return JSON-able values and NumPy arrays only"
    )


def _place(path: Path) -> str:
    """A path as Python would index it."""
    return "value" + "".join(f"[{key!r}]" for key in path)


def _anonymous_file(size: int) -> int:
    """Descriptor of ``size`` bytes of memory without a name, reserved here and now or an ``OSError``."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("arrays")
    else:  # a Python built against an old C library
        with tempfile.TemporaryFile() as unnamed:
            file = os.dup(unnamed.fileno())
    try:
        os.posix_fallocate(file, 0, size)
    except OSError:
        os.close(file)
        raise
    return file
