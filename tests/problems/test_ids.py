# SPDX-License-Identifier: Apache-2.0
"""Case ids: one text a case, defaults left out, and one clear error for anything else."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from strategies import cases

from humming_conformance.formats import FormatError, parse_granularity
from humming_conformance.problems import (
    ActivationScheme,
    Case,
    CaseError,
    CaseIdError,
    Problem,
    WeightScheme,
    format_case,
    parse_case,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "case_ids.md"
PLAIN = "dense-w_int4.g128.bf16-a_bf16-m16.n256.k512-readout"


@given(cases())
def test_round_trip(case):
    """Reading the id of any valid case gives the case back."""
    assert parse_case(format_case(case)) == case


@given(cases())
def test_characters(case):
    """An id is one word for ``-k``, a file name and a shell."""
    assert re.fullmatch(r"[A-Za-z0-9_.+-]+", case.id)


def test_parts():
    """Each part of an id lands in the field that the grammar names."""
    text = (
        "moe_grouped_masked-w_uint4.g32.bf16.zp.s2channel-a_fp8_e4m3.g64.ue8m0-o_fp16-m16.n256.k512.e8.top2.skewed"
        "-bias-src_awq-call_graph.streams-random-s7"
    )
    assert parse_case(text) == Case(
        WeightScheme("uint4", parse_granularity("g32"), "bf16", "integer", "channel"),
        ActivationScheme("fp8_e4m3", parse_granularity("g64"), "ue8m0"),
        Problem("moe_grouped_masked", 16, 256, 512, 8, 2, "skewed", bias=True),
        "random",
        output="fp16",
        source="awq",
        call=("graph", "streams"),
        seed=7,
    )


def test_defaults_are_left_out():
    """fp32 activation scales, the default output, the balanced distribution and seed 0 have no text."""
    case = Case(
        WeightScheme("int8", parse_granularity("channel"), "bf16"),
        ActivationScheme("int8", parse_granularity("token"), "fp32"),
        Problem("moe_indexed", 4, 64, 128, 4, 2, "balanced"),
        "exact_grid",
        output="bf16",
        seed=0,
    )
    assert case.id == "moe_indexed-w_int8.channel.bf16-a_int8.token-m4.n64.k128.e4.top2-exact_grid"


def test_output_follows_16bit_activations():
    """The output format of a 16-bit case is that of its activations and never written."""
    assert parse_case("dense-w_int4.g32.fp16-a_fp16-m1.n8.k32-random").output == "fp16"


@pytest.mark.parametrize(
    ("change", "added"),
    [
        ({"source": "gptq"}, "-src_gptq"),
        ({"call": ("batch_invariant",)}, "-call_batch_invariant"),
        ({"seed": 3}, "-s3"),
        ({"problem": Problem("dense", 16, 256, 512, bias=True)}, "-bias"),
    ],
)
def test_optional_parts_only_add(change, added):
    """An optional part adds its own text and leaves the rest of the id alone, so old ids never change."""
    assert parse_case(PLAIN).id == PLAIN
    assert replace(parse_case(PLAIN), **change).id.replace(added, "") == PLAIN


def documented_ids():
    """Every id in the examples of docs/case_ids.md."""
    return re.findall(r"^    ((?:dense|moe_\w+)-w_\S+-a_\S+)$", DOCUMENT.read_text(), re.MULTILINE)


def test_documented_ids():
    """Every example of the grammar's document is an id."""
    ids = documented_ids()
    assert len(ids) >= 8
    assert [parse_case(text).id for text in ids] == ids


WRONG = {
    "empty": ("", "too few parts", ""),
    "too few parts": ("dense-random", "too few parts", ""),
    "kind": (PLAIN.replace("dense", "densse"), "problem kind 'densse' is not one of dense", PLAIN),
    "weights missing": (PLAIN.replace("w_", "v_"), "'v_int4.g128.bf16' stands where the weights", ""),
    "weight words": (PLAIN.replace(".g128.bf16", ".g128"), "weights are w_ELEMENT.GRANULARITY.SCALE", ""),
    "element": (PLAIN.replace("int4", "imt4"), "unknown element format 'imt4'", PLAIN),
    "element alias": (PLAIN.replace("w_int4", "w_e2m1"), "it is written", ""),
    "element width": (PLAIN.replace("w_int4", "w_fp32"), "fp32 is no weight element", ""),
    "scale as element": (PLAIN.replace("w_int4", "w_ue8m0"), "ue8m0 is no weight element", ""),
    "granularity": (PLAIN.replace("g128", "x128"), "unknown granularity 'x128'", ""),
    "weights per token": (PLAIN.replace("g128", "token"), "per channel, not per token", ""),
    "scale format": (PLAIN.replace("g128.bf16", "g128.bf61"), "scale format 'bf61' is not one of", PLAIN),
    "symmetric zero point": (PLAIN.replace("g128.bf16", "g128.bf16.zp"), "needs a uintN weight", ""),
    "unsigned without zero point": (PLAIN.replace("int4", "uint4"), "need a zero point (zp or fzp)", ""),
    "block zero point": (PLAIN.replace("int4.g128.bf16", "uint4.b64x128.bf16.zp"), "no zero points", ""),
    "weight option": (PLAIN.replace("g128.bf16", "g128.bf16.s2tenser"), "weight option 's2tenser'", ""),
    "activations missing": (PLAIN.replace("a_bf16", "bf16"), "stands where the activations", ""),
    "activation scale": (PLAIN.replace("a_bf16", "a_bf16.token"), "have no scale", ""),
    "activation granularity": (PLAIN.replace("a_bf16", "a_int8"), "need a granularity", ""),
    "activation per channel": (PLAIN.replace("a_bf16", "a_int8.channel"), "not per channel", ""),
    "activation words": (PLAIN.replace("a_bf16", "a_int8.token.bf16.x"), "too many", ""),
    "default scale written": (PLAIN.replace("a_bf16", "a_int8.token.fp32"), "defaults are left out", ""),
    "output": (PLAIN.replace("a_bf16", "a_int8.token-o_fp61"), "output format 'fp61'", ""),
    "output of 16 bits": (PLAIN.replace("a_bf16", "a_bf16-o_fp16"), "fix the output format", ""),
    "default output written": (PLAIN.replace("a_bf16", "a_int8.token-o_bf16"), "defaults are left out", ""),
    "shape": (PLAIN.replace("m16.n256.k512", "m16.k512.n256"), "shape 'm16.k512.n256' is not", ""),
    "leading zero": (PLAIN.replace("m16", "m016"), "it is written 'dense-", PLAIN),
    "zero size": (PLAIN.replace("m16", "m0"), "m is 0; it must be at least 1", ""),
    "dense with experts": (PLAIN.replace("k512", "k512.e4.top1"), "dense has none", ""),
    "moe without experts": (PLAIN.replace("dense", "moe_indexed"), "every MoE kind at least 1", ""),
    "top_k": (
        PLAIN.replace("dense", "moe_indexed").replace("k512", "k512.e4.top5"),
        "top_k 5 is more than the 4 experts",
        "",
    ),
    "distribution": (
        PLAIN.replace("dense", "moe_indexed").replace("k512", "k512.e4.top2.skewd"),
        "token distribution 'skewd'",
        PLAIN.replace("dense", "moe_indexed").replace("k512", "k512.e4.top2.skewed"),
    ),
    "regime": (PLAIN.replace("readout", "readuot"), "regime 'readuot' is not one of", PLAIN),
    "regime missing": (PLAIN.replace("-readout", "-bias-s1"), "are not one regime", ""),
    "order": (PLAIN.replace("-readout", "-src_awq-bias-readout"), "are not one regime", ""),
    "regime refuses": (PLAIN.replace("readout", "poison"), "poison needs an expert without rows", ""),
    "seed 0 written": (PLAIN + "-s0", "defaults are left out", PLAIN),
    "source": (PLAIN.replace("-readout", "-src_a/b-readout"), "'a/b' is not made of letters", ""),
    "empty call": (PLAIN.replace("-readout", "-call_-readout"), "call option '' is not one of batch_invariant, ", ""),
    "call option": (
        PLAIN.replace("-readout", "-call_grahp.streams-readout"),
        "call option 'grahp' is not one of batch_invariant, graph, streams; the nearest is graph",
        PLAIN.replace("-readout", "-call_graph.streams-readout"),
    ),
    "unsorted call": (PLAIN.replace("-readout", "-call_b.a-readout"), "are not sorted", ""),
    "repeated call": (PLAIN.replace("-readout", "-call_a.a-readout"), "each once", ""),
    "another digit": (PLAIN.replace("m16", "m１６"), "it is written", PLAIN),
}


@pytest.mark.parametrize(("text", "rule", "nearest"), WRONG.values(), ids=WRONG)
def test_wrong_ids(text, rule, nearest):
    """A wrong id gives one error: the id, the part and rule at fault, and the nearest id if one is near.

    An id in another spelling is told its right one, and that is all.
    """
    with pytest.raises(CaseIdError) as raised:
        parse_case(text)
    message = str(raised.value)
    assert message.startswith(f"case id {text!r}: ")
    assert rule in message
    if "it is written" in message:
        assert nearest in message
        assert "nearest" not in message
        return
    assert (
        f"nearest valid id: {nearest}" in message if nearest else "nearest" in message or "docs/case_ids.md" in message
    )


def test_nearest_is_valid():
    """Whatever id an error proposes can be read."""
    proposed = 0
    for text, _, _ in WRONG.values():
        with pytest.raises(CaseIdError) as raised:
            parse_case(text)
        _, found, nearest = str(raised.value).rpartition("nearest valid id: ")
        if found:
            proposed += 1
            assert parse_case(nearest).id == nearest
    assert proposed >= 5


def test_nearest_among_known():
    """Among given ids, the nearest is named."""
    known = [PLAIN, PLAIN.replace("dense", "moe_indexed").replace("k512", "k512.e4.top2")]
    with pytest.raises(CaseIdError, match=re.escape(f"nearest valid id: {PLAIN}")):
        parse_case(PLAIN.replace("m16", "m16x"), known)


@pytest.mark.parametrize(
    "build",
    [
        lambda: WeightScheme("e4m3", parse_granularity("g32"), "bf16"),
        lambda: WeightScheme("int4", parse_granularity("g32"), "int8"),
        lambda: WeightScheme("int9", parse_granularity("g32"), "bf16"),
        lambda: ActivationScheme("fp32", parse_granularity("token")),
        lambda: ActivationScheme("int8", parse_granularity("token"), "int8"),
        lambda: ActivationScheme("bf16", None, "bf16"),
        lambda: Problem("dens", 1, 1, 1),
        lambda: Problem("moe_indexed", 1, 1, 1, 4, 2, "skewd"),
        lambda: replace(parse_case(PLAIN), seed=-1),
        lambda: replace(parse_case(PLAIN), output="fp32"),
    ],
)
def test_no_case_without_an_id(build):
    """What has no id can't be built either."""
    with pytest.raises((CaseError, FormatError)):
        build()


def test_the_users_own_words_come_before_a_listed_neighbour():
    """A slip in one word is mended in place, however near some listed id is."""
    listed = [PLAIN.replace("m16", "m15").replace("int4", "int8")]
    with pytest.raises(CaseIdError, match=f"nearest valid id: {re.escape(PLAIN)}$"):
        parse_case(PLAIN.replace("readout", "readouts"), listed)
