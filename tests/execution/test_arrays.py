# SPDX-License-Identifier: Apache-2.0
"""Arrays arrive bit for bit, and their memory is given back."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from humming_conformance.execution.arrays import Packed, pack, unpack

LONG = 60.0


@pytest.fixture(scope="module")
def tasks():
    """``tasks.py``, to compute here what a process computes there."""
    spec = importlib.util.spec_from_file_location("tasks", Path(__file__).parent / "tasks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def through(value):
    """A value packed, its JSON parts written and read, and unpacked."""
    packed = pack(value)
    tree, layout = json.loads(json.dumps([packed.tree, packed.layout]))
    return unpack(Packed(tree, layout, packed.file))


def same(first, second):
    """Equal dtype, shape and bytes: NaN payloads and signed zeros too."""
    return (first.dtype, first.shape, first.tobytes()) == (second.dtype, second.shape, second.tobytes())


def mapped():
    """Whether this process maps array memory."""
    return "memfd:arrays" in Path("/proc/self/maps").read_text()


def test_arrays_come_back_in_their_places(pool, spec, tasks):
    """Nested, strided, empty, scalar, byte-swapped and text arrays are what the same task computes here."""
    got = pool.call(spec, "tasks:arrays", timeout=LONG).value
    expected = tasks.arrays()
    assert list(got) == list(expected)
    for key in ("codes", "empty", "scalar", "swapped", "words"):
        assert same(got[key], expected[key]), key
    for key in ("transposed", "strided"):
        assert same(got["parts"][0][key], expected["parts"][0][key]), key
    assert same(got["parts"][1], expected["parts"][1])
    assert got["pair"] == [7, 0.5, True]
    assert got["nothing"] is None
    assert got["numbers"] == expected["numbers"]


def test_large_arrays_arrive(pool, spec, tasks):
    """64 MiB of random bytes are the same bytes, and writable."""
    got = pool.call(spec, "tasks:large", timeout=LONG, mebibytes=64).value["bytes"]
    assert np.array_equal(got, tasks.large(64)["bytes"])
    got[:] = 0
    assert not got.any()


plain_dtypes = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64, 128)),
    hnp.complex_number_dtypes(endianness="?"),
    hnp.datetime64_dtypes(endianness="?"),
    hnp.timedelta64_dtypes(endianness="?"),
    hnp.byte_string_dtypes(max_len=5),
    hnp.unicode_string_dtypes(max_len=5, endianness="?"),
)


@given(
    st.lists(hnp.arrays(plain_dtypes, hnp.array_shapes(min_dims=0, min_side=0, max_side=5)), max_size=4),
    st.sampled_from(["as it is", "columns first", "reversed"]),
)
def test_every_plain_array_survives(arrays, order):
    """Any plain dtype, shape and memory order keeps dtype, shape and bits."""
    if order == "columns first":
        arrays = [np.asfortranarray(array) for array in arrays]
    elif order == "reversed":
        arrays = [array[..., ::-1] if array.ndim else array for array in arrays]
    got = through({"arrays": arrays})["arrays"]
    assert len(got) == len(arrays)
    assert all(same(first, second) for first, second in zip(got, arrays, strict=True))


def test_memory_is_freed_with_the_last_array(process, tasks):
    """The memory is unmapped once no array is left, and neither process keeps its descriptor."""
    gc.collect()
    assert not mapped(), "an earlier test left arrays"
    value = process.call("tasks:arrays", timeout=LONG).value
    assert mapped()
    kept = value["codes"]
    del value
    gc.collect()
    assert mapped()
    del kept
    gc.collect()
    assert not mapped()
    open_there = process.call("tasks:state", timeout=LONG).value["descriptors"]
    assert not [name for name in [*open_there, *tasks.descriptors()] if "arrays" in name]


def test_no_memory_file_has_a_name(monkeypatch, tmp_path):
    """Without ``memfd_create`` the memory is an unnamed file in the temporary folder; none is left."""
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    values = np.arange(1000, dtype=np.float32)
    packed = pack({"values": values})
    assert str(tmp_path) in str(Path(f"/proc/self/fd/{packed.file}").readlink())
    assert list(tmp_path.iterdir()) == []
    assert same(unpack(packed)["values"], values)


def test_memory_that_cannot_be_had_is_an_error(monkeypatch, tasks):
    """A full machine is an exception in the task, not a fault at the first write."""
    before = len(tasks.descriptors())

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        pack({"values": np.ones(3)})
    assert len(tasks.descriptors()) == before
