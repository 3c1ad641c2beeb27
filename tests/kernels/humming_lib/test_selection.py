# SPDX-License-Identifier: Apache-2.0
"""Selection and tensors against the installed library, which sees a pretended H100."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = (
    "dense-w_int4.g128.bf16-a_bf16-m16.n1024.k1024-random",
    "dense-w_uint4.g32.fp16.zp-a_fp16-m16.n72.k544-bias-random",
    "dense-w_fp4_e2m1.g32.ue8m0-a_fp8_e4m3.token-m16.n1024.k1024-random",
    "dense-w_int8.channel.bf16-a_int8.token-m16.n320.k1024-random",
    "moe_indexed-w_int4.g64.bf16-a_bf16-m16.n256.k512.e8.top2-random",
    "moe_grouped_contiguous-w_uint4.g32.bf16.zp-a_int8.token-m16.n256.k512.e8.top2-bias-random",
    "moe_grouped_masked-w_fp4_e2m1.g32.ue8m0-a_fp8_e4m3.token-m16.n256.k512.e8.top2-random",
)


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """What a process with a pretended H100 says about each case."""
    if importlib.util.find_spec("humming") is None:
        pytest.skip("humming-kernels isn't installed: pip install humming-conformance[humming]")
    environment = os.environ | {
        "HUMMING_CACHE_DIR": str(tmp_path_factory.mktemp("humming_cache")),
        "HUMMING_COMPILER": "nvcc",
        "HUMMING_DISABLE_PARALLEL_BUILD": "1",
        "HUMMING_TEST_TUNING_SOURCE": "none",
    }
    environment.pop("PYTEST_CURRENT_TEST", None)
    script = Path(__file__).with_name("pretended_device.py")
    done = subprocess.run(
        [sys.executable, str(script), *CASES], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, dict[str, object]] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("text", CASES)
def test_one_point_is_the_librarys_own_entry(text: str, findings: dict[str, dict[str, object]]):
    """At and around every interval edge the configuration is that of the library's interval list."""
    found = findings[text]
    assert found["intervals"] != 0
    assert found["differ"] == []


@pytest.mark.parametrize("text", CASES)
def test_tensors_are_the_documented_ones(text: str, findings: dict[str, dict[str, object]]):
    """Names, shapes and dtypes are exactly those of the library's schema."""
    assert findings[text]["tensors"] == ""


def test_no_schedule_is_a_named_error(findings: dict[str, dict[str, object]]):
    """An M outside every interval gives a SelectionError that names GEMM type, M and layer."""
    refusal = findings[CASES[0]]["refusal"]
    assert "no dense schedule for M=0: LookupError: M is in no interval" in str(refusal)
    assert "N=1024 K=1024" in str(refusal)
