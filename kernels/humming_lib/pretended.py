# SPDX-License-Identifier: Apache-2.0
"""Makes Humming build its code for an older GPU and run it on this one.

The library asks one description of the device, ``humming.device``, for all it decides: heuristics, layouts, templates.
Replaced by that of an older GPU, it selects and generates the code of that generation (``kSmVersion``, mma.sync,
cp.async or plain loads, its shared memory); the compiler alone is told of the GPU that executes.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from humming_conformance.devices import Device, DeviceProfile, load_profile
from humming_conformance.support import CannotJudge

#: The recorded device that stands for each compute capability.
PROFILES = {75: "t4", 80: "a100", 86: "a10", 89: "l40s"}

#: What stands in this process, and its name; empty for the real device.
_installed: list[str] = []


class PretendedDeviceError(RuntimeError):
    """This process already serves another device; what it has built, selected or described is that one's."""


def install(device: Device) -> None:
    """Let the library see ``device`` for the rest of this process; a real device needs nothing.

    Raises:
        PretendedDeviceError: the library of this process sees another device.
        CannotJudge: the release describes its device in another way than 0.1.16 to 0.1.20 do.
    """
    name = device.name if device.pretended else ""
    if _installed == [name]:
        return
    if _installed:
        serves = _installed[0] or "the real device"
        raise PretendedDeviceError(f"{device.name} can't be judged in a process that serves {serves}; start another")
    if device.pretended:
        _replace(library_properties(PROFILES[device.sm]), device)
    _installed.append(name)


def library_properties(profile: str) -> dict[str, Any]:
    """:func:`described` of a recorded device, by its name."""
    return described(load_profile(profile))


def described(found: DeviceProfile) -> dict[str, Any]:
    """The fields of the library's description of a device."""
    return {
        "index": 0,  # a kernel process sees one GPU
        "name": found.product,
        "is_ppu": False,
        "sm_count": found.sm_count,
        "max_threads_per_block": found.max_threads_per_block,
        "max_threads_per_sm": found.max_threads_per_sm,
        "max_registers_per_sm": found.max_registers_per_sm,
        "sm_major": found.sm // 10,
        "sm_minor": found.sm % 10,
        "sm_version": found.sm,
        "l2_cache_size": found.l2_cache_bytes,
        "l2_cache_size_mb": found.l2_cache_bytes / 2**20,
        "l1_cache_size": found.l1_cache_bytes,
        "l1_cache_size_kb": found.l1_cache_bytes / 2**10,
        "default_smem_size": found.shared_memory_per_block_bytes,
        "max_smem_size": found.max_shared_memory_per_block_bytes,
        "max_smem_size_kb": found.max_shared_memory_per_block_bytes / 2**10,
        "memory_clock_khz": found.memory_clock_khz,
        "memory_bus_width": found.memory_bus_bits,
        "sm_clock_khz": found.sm_clock_khz,
        "memory_bandwidth_gbps": found.memory_bandwidth_gbps,
        "tensorcore_tops": dict(found.tensor_core_tops),
    }


def _replace(properties: dict[str, Any], device: Device) -> None:
    import humming.device as description
    from humming.jit.runtime import KernelRuntime

    missing = [
        name
        for holder, name in (
            (description, "_get_device_info_extension"),
            (description, "current_device"),
            (KernelRuntime, "init_sm_version"),
        )
        if not hasattr(holder, name)
    ]
    if missing:
        raise CannotJudge(
            f"this release of humming-kernels has no {', '.join(missing)} to replace with {device.name}",
            "judge older paths of 0.1.16 to 0.1.20",
        )
    # Nothing was described, so nothing was selected, built or cached either: each begins with a question to it.
    if description.current_device._value is not None or getattr(description.DeviceInfo, "_instances", {}):  # noqa: SLF001
        raise PretendedDeviceError(
            f"the library has already seen this machine's GPU; {device.name} needs a new process"
        )
    seen = SimpleNamespace(**properties)
    description._get_device_info_extension = lambda: SimpleNamespace(_DeviceInfo=lambda _index: seen)  # noqa: SLF001
    KernelRuntime.init_sm_version = _target(device.sm, device.hardware_sm)


def _target(sm: int, hardware_sm: int) -> Callable[[Any], None]:
    def init_sm_version(kernel: Any) -> None:
        """Code of ``sm``, compiled for ``hardware_sm``: without the suffix "a", whose instructions ``sm`` lacks."""
        kernel.sm_version = sm
        kernel.sm_version_str = str(hardware_sm)

    return init_sm_version
