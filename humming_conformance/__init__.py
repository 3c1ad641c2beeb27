# SPDX-License-Identifier: Apache-2.0
"""Judge whether a quantized GEMM or MoE kernel may ship: numerics, routing, codegen, performance."""

__version__ = "0.1.0"
