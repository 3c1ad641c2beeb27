# SPDX-License-Identifier: Apache-2.0
"""Humming: the library under test, its claims, its schedules and its arithmetic."""

from humming_conformance.kernels.humming_lib.adapter import HummingKernelAdapter

#: The adapter that ``--kernel humming`` and discovery find.
kernel = HummingKernelAdapter()

__all__ = ["HummingKernelAdapter", "kernel"]
