# SPDX-License-Identifier: Apache-2.0
"""Row and index layouts of the three kinds of MoE call, from the expert of each token and slot.

A logical row is token * top_k + slot. Each layout holds something that must not be read: a block of ids
behind the padded count, or rows that belong to no expert.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

#: Rows behind the last expert's (contiguous) and behind each expert's longest list (masked) that nobody owns.
SPARE_ROWS = 3


@dataclass(frozen=True)
class IndexedLayout:
    """Rows in blocks of one expert, as an M tile of a kernel takes them.

    Attributes:
        sorted_ids: logical rows grouped by expert, each expert padded to a multiple of the M tile with the
            number of rows; one more tile behind ``num_tokens_padded`` names real rows under a wrong expert.
        expert_ids: the expert of each M tile of ``sorted_ids``.
        num_tokens_padded: how many of ``sorted_ids`` count.
    """

    sorted_ids: Int32s
    expert_ids: Int32s
    num_tokens_padded: int


@dataclass(frozen=True)
class GroupedLayout:
    """Physical rows of the grouped kinds, contiguous and masked.

    Attributes:
        physical_rows: rows of the input and output, unowned ones included.
        row_of: physical row of each logical row.
        expert_layout: offsets (E + 1) for contiguous, counts (E) for masked.
    """

    physical_rows: int
    row_of: Int64s
    expert_layout: Int32s


def expert_counts(expert: Int32s, experts: int) -> Int64s:
    """Rows of each expert."""
    return np.bincount(expert.reshape(-1), minlength=experts)


def indexed(expert: Int32s, experts: int, block_m: int) -> IndexedLayout:
    """Index tensors for (tokens, top_k) experts and the M tile of the kernel that will run."""
    flat = expert.reshape(-1)
    rows = flat.size
    counts = expert_counts(expert, experts)
    blocks = -(-counts // block_m)
    total = int(blocks.sum())
    sorted_ids = np.full((total + 1) * block_m, rows, dtype=np.int32)
    order = np.argsort(flat, kind="stable")
    first_slot = (np.cumsum(blocks) - blocks) * block_m
    rank = np.arange(rows) - (np.cumsum(counts) - counts)[flat[order]]
    sorted_ids[first_slot[flat[order]] + rank] = order
    expert_ids = np.repeat(np.arange(experts, dtype=np.int32), blocks)
    # What lies behind the padded count would overwrite real rows with another expert's result.
    sorted_ids[total * block_m :] = np.arange(block_m) % rows
    wrong_expert = (flat[0] + 1) % experts
    return IndexedLayout(sorted_ids, np.append(expert_ids, np.int32(wrong_expert)), total * block_m)


def grouped_contiguous(expert: Int32s, experts: int) -> GroupedLayout:
    """Rows sorted by expert, unowned ones behind the last offset."""
    flat = expert.reshape(-1)
    row_of = np.empty(flat.size, dtype=np.int64)
    row_of[np.argsort(flat, kind="stable")] = np.arange(flat.size)
    offsets = np.concatenate([[0], np.cumsum(expert_counts(expert, experts))])
    return GroupedLayout(flat.size + SPARE_ROWS, row_of, offsets.astype(np.int32))


def grouped_masked(expert: Int32s, experts: int, max_tokens: int) -> GroupedLayout:
    """``max_tokens`` rows for every expert, the first ``count`` of them owned."""
    flat = expert.reshape(-1)
    counts = expert_counts(expert, experts)
    order = np.argsort(flat, kind="stable")
    row_of = np.empty(flat.size, dtype=np.int64)
    rank = np.arange(flat.size) - (np.cumsum(counts) - counts)[flat[order]]
    row_of[order] = flat[order].astype(np.int64) * max_tokens + rank
    return GroupedLayout(experts * max_tokens, row_of, counts.astype(np.int32))
