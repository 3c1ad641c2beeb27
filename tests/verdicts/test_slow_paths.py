# SPDX-License-Identifier: Apache-2.0
"""Each slow-path rule speaks of just what it is about, and says what it compared."""

from __future__ import annotations

import pytest

from humming_conformance.problems import parse_case
from humming_conformance.verdicts.slow_paths import RULES, Speed, slow_paths

DENSE = "dense-w_{}-m{}.n{}.k4096-random"
INT4, INT8, MXFP4 = "int4.g128.bf16-a_bf16", "int8.channel.bf16-a_bf16", "fp4_e2m1.g32.ue8m0-a_bf16"
MXFP4_FP8 = "fp4_e2m1.g32.ue8m0-a_fp8_e4m3.token"
MOE = "{}-w_int4.g128.bf16-a_bf16-m16.n512.k1024.e8.top2-random"


def _speed(microseconds, *, megabytes=8.0, **anchors):
    """On a device that reads 4 TB/s and launches in 1.5 us."""
    return Speed(
        microseconds * 1e-6, {name: us * 1e-6 for name, us in anchors.items()}, 4e12, 1.5e-6, int(megabytes * 1e6)
    )


def _said(case_id, speeds):
    """What rules say of a case: by name, of those that had something to compare."""
    cases = {parse_case(name): speed for name, speed in speeds.items()}
    return {found.rule: found.trouble for found in slow_paths(parse_case(case_id), cases)}


def test_a_fast_kernel_alone():
    """A decode at two thirds of the bandwidth, faster than its anchors: every rule that applies is content."""
    case = DENSE.format(INT4, 1, 4096)
    assert _said(case, {case: _speed(9, qdq=60, gemm=14)}) == {
        "slower than QDQ": "",
        "below the bandwidth of decode": "",
    }


@pytest.mark.parametrize(
    ("rule", "case", "speeds", "told"),
    [
        (
            "slower than QDQ",
            DENSE.format(INT4, 256, 4096),
            {DENSE.format(INT4, 256, 4096): _speed(80, qdq=60, gemm=90)},
            "80 us, 1.33 times as long as QDQ",
        ),
        (
            "slower than unquantized",
            DENSE.format(MXFP4, 4096, 3072),
            {DENSE.format(MXFP4, 4096, 3072): _speed(280, qdq=300, gemm=134)},
            "280 us, 2.09 times as long as the same product of 16-bit operands",
        ),
        (
            "below the bandwidth of decode",
            DENSE.format(INT4, 1, 4096),
            {DENSE.format(INT4, 1, 4096): _speed(20, qdq=60)},
            "20 us, more than 12.5 us",
        ),
        (
            "cliff between neighbours",
            DENSE.format(INT4, 128, 4096),
            {DENSE.format(INT4, 128, 4096): _speed(60), DENSE.format(INT4, 96, 4096): _speed(20)},
            "3.00 times as long as M=96, for 1.33 times the work",
        ),
        (
            "cliff between neighbours",
            DENSE.format(INT4, 96, 4096),
            {DENSE.format(INT4, 128, 4096): _speed(20), DENSE.format(INT4, 96, 4096): _speed(60)},
            "3.00 times as long as M=128, which is more work",
        ),
        (
            "cliff between neighbours",
            DENSE.format(INT4, 128, 4224),
            {DENSE.format(INT4, 128, 4224): _speed(60), DENSE.format(INT4, 128, 4096): _speed(20)},
            "3.00 times as long as N=4096, for 1.03 times the work",
        ),
        (
            "fewer bits are slower",
            DENSE.format(INT4, 1, 4096),
            {DENSE.format(INT4, 1, 4096): _speed(12), DENSE.format(INT8, 1, 4096): _speed(9)},
            f"12 us, 1.33 times as long as {DENSE.format(INT8, 1, 4096)}",
        ),
        (
            "fp8 is slower than 16 bits",
            DENSE.format(MXFP4_FP8, 2048, 4096),
            {DENSE.format(MXFP4_FP8, 2048, 4096): _speed(120), DENSE.format(MXFP4, 2048, 4096): _speed(100)},
            f"120 us, 1.20 times as long as {DENSE.format(MXFP4, 2048, 4096)}",
        ),
        (
            "indexed is slower than grouped",
            MOE.format("moe_indexed"),
            {MOE.format("moe_indexed"): _speed(20, megabytes=20), MOE.format("moe_grouped_contiguous"): _speed(10)},
            f"20 us, 2.00 times as long as {MOE.format('moe_grouped_contiguous')}",
        ),
    ],
)
def test_each_rule_alone(rule, case, speeds, told):
    """Just this rule speaks, of just this case; the case that it was compared with is fine."""
    said = _said(case, speeds)
    assert told in said[rule]
    assert [name for name, trouble in said.items() if trouble] == [rule]
    for other in speeds.keys() - {case}:
        assert not any(_said(other, speeds).values())


def test_every_rule_is_broken_above():
    """No rule without its test."""
    marks = test_each_rule_alone.pytestmark
    assert {arguments[0] for arguments in marks[0].args[1]} == RULES.keys()


def test_more_work_may_take_its_time():
    """Twice the rows in twice the time, half the bits in half of it: nothing to say."""
    speeds = {
        DENSE.format(INT4, 64, 4096): _speed(10),
        DENSE.format(INT4, 128, 4096): _speed(20),
        DENSE.format(INT8, 64, 4096): _speed(12),
    }
    for case in speeds:
        assert not any(_said(case, speeds).values())
