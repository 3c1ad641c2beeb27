# SPDX-License-Identifier: Apache-2.0
"""The table of margins: which verdicts meet in a row, and what it says of them."""

from __future__ import annotations

from dataclasses import replace

from humming_conformance.problems import parse_case
from humming_conformance.protocols import Subject, Verdict
from humming_conformance.report import margin_lines

INT4 = "dense-w_int4.g32.bf16-a_bf16-m1.n8.k32-"
INT8 = "dense-w_int8.channel.fp16-a_fp16-m1.n8.k32-"
ZERO_POINT = "dense-w_uint4.g32.bf16.zp-a_bf16-m1.n8.k32-"
FP8 = "dense-w_fp8_e4m3.channel.bf16-a_fp8_e4m3.token-m1.n8.k32-"


def verdict(case_id, margin, before, contract="bf16 weight_input=bf16 split_k=4 k_tile=64", path="wgmma", **changes):
    """A judged numerics verdict with these margins; None: judged by equality."""
    exact = margin is None
    evidence = {
        "route": {"path": path},
        "contract": contract,
        "exact": exact,
        "margin": 0.0 if exact else margin,
        "margin_before_rounding": 0.0 if exact else before,
    }
    return Verdict(Subject("mine", parse_case(case_id).id, "h200"), "numerics", "pass", evidence=evidence, **changes)


def rows(verdicts, **options):
    """The table's rows as lists of cells, head first."""
    lines = margin_lines(verdicts, **options)
    assert set(lines[1]) == {"|", "-"}
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line is not lines[1]]
    assert {len(row) for row in table} == {lines[1].count("-") // 3}
    return table


VERDICTS = (
    verdict(f"{INT4}random", 0.5, 0.1),
    verdict(f"{INT4}same_sign", 0.7, "inf"),
    verdict(f"{INT8}random", 0.1, 0.2, "fp16 weight_input=fp16 k_tile=64"),
    verdict(f"{INT4}readout", None, None),
    verdict(f"{ZERO_POINT}readout", None, None),
    verdict(f"{FP8}random", 0.25, 0.125, "bf16 fraction_bits=13", "wgmma_channel"),
)


def test_rows():
    """Kernel, path and kinds of operands share a row; its contract is what all of them say."""
    head, *body = rows(VERDICTS)
    split = "weight_input=output split_k=4 k_tile=64"
    assert head[:6] == ["kernel", "path", "weights", "activations", "contract", "exact cases"]
    assert body == [
        ["mine", "wgmma", "integer", "16-bit", "weight_input=output k_tile=64", "1", "3", "0.5", "0.7", "0.2", "inf"],
        ["mine", "wgmma", "integer, integer zero point", "16-bit", split, "1", "0", *[""] * 4],
        [
            "mine",
            "wgmma_channel",
            "float",
            "fp8_e4m3",
            "fraction_bits=13",
            "0",
            "1",
            *["0.25"] * 2,
            *["0.125"] * 2,
        ],
    ]


def test_a_row_for_each_regime():
    """Regimes stand apart where asked."""
    body = rows(VERDICTS[:4], by_regime=True)[1:]
    assert [(row[4], row[6], row[7]) for row in body] == [
        ("random", "0", "2"),
        ("readout", "1", "0"),
        ("same_sign", "0", "1"),
    ]


def test_what_was_not_judged_has_no_row():
    """Verdicts without a margin, of another suite, that failed, or settled again later, aren't counted."""
    unsupported = Verdict(Subject("mine", f"{INT4}random", "h200"), "numerics", "unsupported")
    timed = Verdict(Subject("mine", f"{INT4}random", "h200"), "performance", "pass", evidence={"margin": 1})
    failed = replace(verdict(f"{INT4}random", 7.0, 7.0), outcome="fail")
    assert margin_lines([unsupported, timed, failed]) == []
    assert rows([verdict(f"{INT4}random", 0.9, 0.9), VERDICTS[0]])[1][6:8] == ["1", "0.5"]
