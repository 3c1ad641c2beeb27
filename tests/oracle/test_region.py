# SPDX-License-Identifier: Apache-2.0
"""Which elements of a large output are judged."""

from __future__ import annotations

import numpy as np

from humming_conformance.oracle.region import EDGE, WHOLE_UP_TO, Region, judged_region
from humming_conformance.problems import Operands, build_operands, parse_case


def _empty(m: int, top_k: int = 0) -> Operands:
    """Operands of which only launches and routing are looked at."""
    nothing = np.empty(0, dtype=np.uint8)
    expert = None
    if top_k:
        expert = (np.arange(m * top_k, dtype=np.int32) * 7 % 8).reshape(1, m, top_k)
    return Operands(nothing, nothing, None, None, np.empty((1, m, 0), dtype=np.uint8), None, expert, None)


def test_small_outputs_are_judged_whole() -> None:
    """Up to the limit every row and column is judged, and launches of one-hot rows always are."""
    case = parse_case("dense-w_int4.g16.bf16-a_bf16-m5.n7.k32-readout")
    region = judged_region(case, build_operands(case))
    assert np.array_equal(region.rows, Region.whole(case).rows)
    assert np.array_equal(region.columns, np.arange(7))


def test_large_outputs_are_judged_at_edges_and_by_sample() -> None:
    """Beyond the limit all edges are judged, and a sample that meets every residue of a tile of 64."""
    case = parse_case("dense-w_int4.g128.bf16-a_bf16-m8192.n8192.k8192-random")
    assert WHOLE_UP_TO < 8192**3
    region = judged_region(case, _empty(8192))
    for indices in (region.rows, region.columns):
        assert np.array_equal(indices, np.unique(indices))
        assert set(range(EDGE)) | set(range(8192 - EDGE, 8192)) <= set(indices.tolist())
        middle = indices[(indices >= EDGE) & (indices < 8192 - EDGE)]
        assert set((middle % 64).tolist()) == set(range(64))
        assert len(indices) < 512


def test_last_row_of_every_expert_is_judged() -> None:
    """The row in which each expert's last tile ends is part of the region."""
    case = parse_case("moe_indexed-w_int4.g128.bf16-a_bf16-m4096.n4096.k4096.e8.top2-random")
    operands = _empty(4096, top_k=2)
    assert operands.expert is not None
    region = judged_region(case, operands)
    flat = operands.expert.ravel()
    last = {int(np.flatnonzero(flat == expert)[-1]) for expert in range(8)}
    assert last <= set(region.rows.tolist())
