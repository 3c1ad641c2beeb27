# SPDX-License-Identifier: Apache-2.0
"""Our kernels in CUDA graphs and on concurrent streams; every test needs a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from exact import assert_equal, assert_right

CALLS = pytest.mark.parametrize("call", ["graph", "streams", "graph.streams"])
CASES = (
    ("triton_fused", "dense-w_int4.g64.bf16-a_bf16-m40.n72.k520-CALL-random"),
    ("triton_fused", "dense-w_int4.g64.bf16-a_bf16-m40.n72.k520-CALL-readout"),
    ("triton_fused", "moe_indexed-w_uint4.g32.bf16.zp-a_bf16-m16.n24.k160.e4.top2-CALL-random"),
    ("triton_fused", "moe_grouped_masked-w_int4.g32.fp16-a_fp16-m16.n24.k96.e4.top2-CALL-readout"),
    ("torch_gemm", "dense-w_int8.channel.fp16-a_fp16-m40.n72.k520-bias-CALL-random"),
    ("torch_gemm", "dense-w_int8.channel.fp16-a_fp16-m40.n72.k520-CALL-readout"),
    ("qdq", "dense-w_uint4.g32.bf16.zp-a_int8.token-m40.n72.k520-CALL-random"),
    ("qdq", "moe_indexed-w_uint4.g32.bf16.zp-a_int8.token-m16.n24.k160.e4.top2-bias-CALL-random"),
    ("qdq", "moe_grouped_masked-w_int4.g32.fp16-a_fp16-m16.n24.k96.e4.top2-CALL-readout"),
)


@CALLS
@pytest.mark.parametrize(("kernel", "case_id"), CASES)
def test_graphs_and_streams_change_no_bit(run_case, kernel, case_id, call):
    """Replays and launches side by side bring what a plain launch brings, and that is right."""
    case_id = case_id.replace("CALL", f"call_{call}")
    found = run_case(kernel, case_id, "cuda", relations=True)
    assert found["trouble"] == []
    assert found["unwritten"] == 0
    assert (len(found["replayed"]) > 0) == ("graph" in call)
    assert (len(found["concurrent"]) > 0) == ("streams" in call)
    for other in (*found["replayed"], *found["concurrent"]):
        np.testing.assert_array_equal(other, found["output"])
    np.testing.assert_array_equal(found["repeat"], found["output"][:1])
    (assert_right if case_id.endswith("random") else assert_equal)(case_id, found["output"])


def test_what_a_graph_does_is_done_at_every_replay(call_task, device_fields):
    """A counter on the device counts replays: capturing counts nothing, and the two replays differ by one."""
    found = call_task(
        "cuda",
        "humming_conformance.execution.run_case:run_case",
        kernel="counting_kernel:kernel",
        case="dense-w_int8.channel.fp16-a_fp16-m2.n8.k32-call_graph-all_codes",
        device=device_fields("cuda"),
        relations=False,
    )
    first, last = (codes.view(np.float16) for codes in (found["replayed"][0], found["output"]))
    assert (first != last).any()
