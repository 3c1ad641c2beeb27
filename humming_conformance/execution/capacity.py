# SPDX-License-Identifier: Apache-2.0
"""How many kernel processes this machine carries at a time."""

from __future__ import annotations

import os

from humming_conformance import devices


def parallel_processes(*, sanitized: bool = False) -> int:
    """As many as memory, cores and GPUs carry, at least 1; ``sanitized``: each under a memory checker."""
    cores = len(os.sched_getaffinity(0))
    # The records of a memory checker take several times a kernel process's own memory.
    needed = 2**33 if sanitized else 2**31
    by_memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // needed
    gpus = [device for device in devices.detect_devices() if device.kind == "cuda"]
    # A CUDA context and a case's operands take up to 2 GiB; 16 keep an H200 and the compilers on 16 cores busy.
    by_gpu = [sum(min(16, gpu.memory // needed) for gpu in gpus)] if gpus else []
    return max(1, min(cores, by_memory, *by_gpu))
