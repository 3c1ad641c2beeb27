# SPDX-License-Identifier: Apache-2.0
"""Devices: what a machine offers, found without creating a CUDA context."""

from __future__ import annotations

from humming_conformance.devices.detect import NO_GPU, describe_gpus, detect_devices, gpu_problem
from humming_conformance.devices.device import Device, names_pretended_device, pretended_devices
from humming_conformance.devices.profiles import DeviceProfile, ProfileError, load_profile, recorded_profiles

__all__ = [
    "NO_GPU",
    "Device",
    "DeviceProfile",
    "ProfileError",
    "describe_gpus",
    "detect_devices",
    "gpu_problem",
    "load_profile",
    "names_pretended_device",
    "pretended_devices",
    "recorded_profiles",
]
