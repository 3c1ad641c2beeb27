# SPDX-License-Identifier: Apache-2.0
"""How Humming's stream-K cuts K: the arithmetic of ``Scheduler`` in include/humming/scheduler.cuh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import lcm
from typing import Any

#: kMaxSlices of the scheduler, since 0.1.17.
MAX_SLICES = 10


@dataclass(frozen=True)
class StreamK:
    """What stream-K does to the most divided output tile of a launch.

    Attributes:
        slices: partial results added up (1: the tile isn't divided).
        unordered: they are added in an order that can change from run to run.
    """

    slices: int
    unordered: bool


def stream_k(
    config: Mapping[str, Any],
    *,
    n: int,
    k: int,
    group_size: int,
    m_tiles: int,
    sm: int,
    sm_count: int,
    output_format: str,
    max_slices: int | None = MAX_SLICES,
) -> StreamK:
    """The division of a launch.

    Slice 0 stores its tile; the others add to it in the output format: through TMA or (when there are more
    than three) atomics in any order, else one after another under a lock
    (include/humming/epilogue/pipeline.cuh, gmem_writer.cuh). The sum of two doesn't depend on the order.

    Args:
        config: a tuning configuration.
        n: padded N.
        k: padded K.
        group_size: weight group (0 without groups).
        m_tiles: M tiles of the launch, over all experts.
        sm: architecture that the kernel is compiled for.
        sm_count: multiprocessors of the device, used where the configuration names no ``num_sms``.
        output_format: ``bf16`` or ``fp16``.
        max_slices: the scheduler's limit, None for 0.1.16, which has none.
    """
    if not config.get("use_stream_k", True):
        return StreamK(1, unordered=False)
    _, block_n, block_k = config["block_shape"]
    use_tma = config.get("use_tma_c")
    if use_tma is None:
        use_tma = bool(config.get("use_tma"))
    ctas_along_n = config.get("multi_cast_size_a", 1) * config.get("umma_cta_group_size", 1)
    ctas_along_m = config.get("multi_cast_size_b", 1)
    ctas = config.get("num_ctas_per_sm", 1) * (config.get("num_sms") or sm_count)
    workers = ctas // (ctas_along_n * ctas_along_m)
    tiles = -(-m_tiles // ctas_along_m) * (n // block_n // ctas_along_n)
    if tiles > workers:
        tiles %= workers
        if tiles and _merges_previous_wave(tiles, workers, sm, use_tma=use_tma):
            tiles += workers
    if not tiles:
        return StreamK(1, unordered=False)
    alignment = max(1, group_size // block_k)
    k_blocks = -(-(k // block_k) // alignment) * alignment
    work = -(-tiles * k_blocks // workers)
    if max_slices is not None:
        work = max(work, -(-(k_blocks - 1) // (max_slices - 1)))
    step = lcm(alignment, config.get("num_stages", 2))
    work = -(-work // step) * step
    slices = max(((tile + 1) * k_blocks - 1) // work - tile * k_blocks // work + 1 for tile in range(tiles))
    has_atomics = sm >= 90 or output_format != "bf16"
    return StreamK(slices, unordered=slices > 2 if use_tma else slices > 3 and has_atomics)


def _merges_previous_wave(tiles: int, workers: int, sm: int, *, use_tma: bool) -> bool:
    """Whether a short last wave is divided together with the full one before it."""
    if sm == 89 and not use_tma:
        return tiles * 2 <= workers
    if 100 <= sm < 110 and use_tma:
        return True
    return tiles * 10 <= workers
