# SPDX-License-Identifier: Apache-2.0
"""Recording a device, from a driver that is made up."""

from __future__ import annotations

import ctypes
import json
from dataclasses import asdict

import pytest

from humming_conformance.devices import ProfileError, load_profile
from humming_conformance.devices.record import ATTRIBUTES, DriverError, read_device, record_profile

A100 = load_profile("a100")

#: What the driver of an A100 answers, by the name of the attribute.
ANSWERS = {
    "sm_major": 8,
    "sm_minor": 0,
    "sm_count": A100.sm_count,
    "max_threads_per_block": A100.max_threads_per_block,
    "max_threads_per_sm": A100.max_threads_per_sm,
    "max_registers_per_sm": A100.max_registers_per_sm,
    "l2_cache_bytes": A100.l2_cache_bytes,
    "shared_memory_per_block_bytes": A100.shared_memory_per_block_bytes,
    "max_shared_memory_per_block_bytes": A100.max_shared_memory_per_block_bytes,
    "sm_clock_khz": A100.sm_clock_khz,
    "memory_clock_khz": A100.memory_clock_khz,
    "memory_bus_bits": A100.memory_bus_bits,
}


class Driver:
    """libcuda as far as it is asked; ``status`` is what every call returns but the first."""

    def __init__(self, status=0, **changes):
        self.status = status
        numbers = {ATTRIBUTES[name]: value for name, value in (ANSWERS | changes).items()}
        self.attributes = numbers

    def cuInit(self, flags):  # noqa: N802  # CUDA's names
        return 0

    def cuDeviceGet(self, device, index):  # noqa: N802
        device._obj.value = 7 + index
        return self.status

    def cuDeviceGetName(self, name, size, device):  # noqa: N802
        assert device.value == 7
        name.value = A100.product.encode()
        return self.status

    def cuDeviceGetAttribute(self, value, attribute, device):  # noqa: N802
        value._obj.value = self.attributes[attribute]
        return self.status

    def cuDriverGetVersion(self, value):  # noqa: N802
        value._obj.value = 13000
        return self.status


def test_a_device_is_its_driver_and_its_architecture():
    """All numbers but those that no driver gives are the driver's, and equal the recorded profile of that device."""
    found = read_device(0, Driver())
    assert "CUDA 13.0 driver" in found.provenance
    ours, recorded = asdict(found), asdict(A100)
    assert ours.pop("provenance") != recorded.pop("provenance")
    assert ours.pop("tensor_core_tops") == pytest.approx(recorded.pop("tensor_core_tops"))
    assert ours == recorded


@pytest.mark.parametrize(
    "name", ["t4", "a10", "orin", "l40s", "h100", "h20", "b200", "b300", "thor", "rtx5090", "gb10"]
)
def test_what_is_derived_agrees_with_every_profile(name):
    """Bandwidth, rates and L1 follow from clocks, counts and architecture as in the recorded profiles."""
    profile = load_profile(name)
    known = {key: getattr(profile, key) for key in ANSWERS if hasattr(profile, key)}
    found = read_device(0, Driver(**known, sm_major=profile.sm // 10, sm_minor=profile.sm % 10))
    assert found.memory_bandwidth_gbps == pytest.approx(profile.memory_bandwidth_gbps)
    assert dict(found.tensor_core_tops) == pytest.approx(dict(profile.tensor_core_tops))
    assert found.l1_cache_bytes == profile.l1_cache_bytes


def test_a_recorded_device_is_read_back(tmp_path):
    """The file is one that ``load_profile`` takes, and nothing else is left in the folder."""
    profile = read_device(0, Driver())
    assert record_profile("a100_here", profile, tmp_path) == tmp_path / "a100_here.json"
    assert load_profile("a100_here", tmp_path) == profile
    assert [path.name for path in tmp_path.iterdir()] == ["a100_here.json"]


def test_a_profile_is_never_overwritten(tmp_path):
    """What is there stays, bit for bit; the text says how to record beside it."""
    path = tmp_path / "a100.json"
    path.write_text(json.dumps({"schema": 1}))
    with pytest.raises(ProfileError, match=r"a100\.json is there already; .*another name"):
        record_profile("a100", read_device(0, Driver()), tmp_path)
    assert path.read_text() == json.dumps({"schema": 1})


@pytest.mark.parametrize("name", ["A100", "a 100", "../a100", ""])
def test_a_name_is_a_word(tmp_path, name):
    """A name is what subjects can hold: lower case, digits and underscores."""
    with pytest.raises(ProfileError, match="lower case"):
        record_profile(name, read_device(0, Driver()), tmp_path)


def test_a_driver_that_fails_is_named():
    """The call and its status."""
    with pytest.raises(DriverError, match="cuDeviceGet gave status 101"):
        read_device(0, Driver(status=101))


def test_an_unknown_architecture_is_refused():
    """Rates are no attribute: an architecture without an entry is named, with the table to extend."""
    with pytest.raises(DriverError, match=r"sm_130 .*ARCHITECTURES"):
        read_device(0, Driver(sm_major=13))


def test_the_made_up_driver_answers_as_libcuda_is_asked():
    """``ctypes.byref`` hands over a reference whose object can be written."""
    value = ctypes.c_int()
    assert Driver().cuDeviceGetAttribute(ctypes.byref(value), ATTRIBUTES["sm_count"], ctypes.c_int(7)) == 0
    assert value.value == A100.sm_count
