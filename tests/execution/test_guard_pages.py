# SPDX-License-Identifier: Apache-2.0
"""Guard pages: where allocations lie, what the driver is asked for, what becomes of its errors."""

from __future__ import annotations

import re

import pytest
import torch

from humming_conformance.execution import guard_pages as module
from humming_conformance.execution.guard_pages import (
    ALIGNMENT,
    VARIABLE,
    BehindTheEndError,
    DriverError,
    GuardPages,
    guard_pages,
    place,
)

GRANULE = 1 << 21
FIRST = 1 << 40


class FakeDriver:
    """A driver that books reservations and mappings; ``fails`` names the call that answers with an error."""

    def __init__(self, fails=""):
        self.fails = fails
        self.reserved = {}
        self.mapped = {}
        self.accessible = {}
        self.handles = set()
        self.calls = []
        self._next = FIRST

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append(name)
            if name == self.fails:
                return 2
            answer = getattr(type(self), "on_" + re.sub("(?=[A-Z])", "_", name).lower(), None)
            return 0 if answer is None else answer(self, *arguments)

        return call

    def on_cu_get_error_name(self, status, text):
        """Two is what the driver says without memory."""
        text._obj.value = {2: b"CUDA_ERROR_OUT_OF_MEMORY"}[status.value]
        return 0

    def on_cu_mem_get_allocation_granularity(self, granule, properties, _option):
        """2 MiB."""
        assert (properties._obj.type, properties._obj.location.type) == (1, 1)
        granule._obj.value = GRANULE
        return 0

    def on_cu_mem_address_reserve(self, base, size, _alignment, _address, _flags):
        """One reservation behind the other."""
        base._obj.value = self._next
        self.reserved[self._next] = size.value
        self._next += size.value
        return 0

    def on_cu_mem_create(self, handle, size, properties, _flags):
        """A handle on memory."""
        assert size.value % GRANULE == 0
        assert properties._obj.location.id == 0
        handle._obj.value = len(self.calls)
        self.handles.add(handle._obj.value)
        return 0

    def on_cu_mem_map(self, base, size, _offset, handle, _flags):
        """Within a reservation, by a handle that lives."""
        assert handle.value in self.handles
        assert size.value <= self.reserved[base.value]
        self.mapped[base.value] = size.value
        return 0

    def on_cu_mem_set_access(self, base, size, access, count):
        """For reading and writing."""
        assert (access._obj.flags, count.value) == (3, 1)
        self.accessible[base.value] = size.value
        return 0

    def on_cu_mem_unmap(self, base, size):
        """Whole mappings only."""
        assert self.mapped.pop(base.value) == size.value
        self.accessible.pop(base.value, None)
        return 0

    def on_cu_mem_release(self, handle):
        """A handle once."""
        self.handles.remove(handle.value)
        return 0

    def on_cu_mem_address_free(self, base, size):
        """Whole reservations that nothing is mapped in."""
        assert base.value not in self.mapped
        assert self.reserved.pop(base.value) == size.value
        return 0


@pytest.mark.parametrize(
    ("size", "end", "pages"),
    [(1, 16, 1), (16, 16, 1), (17, 32, 1), (GRANULE - 1, GRANULE, 1), (GRANULE, GRANULE, 1), (GRANULE + 1, 16, 2)],
)
def test_an_allocation_ends_with_its_pages(size, end, pages):
    """It starts at a multiple of 16 bytes, its last 16 are the last mapped ones, and a page behind is reserved."""
    found = place(size, GRANULE)
    assert found.mapped == pages * GRANULE
    assert found.reserved == found.mapped + GRANULE
    assert found.offset % ALIGNMENT == 0
    assert found.mapped - ALIGNMENT < found.offset + size <= found.mapped
    assert (found.mapped - found.offset) % GRANULE == end % GRANULE


def test_what_lies_behind_is_not_mapped():
    """Two allocations have a page between them that is reserved and never mapped, and large ones are given back."""
    driver = FakeDriver()
    pages = GuardPages(driver)
    addresses = [pages.allocate(size, 0) for size in (9 * GRANULE - 100, 9 * GRANULE)]
    assert addresses == [FIRST + 96, FIRST + 10 * GRANULE]
    assert driver.accessible == driver.mapped == {FIRST: 9 * GRANULE, FIRST + 10 * GRANULE: 9 * GRANULE}
    assert driver.reserved == {FIRST: 10 * GRANULE, FIRST + 10 * GRANULE: 10 * GRANULE}
    assert driver.handles == set()
    for address in addresses:
        pages.free(address)
    assert driver.reserved == driver.mapped == {}
    assert driver.calls.index("cuCtxSynchronize") < driver.calls.index("cuMemUnmap")


def test_small_pages_serve_again():
    """Freed pages stay mapped once nothing uses them, and the next tensor of as many ends where they end."""
    driver = FakeDriver()
    pages = GuardPages(driver)
    pages.free(pages.allocate(100, 0))
    assert driver.calls[-1] == "cuCtxSynchronize"
    assert pages.allocate(50, 0) == FIRST + GRANULE - 64
    assert pages.allocate(50, 0) == FIRST + 3 * GRANULE - 64
    assert driver.calls.count("cuMemMap") == 2


def test_few_pages_are_kept():
    """Beyond a number of tensors, freed pages are given back."""
    driver = FakeDriver()
    pages = GuardPages(driver)
    addresses = [pages.allocate(16, 0) for _ in range(module.KEPT_TENSORS + 3)]
    for address in addresses:
        pages.free(address)
    assert len(driver.mapped) == module.KEPT_TENSORS


def test_no_bytes_need_no_memory():
    """An empty tensor has the null pointer, as torch's own allocator gives it."""
    driver = FakeDriver()
    assert GuardPages(driver).allocate(0, 0) is None
    assert driver.calls == []


@pytest.mark.parametrize("call", ["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"])
def test_a_failed_allocation_leaves_nothing_behind(call, capfd):
    """What C code gets is null; the reason is kept and written down, and no reservation, mapping or handle stays."""
    driver = FakeDriver(call)
    pages = GuardPages(driver)
    with pytest.raises(DriverError, match=call):
        pages.allocate(100, 0)
    assert pages.allocate_for_torch(100, 0, None) is None
    assert (driver.reserved, driver.mapped, driver.handles) == ({}, {}, set())
    (reason,) = pages.failures
    assert reason == f"100 bytes with guard pages: {call} failed with CUDA_ERROR_OUT_OF_MEMORY (2)"
    assert reason in capfd.readouterr().err


def test_nothing_is_raised_through_c(capfd):
    """Freeing what was never allocated is told, freeing nothing is nothing."""
    pages = GuardPages(FakeDriver())
    pages.free_for_torch(None, 0, 0, None)
    assert capfd.readouterr().err == ""
    pages.free_for_torch(0xABC0, 16, 0, None)
    assert "memory at 0xabc0 was not given back: KeyError" in capfd.readouterr().err


def test_after_a_fault_nothing_is_unmapped():
    """Where the context answers with an error, memory is left to the end of the process."""
    driver = FakeDriver("cuCtxSynchronize")
    pages = GuardPages(driver)
    pages.free(pages.allocate(100, 0))
    assert "cuMemUnmap" not in driver.calls
    assert driver.mapped == {FIRST: GRANULE}


def test_callbacks_have_the_types_that_torch_calls():
    """Through C, addresses keep all their bits and null is null."""
    pages = GuardPages(FakeDriver())
    allocate, free = module._ALLOCATE(pages.allocate_for_torch), module._FREE(pages.free_for_torch)
    address = allocate(100, 0, None)
    assert address == FIRST + GRANULE - 112
    assert allocate(0, 0, None) is None
    free(address, 100, 0, None)
    assert allocate(100, 0, None) == address


@pytest.fixture
def allocator(monkeypatch):
    """Guard pages that this process is asked for, without a GPU."""
    pages = GuardPages(FakeDriver())
    monkeypatch.setenv(VARIABLE, "1")
    monkeypatch.setattr(module, "install", lambda: pages)
    return pages


def test_only_where_they_are_asked_for(monkeypatch):
    """Without the variable nothing is installed."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(module, "install", lambda: pytest.fail("installed"))
    with guard_pages() as guarded:
        assert not guarded


@pytest.mark.parametrize(
    "words", ["CUDA error: an illegal memory access was encountered", "error CUDA_ERROR_ILLEGAL_ADDRESS (700)"]
)
@pytest.mark.usefixtures("allocator")
def test_an_illegal_access_is_told_as_what_it_is(words):
    """The error says that a kernel went behind the end of a tensor, names its cause and keeps its words."""
    with pytest.raises(BehindTheEndError, match="read or wrote behind the end of a tensor") as caught, guard_pages():
        raise RuntimeError(words)
    assert words in str(caught.value)
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.usefixtures("allocator")
def test_other_errors_pass():
    """What has nothing to do with memory is what it was."""
    with pytest.raises(ValueError, match="no such tile"), guard_pages():
        raise ValueError("no such tile")


def test_memory_that_ran_out_is_told(allocator):
    """A null pointer leads to an illegal access; the error is that memory ran out, and the next case starts anew."""
    allocator._library.fails = "cuMemCreate"

    def use_what_was_allocated():
        assert allocator.allocate_for_torch(16, 0, None) is None
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(torch.OutOfMemoryError, match="16 bytes with guard pages"), guard_pages():
        use_what_was_allocated()
    with pytest.raises(torch.OutOfMemoryError), guard_pages():
        allocator.allocate_for_torch(16, 0, None)
    with guard_pages() as guarded:
        assert guarded


def test_torch_without_cuda_is_told(monkeypatch):
    """Installing asks for a CUDA build."""
    monkeypatch.delattr(torch._C, "_cuda_customAllocator", raising=False)
    with pytest.raises(RuntimeError, match="CUDA build of torch"):
        module.install()
