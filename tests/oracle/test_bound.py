# SPDX-License-Identifier: Apache-2.0
"""No kernel that keeps a contract exceeds its bound: brute force, random trees, executed contracts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from humming_conformance.formats import element_format
from humming_conformance.oracle.bound import accumulation_error, bound, reduction_error
from humming_conformance.oracle.comparison import compare
from humming_conformance.oracle.contract import Contract
from humming_conformance.oracle.reference import Reference, reference
from humming_conformance.oracle.region import Region
from humming_conformance.problems import Case, build_operands, parse_case
from tests.wrong_kernels import model

Array = NDArray[np.float64]
PLAIN = parse_case("dense-w_int4.g32.bf16-a_bf16-m1.n1.k64-random")
BIASED = parse_case("dense-w_int4.g32.bf16-a_bf16-m1.n1.k64-bias-random")


def contract(output: str = "bf16", **fields: object) -> Contract:
    """A contract that needs no better source than this test."""
    return Contract(output, sources=dict.fromkeys(fields, "this test"), **fields)


def from_terms(terms: Array, bias: float = 0.0) -> Reference:
    """The reference of one element whose tile sums are ``terms``."""

    def one(value: float) -> Array:
        return np.full((1, 1, 1), value)

    return Reference(
        region=Region(np.arange(1), np.arange(1)),
        product=one(terms.sum()),
        bias=one(bias),
        magnitude=one(np.abs(terms).sum()),
        error=one(0.0),
        doubt=one(0.0),
        positive=one(np.maximum(terms, 0).sum()),
        negative=one(np.maximum(-terms, 0).sum()),
        peak=None,
        unit=None,
        output_scale=None,
    )


def partitions(items: list[int], most: int) -> Iterator[list[list[int]]]:
    """All ways to put items into at most ``most`` sets."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for smaller in partitions(rest, most):
        for place in range(len(smaller)):
            yield [*smaller[:place], [first, *smaller[place]], *smaller[place + 1 :]]
        if len(smaller) < most:
            yield [[first], *smaller]


@pytest.mark.parametrize("name", ["bf16", "fp16"])
@pytest.mark.parametrize("seed", range(12))
def test_split_reduction_by_brute_force(name: str, seed: int) -> None:
    """For every partition of the tiles into slices and every order of adding them, the error is within E4."""
    rng = np.random.default_rng(seed)
    tiles = rng.standard_normal(5) * 2.0 ** rng.integers(-3, 4, size=5)
    if seed % 3 == 0:
        tiles = np.abs(tiles)
    target = element_format(name)
    declared = contract(name, split_k=4, k_tile=16, reduction_format=name)
    allowed = reduction_error(PLAIN, declared, from_terms(tiles), np.zeros((1, 1, 1)))[0, 0, 0]
    worst = 0.0
    for slices in partitions(list(range(5)), 4):
        partial = [float(target.round(tiles[indices].sum())) for indices in slices]
        for order in itertools.permutations(partial):
            total = order[0]
            for value in order[1:]:
                total = float(target.round(total + value))
            worst = max(worst, abs(total - float(tiles.sum())))
    assert 0.05 * allowed < worst <= allowed


@pytest.mark.parametrize("seed", range(6))
def test_late_bias_joins_the_reduction_anywhere(seed: int) -> None:
    """A bias added to a rounded slice, or to the sum at the end, stays within E4 as well."""
    rng = np.random.default_rng(seed)
    tiles, bias = rng.standard_normal(4), float(element_format("bf16").round(rng.standard_normal() * 4))
    bf16 = element_format("bf16")
    declared = contract(split_k=4, k_tile=16, reduction_format="bf16", bias_application="after_rounding")
    allowed = reduction_error(BIASED, declared, from_terms(tiles, bias), np.zeros((1, 1, 1)))[0, 0, 0]
    exact = float(tiles.sum()) + bias
    for order in itertools.permutations(bf16.round(tiles)):
        early = float(bf16.round(order[0] + bias))
        late = float(order[0])
        for value in order[1:]:
            early, late = float(bf16.round(early + value)), float(bf16.round(late + value))
        assert abs(early - exact) <= allowed
        assert abs(float(bf16.round(late + bias)) - exact) <= allowed


@pytest.mark.parametrize("seed", range(20))
def test_fp32_sums_in_any_tree(seed: int) -> None:
    """Products rounded to fp32 and added in a random tree stay within E1 of the strictest contract."""
    rng = np.random.default_rng(seed)
    terms = rng.standard_normal(64) * rng.choice([1.0, 1e4], size=64)
    if seed % 2:
        terms = np.abs(terms)
    nodes = list(terms.astype(np.float32))
    while len(nodes) > 1:
        i, j = sorted(rng.choice(len(nodes), size=2, replace=False))
        nodes.append(nodes.pop(j) + nodes.pop(i))
    allowed = accumulation_error(PLAIN, Contract("bf16"), from_terms(terms))[0, 0, 0]
    assert abs(float(nodes[0]) - float(terms.sum())) <= allowed


@pytest.mark.parametrize("accumulators", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("same_sign", [False, True])
def test_accumulators_that_share_k(accumulators: int, same_sign: bool) -> None:  # noqa: FBT001
    """Tensor-core chains over interleaved parts of K, added in fp32, stay within E1."""
    rng = np.random.default_rng(accumulators)
    case = parse_case("dense-w_int4.g32.bf16-a_bf16-m4.n4.k256-random")
    a = rng.standard_normal((4, 256)).astype(np.float16).astype(np.float64)
    w = rng.standard_normal((4, 256)).astype(np.float16).astype(np.float64)
    if same_sign:
        a, w = np.abs(a), np.abs(w)
    step = contract(step_length=16, fraction_bits=13, accumulator_bits=13)
    total = np.zeros((4, 4))
    for part in range(accumulators):
        mine = np.arange(256) // 16 % accumulators == part
        total = (total + model._chain(a[:, mine], w[:, mine], step)).astype(np.float32).astype(np.float64)
    exact = a @ w.T
    for row, column in np.ndindex(4, 4):
        allowed = accumulation_error(case, step, from_terms(a[row] * w[column]))[0, 0, 0]
        assert abs(total[row, column] - exact[row, column]) <= allowed


def test_terms_of_the_formula() -> None:
    """E1 counts steps as documented, an int32 accumulator has none, and promotion bounds the chain."""
    case = parse_case("dense-w_int4.channel.bf16-a_bf16-m1.n1.k4096-random")
    values = from_terms(np.array([3.0, -1.0]))

    def relative(declared: Contract) -> float:
        return float(accumulation_error(case, declared, values)[0, 0, 0])

    assert relative(Contract("bf16")) == pytest.approx(3 * 4097 * 2.0**-24, rel=1e-3)
    step = 17 * 2.0**-25 + 2.0**-23
    assert relative(contract(step_length=16, fraction_bits=25)) == pytest.approx(3 * 257 * step, rel=1e-3)
    assert relative(contract(accumulator_format="int32")) == 0
    fp8 = contract(step_length=32, fraction_bits=13, accumulator_bits=13)
    assert relative(fp8) == pytest.approx(3 * np.expm1(129 * np.log1p(34 * 2.0**-13)), rel=1e-3)
    promoted = relative(replace(fp8, promotion_interval=128))
    assert promoted == pytest.approx(4 * (4 * 34 * 2.0**-13 + 33 * 2.0**-24), rel=1e-2)


def test_narrow_formats_promise_nothing_where_they_overflow() -> None:
    """Where an fp16 accumulator or a reduction may overflow, every output is allowed, NaN too."""
    case = parse_case("dense-w_int8.channel.fp16-a_fp16-m1.n4.k64-same_sign")
    operands = build_operands(case)
    operands = replace(
        operands,
        activation=np.full_like(operands.activation, element_format("fp16").encode(512.0)),
        weight=np.full_like(operands.weight, 127),
        weight_scale=np.full_like(operands.weight_scale, element_format("fp16").encode(1.0)),
    )
    declared = contract("fp16", accumulator_format="fp16")
    nan = np.full((1, 1, 4), element_format("fp16").encode(np.nan), dtype=np.uint16)
    wide = Contract("fp16")
    assert compare(case, operands, declared, nan, exact=False).wrong_count == 0
    assert compare(case, operands, wide, nan, exact=False).wrong_count == 4


CASES = [
    "dense-w_int4.g16.bf16-a_bf16-m3.n6.k72",
    "dense-w_uint4.g16.fp16.zp-a_fp16-m3.n6.k72-bias",
    "dense-w_fp8_e4m3.b4x32.fp32-a_fp8_e4m3.g16-m3.n6.k96",
    "dense-w_fp8_e4m3.channel.fp32-a_fp8_e4m3.token-m3.n6.k96-bias",
    "dense-w_fp4_e2m1.g16.fp8_e4m3.s2tensor-a_bf16-m3.n6.k64",
    "dense-w_fp8_e4m3.channel.fp32.s2tensor-a_fp8_e4m3.token-m3.n6.k64-bias",
    "dense-w_fp4_e2m1.g16.fp8_e4m3.s2channel-a_fp8_e4m3.g16-m3.n6.k64-bias",
    "moe_indexed-w_int4.g32.bf16-a_bf16-m4.n6.k64.e3.top2-bias",
]


@st.composite
def executed_contracts(draw: st.DrawFn) -> tuple[Case, Contract]:
    """A case, and a contract that the model kernel can execute on it."""
    regime = draw(st.sampled_from(["random", "same_sign", "scale_spread"]))
    case = parse_case(f"{draw(st.sampled_from(CASES))}-{regime}-s{draw(st.integers(1, 9))}")
    scales = ["multiplier_input", "accumulator"]
    scales += ["output"] if case.weight.granularity.kind == "channel" else []
    declared = contract(
        case.output,
        weight_input=draw(st.sampled_from(["exact", case.output, "fp8_e4m3"])),
        activation_input=draw(st.sampled_from(["exact", case.output])),
        scale_application=draw(st.sampled_from(scales)),
        second_scale_application=draw(st.sampled_from([None, "multiplier_input", "accumulator", "output"])),
        step_length=draw(st.sampled_from([1, 4, 16, 32])),
        fraction_bits=draw(st.sampled_from([13, 23, 25])),
        accumulator_bits=draw(st.sampled_from([13, 23])),
        accumulator_format=draw(st.sampled_from(["fp32", "fp32", "fp16"])),
        promotion_interval=draw(st.sampled_from([None, 32])),
        split_k=draw(st.sampled_from([1, 2, 3])),
        k_tile=draw(st.sampled_from([0, 16, 32])),
        reduction_format=draw(st.sampled_from(["fp32", "bf16", "fp16"])),
        bias_application=draw(st.sampled_from(["before_rounding", "after_rounding"])),
    )
    return case, declared


@settings(max_examples=200)
@given(executed_contracts())
def test_executed_contracts_stay_within_their_bound(drawn: tuple[Case, Contract]) -> None:
    """A kernel that really performs a contract's arithmetic has no wrong element under it."""
    case, declared = drawn
    operands = build_operands(case)
    comparison = compare(case, operands, declared, model.run(case, operands, declared), exact=False)
    assert comparison.wrong_count == 0, comparison.first
    assert comparison.margin <= 1


def test_bound_is_not_idle() -> None:
    """Biased accumulation of same-sign data uses a good part of its bound: the bound is no blank cheque."""
    case = parse_case("dense-w_fp8_e4m3.channel.fp32-a_fp8_e4m3.token-m4.n8.k1024-same_sign")
    operands = build_operands(case)
    declared = contract(step_length=32, fraction_bits=13, accumulator_bits=13)
    comparison = compare(case, operands, declared, model.run(case, operands, declared), exact=False)
    assert 0.1 < comparison.margin_before_rounding <= 1


def test_terms_are_recorded_apart() -> None:
    """Each source of error has its own term, and the total is their sum."""
    case = parse_case("dense-w_fp8_e4m3.channel.fp32-a_fp8_e4m3.token-m2.n4.k64-bias-random")
    operands = build_operands(case)
    declared = contract(weight_input="bf16", split_k=2, k_tile=32, reduction_format="bf16")
    allowed = bound(case, declared, reference(case, operands, declared))
    for term in (allowed.accumulation, allowed.scaling, allowed.reduction, allowed.output, allowed.reference):
        assert (term > 0).all()
    assert (allowed.multiplier_input >= 0).all()
    parts = allowed.accumulation + allowed.multiplier_input + allowed.scaling + allowed.reduction
    assert allowed.total == pytest.approx(parts + allowed.reference + allowed.output, rel=1e-12)


def test_rounding_through_fp32_is_allowed() -> None:
    """A weight whose product of scales rounds differently through fp32 leaves room for both roundings."""
    case = parse_case("dense-w_int8.channel.fp32-a_bf16-m1.n1.k1-random")
    operands = build_operands(case)
    # 3 * scale lies a hair above the tie between 1 and the next bf16 value, and in fp32 exactly on it.
    tie = 1 + 2.0**-8
    scale = np.nextafter(np.float32(tie / 3), np.float32(1))
    assert 3 * float(scale) > tie == float(np.float32(3 * float(scale)))
    bf16 = element_format("bf16")
    one = replace(
        operands,
        weight=np.full_like(operands.weight, 3),
        weight_scale=np.full_like(operands.weight_scale, scale.view(np.uint32)),
        activation=np.full_like(operands.activation, bf16.encode(1.0)),
    )
    declared = contract(weight_input="bf16")
    assert reference(case, one, declared).product[0, 0, 0] == 1 + 2.0**-7
    for value, wrong in ((1.0, 0), (1 + 2.0**-7, 0), (1 + 2.0**-5, 1)):
        code = bf16.encode(np.full((1, 1, 1), value))
        assert compare(case, one, declared, code, exact=False).wrong_count == wrong
