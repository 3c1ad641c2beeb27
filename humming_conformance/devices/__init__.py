# SPDX-License-Identifier: Apache-2.0
"""Devices: what a machine offers, found without creating a CUDA context."""

from __future__ import annotations

from humming_conformance.devices.device import Device
from humming_conformance.devices.detect import detect_devices

__all__ = ["Device", "detect_devices"]
