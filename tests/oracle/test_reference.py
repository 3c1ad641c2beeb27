# SPDX-License-Identifier: Apache-2.0
"""The reference equals rational arithmetic, reads what it may, and follows IEEE 754 where numbers end."""

from __future__ import annotations

import importlib
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from humming_conformance.formats import element_format
from humming_conformance.oracle.contract import Contract
from humming_conformance.oracle.dequantize import exact_activation, exact_weight, round_input
from humming_conformance.oracle.reference import products, reference
from humming_conformance.oracle.region import Region
from humming_conformance.oracle.spot_check import spot_check
from humming_conformance.problems import Case, build_operands, parse_case
from tests.oracle import fractions_reference as exact

SCHEMES = [
    "dense-w_int4.g16.bf16-a_bf16-m3.n10.k40-random",
    "dense-w_uint4.g16.fp16.zp-a_fp16-m3.n10.k40-bias-random",
    "dense-w_uint8.channel.bf16.fzp-a_bf16-m3.n10.k24-random",
    "dense-w_fp4_e2m1.g16.fp8_e4m3.s2tensor-a_bf16-m3.n10.k40-scale_spread",
    "dense-w_int3.g8.bf16.s2channel-a_bf16-m3.n10.k24-random",
    "dense-w_fp8_e4m3.b4x16.fp32-a_fp8_e4m3.g16-m3.n10.k40-random",
    "dense-w_int8.channel.fp32-a_int8.token-m3.n10.k24-same_sign",
    "dense-w_int8.tensor.fp32-a_int8.tensor-m3.n10.k24-random",
    "moe_indexed-w_fp4_e2m1.g16.ue8m0-a_fp8_e4m3.token-m5.n6.k32.e4.top2.empty_last-poison",
    "moe_grouped_masked-w_int4.g8.bf16-a_bf16-m5.n6.k24.e3.top2.skewed-bias-readout",
]
ACCUMULATOR = Contract("bf16", scale_application="accumulator")


def rounded_weight(output: str) -> Contract:
    """Weights rounded to the output format."""
    return Contract(output, weight_input=output, sources={"weight_input": "this test"})


@pytest.mark.parametrize("case_id", SCHEMES)
def test_exact_matrices(case_id: str) -> None:
    """Dequantized weights and activations equal rational arithmetic, up to their last float64 bit."""
    case = parse_case(case_id)
    operands = build_operands(case)
    weights, activations = exact_weight(case, operands), exact_activation(case, operands)
    hit = range(1) if operands.expert is None else np.unique(operands.expert)
    for expert in hit:
        for n, k in np.ndindex(case.problem.n, case.problem.k):
            expected = exact.weight(case, operands, int(expert), n, k)
            assert weights[expert, n, k] == pytest.approx(float(expected), rel=2.0**-51, abs=0)
    for launch, token, k in np.ndindex(min(2, operands.launches), *activations.shape[1:]):
        expected = exact.activation(case, operands, launch, token, k)
        assert activations[launch, token, k] == pytest.approx(float(expected), rel=2.0**-51, abs=0)


@pytest.mark.parametrize("case_id", SCHEMES)
def test_value_and_magnitude(case_id: str) -> None:
    """Every value lies within the reference's own stated error of the exact sum; magnitudes agree."""
    case = parse_case(case_id)
    operands = build_operands(case)
    result = reference(case, operands, Contract(case.output))
    bias = None if operands.bias is None else element_format(case.output).decode(operands.bias)
    for row, column in np.ndindex(case.problem.rows, case.problem.n):
        terms = exact.terms(case, operands, 0, row, column)
        place = (0, row, column)
        assert abs(Fraction(result.product[place]) - sum(terms)) <= Fraction(result.error[place])
        assert result.magnitude[place] == pytest.approx(float(sum(map(abs, terms))), rel=1e-12)
        if bias is not None:
            expert = exact.expert_of(case, operands, 0, row)
            assert result.bias[place] == bias[expert, column]


@pytest.mark.parametrize("case_id", SCHEMES)
def test_scale_at_the_accumulator_changes_no_exact_value(case_id: str) -> None:
    """Without roundings it doesn't matter where scales are applied."""
    case = parse_case(case_id)
    operands = build_operands(case)
    early = reference(case, operands, Contract(case.output))
    late = reference(case, operands, replace(ACCUMULATOR, output_format=case.output))
    assert (np.abs(early.product - late.product) <= early.error + late.error).all()


def test_weights_are_rounded_as_declared() -> None:
    """A declared weight format rounds code times scale, or the bare element if the scale waits."""
    case = parse_case("dense-w_int8.channel.bf16-a_bf16-m2.n6.k16-random")
    operands = build_operands(case)
    codes = case.weight.format.decode(operands.weight[0])
    scale = element_format("bf16").decode(operands.weight_scale[0])
    activation = exact_activation(case, operands)[0]
    early = reference(case, operands, rounded_weight("bf16"))
    assert early.product[0] == pytest.approx(activation @ round_input(codes * scale, "bf16").T, rel=1e-12)
    waiting = replace(rounded_weight("bf16"), scale_application="accumulator")
    late = reference(case, operands, waiting)
    expected = (activation @ round_input(codes, "bf16").T) * scale[:, 0]
    assert late.product[0] == pytest.approx(expected, rel=1e-12)


def test_activations_are_rounded_with_their_scale() -> None:
    """A declared activation format rounds the scaled activation."""
    case = parse_case("dense-w_int8.channel.fp32-a_int8.token-m2.n6.k16-random")
    operands = build_operands(case)
    contract = Contract("bf16", activation_input="bf16", sources={"activation_input": "this test"})
    rounded = round_input(exact_activation(case, operands)[0], "bf16")
    expected = rounded @ exact_weight(case, operands)[0].T
    assert reference(case, operands, contract).product[0] == pytest.approx(expected, rel=1e-12)


def test_unhit_experts_are_not_read() -> None:
    """NaN scales of experts that no token chose leave every value finite."""
    case = parse_case("moe_indexed-w_int4.g16.bf16-a_bf16-m6.n8.k32.e4.top2.empty_last-poison")
    operands = build_operands(case)
    assert np.isnan(element_format("bf16").decode(operands.weight_scale)).any()
    assert np.isfinite(reference(case, operands, Contract("bf16")).value).all()


def test_integers_are_exact() -> None:
    """Integer sums with scales on the result equal int64 arithmetic exactly."""
    case = parse_case("dense-w_int8.channel.fp32-a_int8.token-m5.n9.k300-random")
    operands = build_operands(case)
    unit = element_format("fp32").encode(1.0)
    ones = replace(
        operands,
        weight_scale=np.full_like(operands.weight_scale, unit),
        activation_scale=np.full_like(operands.activation_scale, unit),
    )
    result = reference(case, ones, ACCUMULATOR)
    integers = ones.activation[0].astype(np.int8).astype(np.int64) @ ones.weight[0].astype(np.int8).T.astype(np.int64)
    assert np.array_equal(result.product[0], integers)
    assert (result.error <= 2.0**-50 * np.abs(result.product)).all()


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([np.nan, 1, 1, 1], [np.nan, np.nan]),
        ([np.inf, 1, 1, 1], [np.inf, np.nan]),
        ([np.inf, -np.inf, 1, 1], [np.nan, np.nan]),
        ([-np.inf, 0, 0, 0], [-np.inf, np.nan]),
        ([1, 1, 1, 1], [4.0, 3.0]),
    ],
)
def test_non_finite_activations_follow_ieee(row: list[float], expected: list[float]) -> None:
    """NaN stays, infinities keep their sign, opposite ones and inf * 0 give NaN; other rows are left."""
    case = parse_case("dense-w_int4.channel.bf16-a_bf16-m2.n2.k4-random")
    operands = build_operands(case)
    bf16 = element_format("bf16")
    operands = replace(
        operands,
        weight=np.array([[[1, 1, 1, 1], [0, 1, 1, 1]]], dtype=np.uint8),
        weight_scale=np.full_like(operands.weight_scale, bf16.encode(1.0)),
        activation=bf16.encode(np.array([[row, [1, 2, 3, 4]]]), overflow="native"),
    )
    result = reference(case, operands, Contract("bf16")).value
    assert np.array_equal(result[0, 0], expected, equal_nan=True)
    assert np.array_equal(result[0, 1], [10.0, 9.0])


def test_non_finite_weights_follow_ieee() -> None:
    """A NaN scale spoils its output column and no other."""
    case = parse_case("dense-w_int4.g8.ue8m0-a_bf16-m3.n4.k16-random")
    operands = build_operands(case)
    scale = operands.weight_scale.copy()
    scale[0, 2, 1] = 255
    spoiled = reference(case, replace(operands, weight_scale=scale), Contract("bf16")).value
    clean = reference(case, operands, Contract("bf16")).value
    assert np.isnan(spoiled[..., 2]).all()
    assert np.array_equal(np.delete(spoiled, 2, axis=2), np.delete(clean, 2, axis=2))


@pytest.mark.parametrize("case_id", [SCHEMES[0], SCHEMES[8], SCHEMES[9]])
def test_blocks_and_regions_change_nothing(case_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks, and a region of some rows and columns, give the same values."""
    case = parse_case(case_id)
    operands = build_operands(case)
    contract = Contract("bf16", split_k=2, k_tile=8, sources={"split_k": "this test"})
    whole = reference(case, operands, contract)
    region = Region(np.array([0, 2, case.problem.rows - 1]), np.array([1, case.problem.n - 1]))
    part = reference(case, operands, contract, region)
    # The package's name `reference` is the function.
    module = importlib.import_module("humming_conformance.oracle.reference")
    monkeypatch.setattr(module, "_BLOCK", 2 * case.problem.k)
    blocked = reference(case, operands, contract)
    for name in ("product", "bias", "magnitude", "positive", "negative"):
        full = getattr(whole, name)
        assert getattr(blocked, name) == pytest.approx(full, rel=1e-12, nan_ok=True)
        expected = full[:, region.rows][:, :, region.columns]
        assert getattr(part, name) == pytest.approx(expected, rel=1e-12, nan_ok=True)


def test_tile_sums() -> None:
    """Positive and negative parts are those of the sums over tiles of K, the cut last one included."""
    case = parse_case("dense-w_int4.g8.bf16-a_bf16-m2.n3.k20-random")
    operands = build_operands(case)
    result = reference(case, operands, Contract("bf16", split_k=3, k_tile=8, sources={"split_k": "this test"}))
    for row, column in np.ndindex(2, 3):
        terms = exact.terms(case, operands, 0, row, column)
        tiles = [float(sum(terms[first : first + 8])) for first in (0, 8, 16)]
        assert result.positive[0, row, column] == pytest.approx(sum(t for t in tiles if t > 0), rel=1e-12)
        assert result.negative[0, row, column] == pytest.approx(-sum(t for t in tiles if t < 0), rel=1e-12)


@pytest.mark.parametrize("case_id", SCHEMES)
@pytest.mark.parametrize("contract", [Contract("bf16"), ACCUMULATOR, rounded_weight("bf16")], ids=Contract.text)
def test_spot_check_agrees(case_id: str, contract: Contract) -> None:
    """Correctly rounded element sums agree with the reference within its stated error."""
    case = parse_case(case_id)
    operands = build_operands(case)
    contract = replace(contract, output_format=case.output)
    assert spot_check(case, operands, contract, reference(case, operands, contract), elements=20) <= 1


def test_spot_check_sees_a_wrong_reference() -> None:
    """A reference off by one part in 10^9 fails the spot check."""
    case = parse_case(SCHEMES[0])
    operands = build_operands(case)
    result = reference(case, operands, Contract("bf16"))
    wrong = replace(result, product=result.product * (1 + 1e-9))
    assert spot_check(case, operands, Contract("bf16"), wrong) > 1


def test_spot_check_sees_a_reference_that_swallowed_a_nan() -> None:
    """A finite result of a sum that holds a NaN fails the spot check, though no number is compared greater."""
    case = parse_case("dense-w_int4.g32.bf16-a_bf16-m1.n8.k64-nonfinite")
    operands = build_operands(case)
    result = reference(case, operands, Contract("bf16"))
    assert np.isnan(result.product).all()
    wrong = replace(result, product=np.zeros_like(result.product), error=np.ones_like(result.error))
    assert spot_check(case, operands, Contract("bf16"), wrong) > 1


@pytest.mark.parametrize("case_id", SCHEMES)
def test_products_are_the_references(case_id: str) -> None:
    """What equality and the quality floor judge by is the reference without the bound's sums."""
    case = parse_case(case_id)
    operands = build_operands(case)
    contract = rounded_weight(case.output)
    short, full = products(case, operands, contract), reference(case, operands, contract)
    assert np.array_equal(short.value, full.value)


def test_output_scales_are_those_of_channels() -> None:
    """A contract that scales outputs gets each column's scale; with group scales it is refused."""
    contract = Contract("bf16", scale_application="output", sources={"scale_application": "this test"})
    case = parse_case("dense-w_int8.channel.bf16-a_bf16-m2.n6.k16-random")
    operands = build_operands(case)
    scales = products(case, operands, contract).output_scale
    assert scales is not None
    assert np.array_equal(scales[0, 1], element_format("bf16").decode(operands.weight_scale[0, :, 0]))
    grouped = parse_case("dense-w_int8.g16.bf16-a_bf16-m2.n6.k32-random")
    with pytest.raises(ValueError, match="channel or tensor"):
        products(grouped, build_operands(grouped), contract)


def test_one_hot_rows_take_the_short_way() -> None:
    """Selection by one-hot rows gives the bits of the weights themselves."""
    case = parse_case("dense-w_int4.g16.bf16-a_bf16-m8.n10.k40-readout")
    operands = build_operands(case)
    result = reference(case, operands, Contract("bf16")).product.reshape(-1, 10)
    assert np.array_equal(result[: case.problem.k], exact_weight(case, operands)[0].T)


def _as_fp16(case: Case) -> Contract:
    sources = {"accumulator_format": "this test"}
    return Contract(case.output, accumulator_format="fp16", sources=sources)


def test_peak_and_unit_of_fp16_accumulators() -> None:
    """For fp16 accumulators the largest partial sum is that of unscaled products."""
    case = parse_case("dense-w_fp8_e4m3.channel.fp32-a_fp8_e4m3.token-o_fp16-m2.n3.k16-random")
    operands = build_operands(case)
    contract = replace(_as_fp16(case), scale_application="accumulator")
    result = reference(case, operands, contract)
    element = case.weight.format
    raw = element.decode(operands.activation[0])[:, None] * element.decode(operands.weight[0])[None]
    positive, negative = np.maximum(raw, 0).sum(axis=2), np.maximum(-raw, 0).sum(axis=2)
    assert result.peak is not None
    assert result.unit is not None
    assert result.peak[0] == pytest.approx(np.maximum(positive, negative), rel=1e-12)
    assert result.unit[0] * raw.sum(axis=2) == pytest.approx(result.product[0], rel=1e-9)
