# SPDX-License-Identifier: Apache-2.0
"""A device a subject is judged on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

#: Compute capabilities whose code paths (mma.sync, cp.async) also execute on sm_90 when compiled for it.
OLDER_THAN_SM_90 = (75, 80, 86, 89)


@dataclass(frozen=True)
class Device:
    """A named place to run a kernel.

    Attributes:
        name: as subjects write it: ``h200``, ``sm_80_on_sm_90``, ``cpu``, ``cpu_interpreter``, ``no_gpu``.
        kind: what an adapter asks for; ``profile`` is a recorded device that isn't here (``profiles.py``).
        present: False for a device that the plan wants and the machine lacks.
        sm: compute capability as two digits (90 for sm_90), 0 for CPUs: the one whose code is judged.
        index: CUDA device index in NVML order (PCI bus order).
        uuid: NVML's UUID, the key of the GPU lease.
        memory: bytes of device memory, 0 for CPUs.
        hardware_sm: compute capability of the GPU that executes; ``sm`` itself where none is given.
    """

    name: str
    kind: Literal["cuda", "cpu", "cpu_interpreter", "profile"]
    present: bool = True
    sm: int = 0
    index: int = 0
    uuid: str = ""
    memory: int = 0
    hardware_sm: int = 0

    def __post_init__(self) -> None:
        if not self.hardware_sm:
            object.__setattr__(self, "hardware_sm", self.sm)

    @property
    def pretended(self) -> bool:
        """Whether the GPU stands in for one of another compute capability."""
        return self.sm != self.hardware_sm


def names_pretended_device(name: str) -> bool:
    """Whether ``name`` is one that :func:`pretended_devices` gives, on whichever machine."""
    return re.fullmatch(r"sm_\d+_on_sm_\d+", name) is not None


def pretended_devices(devices: Iterable[Device]) -> tuple[Device, ...]:
    """The older devices that GPUs among ``devices`` can stand in for: all of sm_75 first, in the order of the GPUs."""
    hosts = [device for device in devices if device.kind == "cuda" and device.present and device.sm == 90]
    return tuple(
        replace(host, name=f"sm_{sm}_on_sm_{host.sm}", sm=sm, hardware_sm=host.sm)
        for sm in OLDER_THAN_SM_90
        for host in hosts
    )
