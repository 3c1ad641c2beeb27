# SPDX-License-Identifier: Apache-2.0
"""A device a subject is judged on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Device:
    """A named place to run a kernel.

    Attributes:
        name: as subjects write it: ``h200``, ``cpu``, ``cpu_interpreter``, ``no_gpu``.
        kind: what an adapter asks for.
        present: False for a device that the plan wants and the machine lacks.
        sm: compute capability as two digits (90 for sm_90), 0 for CPUs.
        index: CUDA device index in NVML order (PCI bus order).
        uuid: NVML's UUID, the key of the GPU lease.
        memory: bytes of device memory, 0 for CPUs.
    """

    name: str
    kind: Literal["cuda", "cpu", "cpu_interpreter"]
    present: bool = True
    sm: int = 0
    index: int = 0
    uuid: str = ""
    memory: int = 0
