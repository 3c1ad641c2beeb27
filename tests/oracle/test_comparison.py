# SPDX-License-Identifier: Apache-2.0
"""What counts as wrong, element by element, and what is reported about it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from humming_conformance.formats import element_format
from humming_conformance.oracle.bound import round_output
from humming_conformance.oracle.comparison import compare, differing_bits, is_exact, significand_bits
from humming_conformance.oracle.contract import Contract
from humming_conformance.oracle.reference import reference
from humming_conformance.oracle.region import Region
from humming_conformance.problems import Case, Operands, build_operands, parse_case

DENSE = parse_case("dense-w_int4.g16.bf16-a_bf16-m4.n10.k32-random")
MOE = parse_case("moe_indexed-w_int4.g16.bf16-a_bf16-m6.n8.k32.e4.top2-random")
STRICT = Contract("bf16")


def right_output(case: Case, operands: Operands, contract: Contract = STRICT) -> NDArray[np.uint16]:
    """The codes of the rounded reference."""
    values = reference(case, operands, contract)
    rounded = round_output(case, contract, values.product, values.bias)
    return element_format(case.output).encode(rounded, overflow="native")


@pytest.mark.parametrize("case", [DENSE, MOE], ids=["dense", "moe"])
def test_right_output_passes(case: Case) -> None:
    """The rounded reference passes, by the bound and by equality, with a margin of at most 1 and 0."""
    operands = build_operands(case)
    output = right_output(case, operands)
    bounded = compare(case, operands, STRICT, output, exact=False)
    assert bounded.passed
    assert bounded.first is None
    assert bounded.total == output.size
    assert 0 < bounded.margin <= 1
    equal = compare(case, operands, STRICT, output, exact=True)
    assert equal.passed
    assert equal.margin == equal.margin_before_rounding == 0


def test_one_element_off_by_two_steps() -> None:
    """One element two bf16 steps off is the only wrong one, and is described in full."""
    operands = build_operands(MOE)
    output = right_output(MOE, operands)
    output[0, 7, 3] += 2
    comparison = compare(MOE, operands, STRICT, output, exact=False)
    assert comparison.wrong_count == 1
    assert comparison.wrong[0, 7, 3]
    assert 2 < comparison.margin < 6
    assert comparison.margin_before_rounding > 1
    first = comparison.first
    assert first is not None
    assert (first.launch, first.row, first.column, first.token, first.slot) == (0, 7, 3, 3, 1)
    assert first.expert == operands.expert[0, 3, 1]
    bf16 = element_format("bf16")
    assert first.got == bf16.decode(output[0, 7, 3])
    assert first.expected == bf16.decode(np.uint16(output[0, 7, 3] - 2))
    assert abs(first.got - first.expected) > first.bound > 0
    assert not comparison.passed


def test_equality_has_no_tolerance() -> None:
    """Where equality is demanded one step is wrong and the margin infinite."""
    operands = build_operands(DENSE)
    output = right_output(DENSE, operands)
    output[0, 1, 2] ^= 1
    comparison = compare(DENSE, operands, STRICT, output, exact=True)
    assert comparison.wrong_count == 1
    assert comparison.margin == np.inf
    assert comparison.first is not None
    assert comparison.first.bound == 0


def _single(activation: float, weight: int, output: str = "bf16") -> tuple[Case, Operands]:
    """A problem of one product: ``activation * weight``."""
    case = parse_case(f"dense-w_int8.channel.{output}-a_{output}-m1.n1.k1-random")
    operands = build_operands(case)
    element = element_format(output)
    return case, replace(
        operands,
        weight=np.array([[[weight & 255]]], dtype=np.uint8),
        weight_scale=np.array([[[element.encode(1.0)]]], dtype=np.uint16),
        activation=element.encode(np.array([[[activation]]]), overflow="native"),
    )


def _judge(case: Case, operands: Operands, value: float, *, exact: bool) -> int:
    code = element_format(case.output).encode(np.full((1, 1, 1), value), overflow="native")
    return compare(case, operands, Contract(case.output), code, exact=exact).wrong_count


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    ("activation", "weight", "right", "wrong"),
    [
        (0.0, 1, [0.0, -0.0], [2.0**-133, np.nan]),
        (np.nan, 1, [np.nan], [0.0, np.inf]),
        (np.inf, 2, [np.inf], [-np.inf, np.nan, 3.3e38]),
        (-np.inf, 2, [-np.inf], [np.inf, np.nan]),
        (np.inf, 0, [np.nan], [np.inf, 0.0]),
        (1.0, 3, [3.0], [np.nan, np.inf, 3.015625]),
    ],
)
def test_special_values(
    exact: bool,  # noqa: FBT001
    activation: float,
    weight: int,
    right: list[float],
    wrong: list[float],
) -> None:
    """Zeros of either sign are equal, NaN is compared by class, infinities by sign."""
    case, operands = _single(activation, weight)
    assert [_judge(case, operands, value, exact=exact) for value in right] == [0] * len(right)
    assert [_judge(case, operands, value, exact=exact) for value in wrong] == [1] * len(wrong)


def test_overflow_threshold() -> None:
    """At the threshold to infinity both neighbours are right within the bound; clear of it only one is."""
    # fp16 rounds to infinity from 65520 on, the middle between 65504 and 65536.
    for activation, weight, right, wrong in [
        (16376.0, 4, [65504.0], [np.inf]),
        (8192.0, 9, [np.inf], [65504.0]),
        (21840.0, 3, [65504.0, np.inf], [65472.0, -np.inf]),
    ]:
        case, operands = _single(activation, weight, "fp16")
        assert [_judge(case, operands, value, exact=False) for value in right] == [0] * len(right)
        assert [_judge(case, operands, value, exact=False) for value in wrong] == [1] * len(wrong)


def test_ties_round_to_even_where_equality_is_demanded() -> None:
    """A result halfway between two outputs must go to the even one where equality is demanded."""
    # 3 * 129/128 = 387/128 is a tie in bf16: 388 = 4 * 97 is even, 386 is not.
    case, operands = _single(129 / 128, 3)
    assert _judge(case, operands, 388 / 128, exact=True) == 0
    assert _judge(case, operands, 386 / 128, exact=True) == 1


def test_wrong_shapes_and_formats_are_refused() -> None:
    """Errors name the case, what it has and what was given."""
    operands = build_operands(DENSE)
    output = right_output(DENSE, operands)
    with pytest.raises(ValueError, match=r"shape \(1, 4, 9\).*\(1, 4, 10\)"):
        compare(DENSE, operands, STRICT, output[..., :-1], exact=False)
    with pytest.raises(ValueError, match=r"fp16.*bf16"):
        compare(DENSE, operands, Contract("fp16"), output, exact=False)


def test_region_limits_what_is_judged() -> None:
    """Only elements of the region are judged, and indices are those of the whole output."""
    operands = build_operands(DENSE)
    output = right_output(DENSE, operands)
    output[0, 0, 0] += 9
    output[0, 3, 9] += 9
    region = Region(np.array([1, 3]), np.array([2, 9]))
    comparison = compare(DENSE, operands, STRICT, output, exact=False, region=region)
    assert comparison.total == 4
    assert comparison.wrong_count == 1
    assert comparison.first is not None
    assert (comparison.first.row, comparison.first.column) == (3, 9)


def test_quality_floor_holds_for_any_contract() -> None:
    """A contract loose enough to excuse fp8 weights is met, and the floor refuses the output all the same."""
    case = parse_case("dense-w_int8.channel.bf16-a_bf16-m16.n16.k256-random")
    operands = build_operands(case)
    loose = Contract("bf16", weight_input="fp8_e4m3", sources={"weight_input": "this test"})
    comparison = compare(case, operands, loose, right_output(case, operands, loose), exact=False)
    assert comparison.wrong_count == 0
    quality = comparison.quality
    assert quality is not None
    assert quality.error > quality.limit >= 2 * quality.qdq_error
    assert quality.error > 0.01 * quality.exact_norm
    assert not comparison.passed


@pytest.mark.parametrize(("tokens", "columns", "factor"), [(16, 16, 1.3), (64, 64, 1.1125)])
def test_quality_floor_gives_an_unrepeatable_kernel_its_spread(tokens: int, columns: int, factor: float) -> None:
    """Where bits differ from run to run the limit is higher, the more the fewer elements, so that verdicts repeat."""
    case = parse_case(f"dense-w_int8.channel.bf16-a_bf16-m{tokens}.n{columns}.k256-random")
    operands = build_operands(case)
    limits = []
    for repeatable in (True, False):
        contract = Contract("bf16", repeatable=repeatable, sources={"repeatable": "this test"})
        quality = compare(case, operands, contract, right_output(case, operands), exact=False).quality
        assert quality is not None
        limits.append(quality.limit)
    assert limits[1] == pytest.approx(factor * limits[0])


def test_quality_floor_says_nothing_on_a_few_elements() -> None:
    """The same arithmetic on fewer than 256 elements passes: a ratio of so small norms is chance; infinity isn't."""
    case = parse_case("dense-w_int8.channel.bf16-a_bf16-m8.n16.k256-random")
    operands = build_operands(case)
    loose = Contract("bf16", weight_input="fp8_e4m3", sources={"weight_input": "this test"})
    output = right_output(case, operands, loose)
    quality = compare(case, operands, loose, output, exact=False).quality
    assert quality is not None
    assert quality.error > quality.limit
    assert quality.passed
    output[0, 0, 0] = element_format("bf16").encode(np.inf, overflow="native")
    quality = compare(case, operands, loose, output, exact=False).quality
    assert quality is not None
    assert not quality.passed


def test_quality_floor_never_refuses_correct_rounding() -> None:
    """Where QDQ is exact the floor falls back to half an output step, which correct rounding stays within."""
    case = parse_case("dense-w_int4.g16.ue8m0-a_bf16-m8.n16.k64-exact_grid")
    operands = build_operands(case)
    comparison = compare(case, operands, STRICT, right_output(case, operands), exact=False)
    assert comparison.quality is not None
    assert comparison.quality.qdq_error == 0
    assert comparison.quality.error == 0
    assert comparison.quality.limit > 0
    assert comparison.passed


def test_lost_elements_count_as_infinite_error() -> None:
    """A NaN where the exact result is finite puts the error in norm at infinity."""
    operands = build_operands(DENSE)
    output = right_output(DENSE, operands)
    output[0, 2, 2] = element_format("bf16").encode(np.nan)
    comparison = compare(DENSE, operands, STRICT, output, exact=False)
    assert comparison.quality is not None
    assert comparison.quality.error == np.inf
    assert comparison.margin == np.inf


def test_differing_bits() -> None:
    """Bitwise differences are found, equal NaN codes are none, and shapes must agree."""
    first = np.array([[1, 0x7FC0, 3]], dtype=np.uint16)
    assert len(differing_bits(first, first.copy())) == 0
    assert differing_bits(first, np.array([[1, 0x7FC0, 0x8003]], dtype=np.uint16)).tolist() == [[0, 2]]
    with pytest.raises(ValueError, match="shapes"):
        differing_bits(first, first[:, :2])


def test_exactness_of_a_regime_depends_on_the_contract() -> None:
    """A regime is exact where every partial result keeps the significand bits that it needs."""
    weaker = ("step_length", "fraction_bits", "accumulator_bits", "accumulator_format", "split_k", "reduction_format")
    sources = dict.fromkeys(weaker, "x")
    fp8 = Contract("bf16", step_length=32, fraction_bits=13, accumulator_bits=13, sources=sources)
    split = Contract("bf16", split_k=4, reduction_format="bf16", sources=sources)
    half = Contract("fp16", accumulator_format="fp16", sources=sources)
    integer = Contract("bf16", accumulator_format="int32", sources=sources)
    bits = [significand_bits(contract) for contract in (STRICT, fp8, split, half, integer)]
    assert bits == [24, 14, 8, 11, 31]
    assert is_exact(split, 8)
    assert not is_exact(split, 11)
    assert not is_exact(STRICT, None)


def test_a_bias_fused_into_either_slice_is_right() -> None:
    """Scaled after rounding and split, two results are right, and nothing beyond them.

    A single product may meet the bias in its own slice or in another.
    """
    case = parse_case("dense-w_uint8.channel.bf16.zp-a_bf16-m8.n16.k32-bias-readout")
    operands = build_operands(case)
    sources = dict.fromkeys(("scale_application", "split_k", "reduction_format", "bias_application"), "x")
    split = Contract("bf16", scale_application="output", split_k=2, reduction_format="bf16", sources=sources)
    whole = replace(split, split_k=1, reduction_format="fp32")
    bf16 = element_format("bf16")
    values = reference(case, operands, whole)
    fused = round_output(case, whole, values.product, values.bias, values.output_scale)
    apart = bf16.round(round_output(case, whole, values.product, 0 * values.bias, values.output_scale) + values.bias)
    assert (fused != apart).any()
    for output in (fused, apart):
        assert compare(case, operands, split, bf16.encode(output), exact=True).wrong_count == 0
    assert compare(case, operands, whole, bf16.encode(apart), exact=True).wrong_count > 0
    beyond = np.where(fused != apart, fused + 2 * bf16.spacing(fused), fused)
    assert compare(case, operands, split, bf16.encode(beyond), exact=True).wrong_count == (fused != apart).sum()
