# SPDX-License-Identifier: Apache-2.0
"""Records a profile of a device that is here, from the CUDA driver alone. Creates no CUDA context.

What no driver tells comes from the architecture: L1 and shared memory together, and operations of the tensor cores.
"""

from __future__ import annotations

import ctypes
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from humming_conformance.devices.profiles import PROFILES, SCHEMA, DeviceProfile, ProfileError

#: ``CUdevice_attribute`` of cuda.h, by the names that a profile has.
ATTRIBUTES = {
    "max_threads_per_block": 1,
    "shared_memory_per_block_bytes": 8,
    "sm_clock_khz": 13,
    "sm_count": 16,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_cache_bytes": 38,
    "max_threads_per_sm": 39,
    "sm_major": 75,
    "sm_minor": 76,
    "max_registers_per_sm": 82,
    "max_shared_memory_per_block_bytes": 97,
}


class DriverError(RuntimeError):
    """The driver is not there, a call of it failed, or its device is of an architecture that isn't in the table."""


@dataclass(frozen=True)
class Architecture:
    """What the driver doesn't tell of an architecture.

    Attributes:
        l1_kib: L1 and shared memory of a multiprocessor, KiB (NVIDIA's tuning guides).
        fp16_per_clock: fp16 operations of a multiprocessor in one clock, dense, as humming-kernels 0.1.20 counts them
            (csrc/device_info.cpp): its choices follow these numbers, not a data sheet's.
        transfers: of the memory for each cycle of the clock that the driver gives.
        halved: whether float operands have half the rate with sums in fp32.
    """

    l1_kib: int
    fp16_per_clock: int
    transfers: int = 2
    halved: bool = False


ARCHITECTURES = {
    75: Architecture(96, 1024, halved=True),
    80: Architecture(192, 2048),
    86: Architecture(128, 1024, halved=True),
    87: Architecture(192, 2048),
    89: Architecture(128, 1024, halved=True),
    90: Architecture(256, 4096),
    100: Architecture(256, 8192),
    103: Architecture(256, 8192),
    110: Architecture(256, 8192),
    120: Architecture(128, 1024),
    121: Architecture(128, 1024, transfers=1),
}

#: Operand formats as libraries write them: rate as a multiple of fp16's, and the first architecture that has it.
_FORMATS = {
    "float16": (1, 75),
    "bfloat16": (1, 80),
    "float8e3m4": (2, 100),
    "float8e4m3": (2, 89),
    "float8e5m2": (2, 89),
    "float6e2m3": (2, 100),
    "float6e3m2": (2, 100),
    "float4e0m3": (4, 100),
    "float4e2m1": (4, 100),
    "int8": (2, 75),
    "int4": (4, 75),
}


def read_device(index: int, driver: Any = None) -> DeviceProfile:
    """The profile of CUDA device ``index``.

    Args:
        index: in the driver's order.
        driver: libcuda's functions; None loads it.

    Raises:
        DriverError: as the class says.
    """
    cuda = _Driver(driver if driver is not None else _load())
    cuda.call("cuInit", 0)
    device = ctypes.c_int()
    cuda.call("cuDeviceGet", ctypes.byref(device), index)
    name = ctypes.create_string_buffer(256)
    cuda.call("cuDeviceGetName", name, len(name), device)
    version = ctypes.c_int()
    cuda.call("cuDriverGetVersion", ctypes.byref(version))
    found = {}
    for attribute, number in ATTRIBUTES.items():
        value = ctypes.c_int()
        cuda.call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        found[attribute] = value.value
    sm = found.pop("sm_major") * 10 + found.pop("sm_minor")
    architecture = ARCHITECTURES.get(sm)
    if architecture is None:
        raise DriverError(f"device {index} is sm_{sm} ({name.value.decode()}); add it to ARCHITECTURES in {__name__}")
    release = f"{version.value // 1000}.{version.value % 1000 // 10}"
    bandwidth = found["memory_clock_khz"] * architecture.transfers * found["memory_bus_bits"] / 8e6
    return DeviceProfile(
        product=name.value.decode(),
        sm=sm,
        l1_cache_bytes=architecture.l1_kib * 1024,
        memory_bandwidth_gbps=bandwidth,
        tensor_core_tops=_tops(sm, architecture, found["sm_count"], found["sm_clock_khz"]),
        provenance=f"read from the device by its CUDA {release} driver; l1_cache_bytes and tensor_core_tops follow "
        "from the architecture (humming_conformance/devices/record.py)",
        **found,
    )


def describe(*, index: int) -> dict[str, Any]:
    """The fields of :func:`read_device`, as a task: the driver is for kernel processes."""
    return asdict(read_device(index))


def record_profile(name: str, profile: DeviceProfile, folder: Path = PROFILES) -> Path:
    """Write a profile that isn't there yet, through a temporary file.

    Raises:
        ProfileError: the name is no word that subjects can hold, or there is such a profile.
    """
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise ProfileError(f"device name {name!r} is not lower case letters, digits and underscores; give such a one")
    path = folder / f"{name}.json"
    if path.exists():
        raise ProfileError(f"{path} is there already; remove it first, or record under another name")
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps({"schema": SCHEMA} | asdict(profile), indent=2) + "\n")
    temporary.replace(path)
    return path


def _tops(sm: int, architecture: Architecture, sm_count: int, sm_clock_khz: int) -> dict[str, float]:
    base = sm_count * architecture.fp16_per_clock * sm_clock_khz / 1e9
    rates = {}
    for name, (multiple, first) in _FORMATS.items():
        if sm >= first:
            halved = architecture.halved and not name.startswith("int")
            rates[name] = base * multiple / (2 if halved else 1)
    return rates


def _load() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DriverError(f"there is no CUDA driver here ({error}); record where the device is") from error


class _Driver:
    """libcuda, whose calls raise."""

    def __init__(self, functions: Any) -> None:
        self._functions = functions

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function by its name; raise DriverError unless it gives CUDA_SUCCESS."""
        status = getattr(self._functions, name)(*arguments)
        if status != 0:
            raise DriverError(f"{name} gave status {status} (CUresult in cuda.h)")
