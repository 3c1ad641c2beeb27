# SPDX-License-Identifier: Apache-2.0
"""The operands of a case: codes, scales, zero points, activations and routing, unpacked and neutral."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Operands:
    """Everything a kernel is given, as element codes; E is 1 for dense problems, L counts launches.

    A launch is one call of the kernel; only ``readout`` needs more than one. Weights are shared by all
    launches.

    Attributes:
        weight: (E, N, K) codes of the weight format.
        weight_scale: (E, rows, columns) codes of the weight's scale format; rows, columns as the granularity
            says.
        zero_point: (E, N, groups) uint8 codes (integer) or codes of the output format (float), or None.
        weight_scale_2: (E, 1) fp32 codes (tensor) or (E, N) codes of the output format (channel), or None.
        activation: (L, M, K) codes of the activation format.
        activation_scale: (L, rows, columns) codes of the activation's scale format, or None.
        expert: (L, M, top_k) int32 expert of each token and slot, or None for dense.
        bias: (E, N) codes of the output format, or None.
    """

    weight: Codes
    weight_scale: Codes
    zero_point: Codes | None
    weight_scale_2: Codes | None
    activation: Codes
    activation_scale: Codes | None
    expert: NDArray[np.int32] | None
    bias: Codes | None

    @property
    def launches(self) -> int:
        """How many times the kernel is launched."""
        return int(self.activation.shape[0])

    def digest(self) -> str:
        """SHA-256 over every tensor's name, shape, dtype and little-endian bytes."""
        sha = hashlib.sha256()
        for item in fields(self):
            value = getattr(self, item.name)
            if value is None:
                continue
            array = np.ascontiguousarray(value)
            sha.update(f"{item.name}:{array.shape}:{array.dtype.str}".encode())
            sha.update(array.data)
        return sha.hexdigest()
