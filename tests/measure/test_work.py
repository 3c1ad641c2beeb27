# SPDX-License-Identifier: Apache-2.0
"""The least bytes and operations of a case, against counts by hand."""

from __future__ import annotations

import pytest

from humming_conformance.measure.work import Work, work_of
from humming_conformance.problems import parse_case


@pytest.mark.parametrize(
    ("case_id", "weight_bytes", "others", "operations"),
    [
        # 64 x 128 int4, 64 x 4 bf16 scales; 2 x 128 bf16 activations, 2 x 64 bf16 outputs
        ("dense-w_int4.g32.bf16-a_bf16-m2.n64.k128-random", 4096 + 512, 512 + 256, 2 * 2 * 64 * 128),
        # the same with 4-bit zero points
        ("dense-w_uint4.g32.bf16.zp-a_bf16-m2.n64.k128-random", 4096 + 512 + 128, 512 + 256, 2 * 2 * 64 * 128),
        # 64 x 128 fp8, 64 bf16 scales; 2 x 128 fp8 activations with a fp32 scale each
        (
            "dense-w_fp8_e4m3.channel.bf16-a_fp8_e4m3.token-m2.n64.k128-random",
            8192 + 128,
            256 + 8 + 256,
            2 * 2 * 64 * 128,
        ),
        # one of four experts has rows: its 64 x 128 int4 and scales; 4 tokens, 4 x 2 rows of output
        (
            "moe_indexed-w_int4.g32.bf16-a_bf16-m4.n64.k128.e4.top2.one-random",
            4096 + 512,
            1024 + 1024,
            2 * 8 * 64 * 128,
        ),
    ],
)
def test_work(case_id, weight_bytes, others, operations):
    """Each operand once, the weights of experts that have rows alone."""
    assert work_of(parse_case(case_id)) == Work(weight_bytes, weight_bytes + others, operations)
