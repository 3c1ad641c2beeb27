# SPDX-License-Identifier: Apache-2.0
"""The Triton kernels compile for GPUs that aren't here, to what their contract and their schedule say."""

from __future__ import annotations

import pytest

#: Bytes of shared memory a block may use on the smallest of these architectures (sm_86, sm_89, sm_120).
SHARED_LIMIT = 99 * 1024
SCHEMES = (("int4", 128, False), ("uint8", 64, True), ("fp4_e2m1", 32, False))
#: Kernel, and rows (of each expert on average): one of each schedule.
LAUNCHES = (("dense", 1), ("dense", 64), ("dense", 4096), ("moe", 1), ("moe", 32), ("moe", 4096))


@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda launch: f"{launch[0]}-{launch[1]}")
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme[0])
@pytest.mark.parametrize(("sm", "mma"), [(80, "mma.sync"), (90, "wgmma")])
def test_compiles_to_tensor_cores_without_spills(call_task, sm, mma, scheme, launch):
    """Every schedule uses tensor cores, fits in shared memory, spills nothing and keeps fp32 subnormals."""
    kernel, m = launch
    element, group_size, zero_point = scheme
    arguments = {"element": element, "group_size": group_size, "zero_point": zero_point}
    found = call_task("cpu", "triton_tasks:compile_kernel", moe=kernel == "moe", sm=sm, m=m, **arguments)
    assert found["mma_class"] == mma
    assert found["shared"] <= SHARED_LIMIT
    assert found["stack"] == 0
    assert not found["flushes_subnormals"]
