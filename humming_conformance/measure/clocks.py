# SPDX-License-Identifier: Apache-2.0
"""What a GPU says of its own speed: clocks, power, temperature, and why it holds itself back (NVML)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

#: Reasons to run below the highest clock that say something is wrong with a measurement, by NVML's bit. Idling (0x1),
#: clocks set by an application (0x2) and sync boost (0x10) don't, nor does the power cap (0x4), at which large products
#: run all the time, anchors too.
REASONS = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
#: By how much the SM clock may differ between readings under load before they count as different clocks.
CLOCK_TOLERANCE = 0.02


@dataclass(frozen=True)
class Reading:
    """One reading: MHz, watts, degrees Celsius, NVML's bits of clock event reasons."""

    sm_mhz: int
    memory_mhz: int
    watts: float
    celsius: int
    reasons: int


class Meter(Protocol):
    """What readings come from."""

    def read(self) -> Reading:
        """The state of the GPU now."""


class NvmlMeter:
    """:class:`Meter` of the GPU with a UUID, through NVML.

    Raises:
        pynvml.NVMLError: there is no such GPU.
    """

    def __init__(self, uuid: str) -> None:
        import pynvml

        pynvml.nvmlInit()
        self._nvml = pynvml
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def read(self) -> Reading:
        nvml, handle = self._nvml, self._handle
        return Reading(
            sm_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            memory_mhz=nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            watts=nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
            celsius=nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            reasons=nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
        )


def disturbances(readings: Iterable[Reading]) -> list[str]:
    """What in readings under load keeps a time from counting; empty where nothing does."""
    readings = list(readings)
    found = [name for bit, name in REASONS.items() if any(reading.reasons & bit for reading in readings)]
    for name, clocks in (
        ("SM clock", [reading.sm_mhz for reading in readings]),
        ("memory clock", [reading.memory_mhz for reading in readings]),
    ):
        if clocks and max(clocks) - min(clocks) > CLOCK_TOLERANCE * max(clocks):
            found.append(f"{name} between {min(clocks)} and {max(clocks)} MHz")
    return found
