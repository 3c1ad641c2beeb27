# SPDX-License-Identifier: Apache-2.0
"""What the device itself can do, measured in the process that times kernels: bandwidths, matrix rate, a launch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from humming_conformance.measure.timing import Timer, interleaved

#: Cycles of each measurement, of which the median counts.
_CYCLES = 5


@dataclass(frozen=True)
class Roofs:
    """Best rates of one device.

    Attributes:
        read, write, copy: bytes a second; a copy counts bytes read and written.
        bf16: operations a second (2 M N K) of a bf16 GEMM on random data.
        launch: seconds of an empty kernel among others in a graph.
    """

    read: float
    write: float
    copy: float
    bf16: float
    launch: float


def measure_roofs(timer: Timer, device: torch.device, *, buffer_bytes: int = 1 << 32, size: int = 8192) -> Roofs:
    """Measure all roofs.

    Args:
        timer: of the device.
        device: where.
        buffer_bytes: of each of two buffers, which should be many times the L2 cache.
        size: M, N and K of the GEMM.
    """
    source = torch.ones(buffer_bytes // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    factors = [torch.randn(size, size, device=device).to(torch.bfloat16) for _ in range(2)]
    product = torch.empty(size, size, dtype=torch.bfloat16, device=device)
    one = torch.zeros(1, device=device)
    launches = 50
    total = torch.empty((), device=device)

    def read() -> None:
        torch.sum(source, dim=0, out=total)

    works = {
        "read": timer.capture([read]),
        "write": timer.capture([target.zero_]),
        "copy": timer.capture([lambda: target.copy_(source)]),
        "gemm": timer.capture([lambda: torch.mm(factors[0], factors[1], out=product)]),
        "launch": timer.capture([one.zero_] * launches),
    }
    seconds = {name: float(np.median(times)) for name, times in interleaved(timer, works, _CYCLES).items()}
    return Roofs(
        read=buffer_bytes / seconds["read"],
        write=buffer_bytes / seconds["write"],
        copy=2 * buffer_bytes / seconds["copy"],
        bf16=2 * size**3 / seconds["gemm"],
        launch=seconds["launch"] / launches,
    )
