# SPDX-License-Identifier: Apache-2.0
"""Guard pages: every CUDA tensor of a process ends where mapped memory ends, so that reading on faults.

torch's own allocator cuts tensors out of blocks of megabytes: a kernel that reads behind one finds its neighbour.
Here each allocation has whole pages of the driver's virtual memory to itself and lies at their end; an unmapped page
follows. Adapters don't know: torch calls the allocator for whatever they allocate.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

#: Set in a kernel process that is to have guard pages.
VARIABLE = "HUMMING_CONFORMANCE_GUARD_PAGES"

#: Bytes. A tensor's address is a multiple of it, so up to 15 bytes behind a tensor are mapped: the widest vector
#: loads and TMA take addresses of no smaller alignment, and a tensor's last byte may lie anywhere.
ALIGNMENT = 16

#: Freed memory of at most so many pages stays mapped for the next tensor of as many, up to so many tensors: mapping
#: costs the driver about a millisecond.
KEPT_PAGES, KEPT_TENSORS = 8, 64

# Names and values of cuda.h.
_DEVICE, _PINNED, _READ_WRITE, _MINIMUM = 1, 1, 3, 0
_MESSAGES = ("illegal memory access", "ILLEGAL_ADDRESS")


class BehindTheEndError(RuntimeError):
    """A kernel accessed memory that no tensor has."""


class DriverError(RuntimeError):
    """A call of the CUDA driver failed."""


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Flags(ctypes.Structure):
    _fields_ = (
        ("compression_type", ctypes.c_ubyte),
        ("gpu_direct_rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


class _Properties(ctypes.Structure):
    """``CUmemAllocationProp``."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32_metadata", ctypes.c_void_p),
        ("flags", _Flags),
    )


class _Access(ctypes.Structure):
    """``CUmemAccessDesc``."""

    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


@dataclass(frozen=True)
class Placement:
    """Where an allocation lies in its pages, in bytes."""

    offset: int
    mapped: int
    reserved: int


def place(size: int, granule: int) -> Placement:
    """Lay ``size`` bytes, rounded up to :data:`ALIGNMENT`, at the end of whole pages, and one unmapped page behind.

    Args:
        size: bytes, above 0.
        granule: bytes of a page, a multiple of the alignment.
    """
    used = -(-size // ALIGNMENT) * ALIGNMENT
    mapped = -(-used // granule) * granule
    return Placement(mapped - used, mapped, mapped + granule)


@dataclass(frozen=True)
class _Block:
    base: int
    placement: Placement
    device: int


class GuardPages:
    """The allocator.

    Args:
        library: the driver, ``libcuda.so.1`` through ctypes.

    Attributes:
        failures: why allocations failed, one sentence each. torch doesn't look at the null pointer it is given.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._blocks: dict[int, _Block] = {}
        self._kept: dict[tuple[int, int], list[int]] = {}  # bases by device and mapped bytes
        self._granules: dict[int, int] = {}
        self.failures: list[str] = []

    def allocate(self, size: int, device: int) -> int | None:
        """The address of ``size`` bytes on the device of that index, None for no bytes.

        Raises:
            DriverError: there is no memory left, or no such device.
        """
        if size == 0:
            return None
        granule = self._granule(device)
        placement = place(size, granule)
        if kept := self._kept.get((device, placement.mapped)):
            return self._booked(_Block(kept.pop(), placement, device))
        base = ctypes.c_uint64()
        self._call(
            "cuMemAddressReserve", ctypes.byref(base), _size(placement.reserved), _size(0), _address(0), _flags()
        )
        try:
            self._map(base.value, placement.mapped, device)
        except DriverError:
            self._try("cuMemAddressFree", _address(base.value), _size(placement.reserved))
            raise
        return self._booked(_Block(base.value, placement, device))

    def _booked(self, block: _Block) -> int:
        address = block.base + block.placement.offset
        self._blocks[address] = block
        return address

    def free(self, address: int) -> None:
        """Give memory back once nothing that was launched uses it any more.

        After a fault the context answers everything with that fault's error; the memory then ends with the process.

        Raises:
            DriverError: the memory could not be unmapped.
            KeyError: it was not allocated here.
        """
        block = self._blocks.pop(address)
        if self._try("cuCtxSynchronize") != 0:
            return
        small = block.placement.mapped <= KEPT_PAGES * self._granule(block.device)
        if small and sum(map(len, self._kept.values())) < KEPT_TENSORS:
            self._kept.setdefault((block.device, block.placement.mapped), []).append(block.base)
            return
        self._call("cuMemUnmap", _address(block.base), _size(block.placement.mapped))
        self._call("cuMemAddressFree", _address(block.base), _size(block.placement.reserved))

    def allocate_for_torch(self, size: int, device: int, _stream: int | None) -> int | None:
        """:meth:`allocate`, called from C: null where it fails."""
        try:
            return self.allocate(size, device)
        except BaseException as error:  # noqa: BLE001 - nothing can be raised through C
            self.failures.append(f"{size} bytes with guard pages: {error}")
            self._tell(f"guard pages: {self.failures[-1]}")
            return None

    def free_for_torch(self, address: int | None, _size: int, _device: int, _stream: int | None) -> None:
        """:meth:`free`, called from C."""
        try:
            if address:
                self.free(address)
        except BaseException as error:  # noqa: BLE001 - nothing can be raised through C
            self._tell(f"guard pages: memory at {address:#x} was not given back: {type(error).__name__}: {error}")

    def _map(self, base: int, size: int, device: int) -> None:
        """Back ``size`` bytes at ``base`` with memory of the device."""
        handle = ctypes.c_uint64()
        self._call("cuMemCreate", ctypes.byref(handle), _size(size), ctypes.byref(_properties(device)), _flags())
        try:
            self._call("cuMemMap", _address(base), _size(size), _size(0), handle, _flags())
        finally:  # what is mapped keeps its memory until it is unmapped
            self._try("cuMemRelease", handle)
        access = _Access(_Location(_DEVICE, device), _READ_WRITE)
        try:
            self._call("cuMemSetAccess", _address(base), _size(size), ctypes.byref(access), _size(1))
        except DriverError:
            self._try("cuMemUnmap", _address(base), _size(size))
            raise

    def _granule(self, device: int) -> int:
        """Bytes of a page on a device; at the first call its primary context, torch's, becomes this thread's."""
        if device not in self._granules:
            number, context, current = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
            self._call("cuInit", ctypes.c_uint(0))
            self._call("cuDeviceGet", ctypes.byref(number), ctypes.c_int(device))
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
            self._call("cuCtxGetCurrent", ctypes.byref(current))
            if not current.value:
                self._call("cuCtxSetCurrent", context)
            granule = ctypes.c_size_t()
            properties = _properties(device)
            arguments = (ctypes.byref(granule), ctypes.byref(properties), ctypes.c_int(_MINIMUM))
            self._call("cuMemGetAllocationGranularity", *arguments)
            self._granules[device] = granule.value
        return self._granules[device]

    def _call(self, name: str, *arguments: Any) -> None:
        status = self._try(name, *arguments)
        if status != 0:
            text = ctypes.c_char_p()
            self._try("cuGetErrorName", ctypes.c_int(status), ctypes.byref(text))
            known = text.value.decode() if text.value else "an unknown error"
            raise DriverError(f"{name} failed with {known} ({status})")

    def _try(self, name: str, *arguments: Any) -> int:
        return int(getattr(self._library, name)(*arguments))

    @staticmethod
    def _tell(sentence: str) -> None:
        """Into the log of the kernel process, past whatever ``sys.stderr`` is by now."""
        os.write(2, f"{sentence}\n".encode())


@contextmanager
def guard_pages() -> Iterator[bool]:
    """Let all CUDA memory have guard pages, where :data:`VARIABLE` asks for them; gives whether it does.

    Raises:
        BehindTheEndError: in place of an illegal access inside.
        torch.OutOfMemoryError: in place of whatever followed from an allocation that failed.
    """
    if not os.environ.get(VARIABLE):
        yield False
        return
    allocator = install()
    allocator.failures.clear()
    try:
        yield True
    except Exception as error:
        _explain(allocator, error)
        raise
    _explain(allocator, None)


def _explain(allocator: GuardPages, error: Exception | None) -> None:
    """Raise what an error, or none, comes from, if guard pages know it."""
    if allocator.failures:
        import torch

        raise torch.OutOfMemoryError(allocator.failures[0]) from error
    if error is not None and any(words in "".join(traceback.format_exception(error)) for words in _MESSAGES):
        raise BehindTheEndError(
            f"a kernel read or wrote behind the end of a tensor, or by a wrong address (each tensor ends at an "
            f"unmapped page here): {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}"
        ) from error


@cache
def install() -> GuardPages:
    """Make guard pages torch's CUDA allocator, for good; before this process first uses CUDA.

    Raises:
        RuntimeError: CUDA is in use already, or torch was built without it.
        OSError: there is no driver.
    """
    import torch
    from torch.cuda.memory import _CUDAAllocator, change_current_allocator

    create = getattr(torch._C, "_cuda_customAllocator", None)  # noqa: SLF001 - its public caller takes a file alone
    if create is None:
        raise RuntimeError("guard pages need a CUDA build of torch")
    allocator = GuardPages(ctypes.CDLL("libcuda.so.1"))
    pointers = []
    for callback in (_ALLOCATE(allocator.allocate_for_torch), _FREE(allocator.free_for_torch)):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(callback))  # C calls it as long as the process lives
        pointers.append(ctypes.cast(callback, ctypes.c_void_p).value)
    change_current_allocator(_CUDAAllocator(create(*pointers)))
    # Tensors that C code still holds are freed behind the end of Python, which could not serve the call.
    atexit.register(_leave)
    return allocator


_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)


def _leave() -> None:
    sys.stdout.flush()
    os._exit(0)


def _properties(device: int) -> _Properties:
    return _Properties(type=_PINNED, location=_Location(_DEVICE, device))


def _size(size: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(size)


def _address(address: int) -> ctypes.c_uint64:
    return ctypes.c_uint64(address)


def _flags() -> ctypes.c_uint64:
    return ctypes.c_uint64(0)
