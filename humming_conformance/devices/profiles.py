# SPDX-License-Identifier: Apache-2.0
"""Recorded device profiles: what a library may ask about a GPU that isn't here (``baselines/devices/*.json``)."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import humming_conformance

PROFILES = Path(humming_conformance.__file__).parent / "baselines" / "devices"

#: Version of the files' schema: their fields are those of :class:`DeviceProfile`.
SCHEMA = 1


class ProfileError(ValueError):
    """A device profile is not there or malformed; the text names it, the rule and the mend."""


@dataclass(frozen=True)
class DeviceProfile:
    """A GPU, in the terms of CUDA's device attributes.

    Attributes:
        product: the name that the driver gives.
        sm: compute capability as two digits.
        sm_count: streaming multiprocessors.
        max_threads_per_block, max_threads_per_sm, max_registers_per_sm: limits.
        l1_cache_bytes: L1 and shared memory of one multiprocessor together.
        l2_cache_bytes: of the device.
        shared_memory_per_block_bytes: without opting in to more.
        max_shared_memory_per_block_bytes: with it.
        sm_clock_khz, memory_clock_khz: the highest.
        memory_bus_bits: width of the memory bus.
        memory_bandwidth_gbps: 10^9 bytes per second.
        tensor_core_tops: dense 10^12 operations per second, by operand format as libraries write it.
        provenance: where the numbers are from.
    """

    product: str
    sm: int
    sm_count: int
    max_threads_per_block: int
    max_threads_per_sm: int
    max_registers_per_sm: int
    l1_cache_bytes: int
    l2_cache_bytes: int
    shared_memory_per_block_bytes: int
    max_shared_memory_per_block_bytes: int
    sm_clock_khz: int
    memory_clock_khz: int
    memory_bus_bits: int
    memory_bandwidth_gbps: float
    tensor_core_tops: Mapping[str, float]
    provenance: str


def recorded_profiles(folder: Path = PROFILES) -> tuple[str, ...]:
    """Names of all recorded devices, in alphabetical order."""
    return tuple(sorted(found.stem for found in folder.glob("*.json")))


def load_profile(name: str, folder: Path = PROFILES) -> DeviceProfile:
    """The profile of a file's name without ``.json``: ``a100``, ``l40s``.

    Raises:
        ProfileError: no such file, another schema, or fields that aren't those of :class:`DeviceProfile`.
    """
    path = folder / f"{name}.json"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        names = recorded_profiles(folder)
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ProfileError(f"device profile {name!r} is not recorded; there are {', '.join(names)}{hint}") from None
    except ValueError as error:  # no JSON, or no UTF-8
        raise ProfileError(f"device profile {path}: no JSON ({error}); restore the file") from error
    schema = stored.pop("schema", None) if isinstance(stored, dict) else None
    if schema != SCHEMA:
        raise ProfileError(f"device profile {path}: schema is {schema!r}; this version reads {SCHEMA}")
    known = {field.name for field in fields(DeviceProfile)}
    if wrong := sorted(known ^ stored.keys()):
        raise ProfileError(f"device profile {path}: {', '.join(wrong)} missing or unknown; give each field once")
    return DeviceProfile(**stored)
