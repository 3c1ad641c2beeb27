# SPDX-License-Identifier: Apache-2.0
"""A Triton kernel of our own that also runs in Triton's interpreter: dense and MoE, 4- and 8-bit weights."""

from __future__ import annotations

from humming_conformance.kernels.triton_fused.adapter import TritonFused

kernel = TritonFused()

__all__ = ["TritonFused", "kernel"]
