# SPDX-License-Identifier: Apache-2.0
"""Devices: what a machine offers, found without creating a CUDA context."""

from __future__ import annotations

from humming_conformance.devices.detect import NO_GPU, describe_gpus, detect_devices, gpu_problem
from humming_conformance.devices.device import Device

__all__ = ["NO_GPU", "Device", "describe_gpus", "detect_devices", "gpu_problem"]
