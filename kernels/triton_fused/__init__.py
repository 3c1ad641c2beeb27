# SPDX-License-Identifier: Apache-2.0
"""A Triton kernel of our own that also runs in Triton's interpreter: dense and MoE, weights of 3 to 8 bits."""

from __future__ import annotations

from humming_conformance.kernels.triton_fused.adapter import TritonFused

kernel = TritonFused()

__all__ = ["TritonFused", "kernel"]
