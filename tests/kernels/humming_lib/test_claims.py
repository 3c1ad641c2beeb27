# SPDX-License-Identifier: Apache-2.0
"""What the adapter claims, and on which architectures."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from humming_conformance.devices import NO_GPU, Device
from humming_conformance.kernels.humming_lib import kernel
from humming_conformance.problems import parse_case
from humming_conformance.problems.tiers import load_tier
from humming_conformance.protocols import Kernel

H200 = Device("h200", "cuda", sm=90)


def test_adapter_satisfies_the_protocol():
    """The object that discovery finds is a Kernel with a library and its own cache folder."""
    assert isinstance(kernel, Kernel)
    assert kernel.library is not None
    assert kernel.library.cache_variables == ("HUMMING_CACHE_DIR",)
    assert kernel.library.environment["HUMMING_TEST_TUNING_SOURCE"] == "none"


@pytest.mark.parametrize(
    "text",
    [
        "dense-w_int4.g128.bf16-a_bf16-m1.n4096.k4096-random",
        "dense-w_int4.channel.fp16-a_fp16-m1.n72.k544-random",
        "moe_indexed-w_uint4.g64.bf16.zp-a_int8.token-m16.n256.k512.e8.top2-bias-random",
        "moe_grouped_masked-w_fp4_e2m1.g32.ue8m0-a_fp8_e4m3.token-m16.n256.k512.e8.top2.skewed-random",
        "moe_grouped_contiguous-w_fp8_e4m3.channel.fp16-a_fp8_e4m3.token-o_fp16-m16.n256.k512.e8.top2-random",
        "dense-w_int8.channel.bf16-a_int8.token-m300.n256.k512-random",
        "dense-w_fp4_e2m1.g16.fp8_e4m3.s2tensor-a_bf16-m1.n256.k512-random",
        "dense-w_fp4_e2m1.g32.ue8m0-a_fp8_e4m3.g128-m1.n256.k512-random",
        "moe_indexed-w_fp8_e4m3.b128x128.fp32-a_fp8_e4m3.g128-m1.n256.k512.e256.top8-random",
        "dense-w_uint4.g128.fp16.fzp-a_fp16-m1.n256.k512-random",
        "dense-w_int4.g1024.bf16-a_int8.token-m1.n256.k1024-random",
    ],
)
def test_claimed(text: str):
    """Documented combinations are claimed on the H200, and absent on a machine without a GPU."""
    assert kernel.support(parse_case(text), H200).answer == "yes"
    assert kernel.support(parse_case(text), NO_GPU).answer == "absent"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "dense-w_int4.g128.fp16-a_bf16-m1.n256.k512-random",
            "16-bit weight scales are in the output format",
        ),
        ("dense-w_int4.g128.bf16-a_bf16-m1.n250.k512-random", "N is a multiple of 8"),
        ("dense-w_int4.channel.bf16-a_bf16-m1.n256.k520-random", "K is a multiple of 32"),
        ("dense-w_int4.g128.bf16-a_bf16-m1.n256.k544-random", "K is a multiple of the groups"),
        ("dense-w_int2.g128.bf16-a_bf16-m1.n256.k512-random", "int2"),
        ("dense-w_fp8_e4m3.b128x128.fp32-a_bf16-m1.n192.k512-random", "N is a multiple of the block"),
        ("dense-w_int4.g128.bf16-a_fp8_e4m3.g64-m1.n256.k512-random", "an activation group is the weight's"),
        ("dense-w_fp4_e2m1.g32.bf16-a_bf16-m1.n256.k512-random", "scale format bf16 is not claimed"),
    ],
)
def test_not_claimed(text: str, why: str):
    """What lies outside the claims is refused, and the reason names it."""
    support = kernel.support(parse_case(text), H200)
    assert support.answer == "no"
    assert why in support.reason


@pytest.mark.parametrize(
    ("activation", "sm", "answer"),
    [
        ("bf16", 75, "no"),
        ("bf16", 80, "yes"),
        ("fp8_e4m3.token", 86, "no"),
        ("fp8_e4m3.token", 89, "yes"),
        ("int8.token", 75, "yes"),
        ("fp8_e4m3.token", 121, "yes"),
    ],
)
def test_architectures(activation: str, sm: int, answer: str):
    """Activation formats are claimed from the architecture on that the README gives."""
    case = parse_case(f"dense-w_int4.g128.bf16-a_{activation}-m16.n256.k512-random")
    support = kernel.support(case, Device(f"sm_{sm}", "cuda", sm=sm))
    assert support.answer == answer
    assert (f"not sm_{sm}" in support.reason) == (answer == "no")


@pytest.mark.parametrize(("sm", "answer"), [(89, "no"), (90, "yes"), (120, "no")])
def test_unequal_groups_are_sm_90s_alone(sm: int, answer: str):
    """The library's own rule serves MXFP4 with fp8 in groups of 128 on sm_90, and equal groups on any GPU."""
    device = Device(f"sm_{sm}", "cuda", sm=sm)
    unequal, equal = (
        kernel.support(parse_case(f"dense-w_fp4_e2m1.g32.ue8m0-a_fp8_e4m3.{group}-m16.n256.k512-random"), device)
        for group in ("g128", "g32")
    )
    assert unequal.answer == answer
    assert (f"need sm_90, not sm_{sm}" in unequal.reason) == (answer == "no")
    assert equal.answer == "yes"


@pytest.mark.parametrize("sm", [*kernel.older_paths, 90])
def test_claims_are_the_librarys_own_rule(sm: int, library_environment: dict[str, str]):
    """On each architecture the schemes of the tier lists are claimed exactly where the library says it serves them."""
    cases = {
        (case.weight, case.activation, case.output): case for case in map(parse_case, load_tier("full", "humming"))
    }
    device = Device(f"sm_{sm}", "cuda", sm=sm)
    claimed = {case.id: kernel.support(case, device).answer == "yes" for case in cases.values()}
    script = Path(__file__).with_name("compatible_schemes.py")
    command = [sys.executable, str(script), str(sm), *claimed]
    done = subprocess.run(command, env=library_environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert any(claimed.values())
    assert claimed == json.loads(done.stdout)
