# SPDX-License-Identifier: Apache-2.0
"""The Triton kernels compile for GPUs that aren't here, to what their contract and their schedule say."""

from __future__ import annotations

import pytest

#: Bytes of shared memory a block may use on the smallest of these architectures (sm_86, sm_89, sm_120).
SHARED_LIMIT = 99 * 1024
#: Bytes of stack: none but on sm_120, where each ptxas of triton 3.6 to 3.9 spills a few registers of other kernels.
STACK_LIMIT = {80: 0, 90: 0, 120: 32}
#: Each way of decoding elements and scales and of finding a scale.
SCHEMES = (
    "int4.g128.bf16",
    "int4.g96.bf16.s2channel",
    "uint8.g64.bf16.zp",
    "uint4.g16.bf16.fzp",
    "fp4_e2m1.g32.ue8m0",
    "fp4_e2m1.g16.fp8_e4m3.s2tensor",
    "fp8_e4m3.g32.ue8m0",
    "fp8_e4m3.b128x128.fp32",
)
#: Kernel, and rows (of each expert on average): one of each schedule.
LAUNCHES = (("dense", 1), ("dense", 64), ("dense", 4096), ("moe", 1), ("moe", 32), ("moe", 4096))


@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda launch: f"{launch[0]}-{launch[1]}")
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("sm", "mma"), [(80, "mma.sync"), (90, "wgmma"), (120, "mma.sync")])
def test_compiles_to_tensor_cores_without_spills(call_task, sm, mma, scheme, launch):
    """Every schedule uses tensor cores, fits in shared memory, spills next to nothing and keeps fp32 subnormals."""
    kernel, m = launch
    case_id = f"dense-w_{scheme}-a_bf16-m1.n128.k256-random"
    found = call_task("cpu", "triton_tasks:compile_kernel", moe=kernel == "moe", sm=sm, m=m, case_id=case_id)
    assert found["mma_class"] == mma
    assert found["shared"] <= SHARED_LIMIT
    assert found["stack"] <= STACK_LIMIT[sm]
    assert not found["flushes_subnormals"]
