# SPDX-License-Identifier: Apache-2.0
"""Finds the devices of this machine through NVML and module metadata: no torch, no CUDA context."""

from __future__ import annotations

import importlib.util
import os
import re
from functools import cache
from typing import Any

from humming_conformance.devices.device import Device

#: Stands for the GPU that a plan wants and the machine lacks.
NO_GPU = Device(name="no_gpu", kind="cuda", present=False)

_VISIBLE = "CUDA_VISIBLE_DEVICES"

#: Words of a product name that say nothing about the chip. ``laptop`` does: its chip is another one.
_FILLER = {"nvidia", "tesla", "geforce", "quadro", "graphics", "device", "gpu", "generation"}


def device_name(product: str) -> str:
    """The subject's name for an NVML product name: ``NVIDIA A100-SXM4-80GB`` gives ``a100_sxm4_80gb``."""
    words = [word for word in re.split(r"[^a-z0-9]+", product.lower()) if word and word not in _FILLER]
    return "_".join(words) or "gpu"


@cache
def detect_devices() -> tuple[Device, ...]:
    """Every device of this machine: GPUs first (PCI order), Triton's interpreter if triton is installed, the CPU.

    A GPU machine whose driver is broken has no GPU here; :func:`gpu_problem` says why.
    """
    devices = list(_gpus()[0])
    if importlib.util.find_spec("triton") is not None:
        devices.append(Device(name="cpu_interpreter", kind="cpu_interpreter"))
    devices.append(Device(name="cpu", kind="cpu"))
    return tuple(devices)


def gpu_problem() -> str:
    """Why no GPU was found, in one sentence; empty where there is one."""
    return _gpus()[1]


@cache
def _gpus() -> tuple[tuple[Device, ...], str]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return (), f"NVML finds no driver ({error})"
    try:
        found = []
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        uuids = [pynvml.nvmlDeviceGetUUID(handle) for handle in handles]
        for index in _visible(uuids):
            handle = handles[index]
            major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
            found.append(
                Device(
                    name=device_name(pynvml.nvmlDeviceGetName(handle)),
                    kind="cuda",
                    sm=major * 10 + minor,
                    index=index,
                    uuid=uuids[index],
                    memory=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
                )
            )
    except pynvml.NVMLError as error:
        return (), f"NVML could not describe the GPUs ({error})"
    finally:
        pynvml.nvmlShutdown()
    if found:
        return tuple(found), ""
    if uuids:
        return (), f"CUDA_VISIBLE_DEVICES={os.environ[_VISIBLE]!r} hides all {len(uuids)} GPUs"
    return (), "the driver reports no GPU"


def _visible(uuids: list[str]) -> list[int]:
    """Indices of the GPUs that CUDA_VISIBLE_DEVICES shows, in PCI order; unset shows all.

    As CUDA reads it: indices or starts of UUIDs, and what follows the first wrong one is hidden.
    """
    words = os.environ.get(_VISIBLE)
    if words is None:
        return list(range(len(uuids)))
    shown = set()
    for word in map(str.strip, words.split(",")):
        matching = [
            index
            for index, uuid in enumerate(uuids)
            if word == str(index) or (word.startswith("GPU-") and uuid.startswith(word))
        ]
        if len(matching) != 1:
            break
        shown.add(matching[0])
    return sorted(shown)


def describe_gpus() -> list[dict[str, Any]]:
    """Name, driver, CUDA version, compute capability and SM/memory clocks (MHz) of each GPU, from NVML."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        described = []
        for device in _gpus()[0]:
            handle = pynvml.nvmlDeviceGetHandleByIndex(device.index)
            cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
            described.append(
                {
                    "name": device.name,
                    "driver": pynvml.nvmlSystemGetDriverVersion(),
                    "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}",
                    "sm": device.sm,
                    "clocks": {
                        "sm_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
                        "memory_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
                    },
                }
            )
        return described
    finally:
        pynvml.nvmlShutdown()
