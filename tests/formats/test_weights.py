# SPDX-License-Identifier: Apache-2.0
"""Weight quantizers: hand-computed cases, error bounds, and every rule for the extremes."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from humming_conformance.formats import (
    FormatError,
    QuantizedWeight,
    dequantize_weight,
    element_format,
    parse_granularity,
    quantize_weight,
    scale_format,
)

SYMMETRIC = [
    "int1",
    "int2",
    "int4",
    "int8",
    "e0m3",
    "fp4_e2m1",
    "fp6_e2m3",
    "fp6_e3m2",
    "fp8_e4m3",
    "fp8_e5m2",
]
SCALES = ["fp32", "fp16", "bf16", "e4m3", "e5m2", "ue8m0"]
GRANULARITIES = ["tensor", "channel", "g16", "g32", "b4x32"]


def random_weight(*shape: int, seed: int = 3) -> np.ndarray:
    """Weights whose groups differ in size by up to 2^6."""
    generator = np.random.default_rng(seed)
    return generator.standard_normal(shape) * 2.0 ** generator.integers(-3, 4, (*shape[:-1], 1))


def quantize(
    weight: np.ndarray, element: str, scale: str, text: str, **options: str
) -> tuple[QuantizedWeight, np.ndarray, np.ndarray]:
    """Quantize; return the result, its values, and scale * second_scale of every element."""
    granularity = parse_granularity(text)
    quantized = quantize_weight(weight, element=element, scale_format=scale, granularity=granularity, **options)
    values = dequantize_weight(quantized, element=element, scale_format=scale, granularity=granularity)
    step = granularity.expand(scale_format(scale).decode(quantized.scale_codes), *weight.shape[-2:])
    if quantized.second_scale is not None:
        step = step * quantized.second_scale
    return quantized, values, step


@pytest.mark.parametrize("element", SYMMETRIC)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("text", GRANULARITIES)
def test_symmetric_error_is_half_a_step(element: str, scale: str, text: str) -> None:
    """With scales rounded up nothing saturates: a weight is off by at most half the spacing times scale."""
    weight = random_weight(10, 70)
    if element == "int1":
        weight = -np.abs(weight)
    quantized, values, step = quantize(weight, element, scale, text, scale_rounding="up")
    spacing = element_format(element).spacing(weight / step)
    assert (np.abs(values - weight) <= spacing / 2 * step * (1 + 1e-12)).all()
    assert quantized.scale_codes.shape == parse_granularity(text).scale_shape(10, 70)
    assert quantized.codes.shape == weight.shape
    assert quantized.zero_point is None
    assert quantized.second_scale is None


@pytest.mark.parametrize("element", ["int4", "fp4_e2m1", "fp8_e4m3"])
@pytest.mark.parametrize("scale", SCALES)
def test_nearest_scale_costs_its_own_rounding(element: str, scale: str) -> None:
    """A scale rounded to nearest may saturate the largest weights by its own half spacing, no more."""
    weight = random_weight(10, 70)
    _, values, step = quantize(weight, element, scale, "g32")
    fmt = element_format(element)
    half_step = fmt.spacing(np.minimum(np.abs(weight / step), fmt.maximum)) / 2 * step
    lost = fmt.maximum * scale_format(scale).spacing(step) / 2
    saturation = np.where(np.abs(weight) > fmt.maximum * step, lost, 0.0)
    assert (np.abs(values - weight) <= (half_step + saturation) * (1 + 1e-12)).all()


def test_groups_are_independent_and_tails_are_groups() -> None:
    """Quantizing a matrix equals quantizing each of its blocks alone, the ones cut by the end included."""
    weight = random_weight(10, 70)
    whole, _, _ = quantize(weight, "int4", "bf16", "b4x32")
    for row in range(3):
        for column in range(3):
            part = np.s_[4 * row : 4 * row + 4, 32 * column : 32 * column + 32]
            alone, _, _ = quantize(weight[part], "int4", "bf16", "tensor")
            assert np.array_equal(whole.codes[part], alone.codes)
            assert whole.scale_codes[row, column] == alone.scale_codes[0, 0]


def test_symmetric_case_by_hand() -> None:
    """int4 with absmax 14 has scale 2; ties go to even, and +14 and -14 are the codes of +7 and -7."""
    weight = np.array([[14.0, -14.0, 1.0, 3.0, -5.0, 2.5, 0.0]])
    quantized, values, _ = quantize(weight, "int4", "fp16", "channel")
    assert scale_format("fp16").decode(quantized.scale_codes).tolist() == [[2.0]]
    assert quantized.codes.tolist() == [[7, 9, 0, 2, 14, 1, 0]]
    assert values.tolist() == [[14.0, -14.0, 0.0, 4.0, -4.0, 2.0, 0.0]]


def test_int1_spans_minus_one_and_zero() -> None:
    """int1 has no positive value: its scale is absmax, and positive weights become 0."""
    quantized, values, _ = quantize(np.array([[-4.0, -1.0, 3.0]]), "int1", "fp32", "channel")
    assert quantized.codes.tolist() == [[1, 0, 0]]
    assert values.tolist() == [[-4.0, 0.0, 0.0]]


@pytest.mark.parametrize("scale", SCALES)
def test_zero_group_has_scale_one(scale: str) -> None:
    """A group of zeros has scale 1 and codes of 0, and its neighbour does not notice."""
    weight = np.zeros((1, 64))
    weight[:, 32:] = 3.0
    quantized, values, _ = quantize(weight, "int4", scale, "g32", scale_rounding="up")
    assert scale_format(scale).decode(quantized.scale_codes)[0, 0] == 1.0
    assert quantized.codes[0, :32].tolist() == [0] * 32
    assert values[0, :32].tolist() == [0.0] * 32
    assert (values[0, 32:] > 2.0).all()


def test_scale_never_rounds_to_zero_nor_beyond_its_format() -> None:
    """Tiny groups get the smallest scale; huge ones the largest, with saturated codes."""
    weight = np.array([[1e-9, -1e-9], [1e9, -1e9]])
    quantized, values, step = quantize(weight, "int8", "e4m3", "channel")
    assert step[:, 0].tolist() == [2.0**-9, 448.0]
    assert quantized.codes.tolist() == [[0, 0], [127, 128]]
    assert values.tolist() == [[0.0, 0.0], [127 * 448.0, -128 * 448.0]]


@pytest.mark.parametrize(("rounding", "exponents"), [("nearest", [2, 3]), ("up", [3, 3]), ("down", [2, 2])])
def test_scale_rounding_is_the_callers(rounding: str, exponents: list[int]) -> None:
    """Scales of 5 and 6 in ue8m0 become 4 or 8 as asked; the tie at 6 goes up."""
    weight = np.array([[30.0, 1.0], [36.0, 1.0]])
    quantized, _, _ = quantize(weight, "fp4_e2m1", "ue8m0", "channel", scale_rounding=rounding)
    assert quantized.scale_codes.tolist() == [[127 + exponent] for exponent in exponents]


@pytest.mark.parametrize("bits", range(1, 9))
def test_integer_zero_point_extremes(bits: int) -> None:
    """All-positive groups have zero point 0, all-negative ones 2^bits - 1, and 0.0 is always exact."""
    largest = (1 << bits) - 1
    ramp = np.linspace(0.0, largest, 16)
    weight = np.stack([ramp, -ramp, np.zeros(16)])
    quantized, values, _ = quantize(weight, f"uint{bits}", "fp16", "channel", zero_point="integer")
    assert quantized.zero_point is not None
    assert quantized.zero_point.tolist() == [[0], [largest], [0]]
    assert quantized.zero_point.dtype == np.uint8
    assert quantized.codes[0].tolist() == np.rint(ramp).astype(int).tolist()
    assert quantized.codes[1].tolist() == (largest - np.rint(ramp)).astype(int).tolist()
    assert values[weight == 0.0].tolist() == [0.0] * 18


def test_weight_is_rounded_before_the_integer_zero_point_is_added() -> None:
    """At scale 1 and zero point 1, ties go to the even weight (0.5 to 0, 1.5 to 2), not the even code."""
    weight = np.array([[-1.0, 0.5, 1.5, 2.5, 14.0]])
    quantized, values, _ = quantize(weight, "uint4", "fp16", "channel", zero_point="integer")
    assert quantized.codes.tolist() == [[0, 1, 3, 3, 15]]
    assert values.tolist() == [[-1.0, 0.0, 2.0, 2.0, 14.0]]


@given(
    st.integers(1, 8),
    st.sampled_from(["integer", "float"]),
    st.sampled_from(["g16", "channel", "b2x16"]),
    st.floats(-3.0, 3.0),
    st.integers(0, 999),
)
def test_asymmetric_error_is_one_step(bits: int, zero_point: str, text: str, shift: float, seed: int) -> None:
    """With a zero point, rounding it and the weight each cost at most half a step."""
    weight = random_weight(5, 40, seed=seed) + shift
    options = {"zero_point": zero_point, "scale_rounding": "up"}
    quantized, values, step = quantize(weight, f"uint{bits}", "fp16", text, **options)
    assert quantized.zero_point is not None
    assert quantized.zero_point.min() >= 0
    assert quantized.zero_point.max() <= (1 << bits) - 1
    assert quantized.codes.max() < 1 << bits
    budget = 1.0 if zero_point == "integer" else 0.5 + 2.0**-11 * (1 << bits)
    assert (np.abs(values - weight) <= budget * step * (1 + 1e-12)).all()


@pytest.mark.parametrize("zero_point_format", ["fp16", "bf16"])
def test_float_zero_point_is_stored_in_its_format(zero_point_format: str) -> None:
    """Float zero points are float32 arrays of values of the 16-bit format, for all fixed-point elements."""
    options = {"zero_point": "float", "zero_point_format": zero_point_format}
    for element in ("uint4", "e0m3", "int4"):
        quantized, values, step = quantize(random_weight(6, 48) + 0.7, element, "bf16", "g16", **options)
        assert quantized.zero_point is not None
        assert quantized.zero_point.dtype == np.float32
        fmt = element_format(zero_point_format)
        assert np.array_equal(fmt.round(quantized.zero_point), quantized.zero_point)
        assert (quantized.zero_point % 1.0 != 0.0).any()
        expected = element_format(element).decode(quantized.codes) - np.repeat(quantized.zero_point, 16, 1)
        assert np.array_equal(values, expected * step)


def test_tensor_second_scale_is_that_of_nvfp4() -> None:
    """Each expert's second-level scale is fp32 absmax / (6 * 448); its largest group then has scale 448."""
    weight = random_weight(3, 8, 64)
    quantized, values, step = quantize(weight, "fp4_e2m1", "e4m3", "g16", second_scale="tensor")
    absmax = np.abs(weight).max(axis=(1, 2), keepdims=True)
    assert quantized.second_scale is not None
    assert quantized.second_scale.shape == (3, 1, 1)
    np.testing.assert_allclose(quantized.second_scale, absmax / (6 * 448), rtol=2.0**-24)
    stored = scale_format("e4m3").decode(quantized.scale_codes)
    assert stored.max(axis=(1, 2)).tolist() == [448.0] * 3
    spacing = element_format("fp4_e2m1").spacing(np.minimum(np.abs(weight / step), 6.0))
    assert (np.abs(values - weight) <= spacing / 2 * step + np.abs(weight) * 2.0**-4).all()


def test_channel_second_scale() -> None:
    """Channel second-level scales are per row, in the asked format, and keep rows of any size in range."""
    weight = random_weight(6, 64) * 2.0 ** np.array([[-40], [-10], [0], [10], [20], [40]])
    options = {"second_scale": "channel", "second_scale_format": "bf16"}
    quantized, values, step = quantize(weight, "int4", "e4m3", "g32", **options)
    assert quantized.second_scale is not None
    assert quantized.second_scale.shape == (6, 1)
    assert np.array_equal(element_format("bf16").round(quantized.second_scale), quantized.second_scale)
    assert (np.abs(values - weight) <= step / 2 + np.abs(weight) * 2.0**-4).all()


@pytest.mark.parametrize("scale", ["fp32", "bf16", "ue8m0"])
def test_second_scale_of_wide_scale_formats_is_normal(scale: str) -> None:
    """Scale formats that reach 2^127 are not scaled into fp32 subnormals: their largest scale is 1."""
    quantized, _, _ = quantize(random_weight(4, 64), "int4", scale, "g32", second_scale="tensor")
    assert scale_format(scale).decode(quantized.scale_codes).max() == 1.0


def test_zero_tensor_with_second_scale() -> None:
    """A tensor of zeros has scales of 1 on both levels."""
    quantized, values, _ = quantize(np.zeros((2, 32)), "fp4_e2m1", "e4m3", "g16", second_scale="tensor")
    assert quantized.second_scale is not None
    assert quantized.second_scale.tolist() == [[1.0]]
    assert scale_format("e4m3").decode(quantized.scale_codes).tolist() == [[1.0, 1.0]] * 2
    assert not values.any()


def test_dequantization_is_exact() -> None:
    """Values equal (element - zero point) * scale * second scale in exact fractions."""
    cases = [
        ("fp4_e2m1", "e4m3", {"second_scale": "tensor"}),
        ("uint8", "fp32", {"zero_point": "integer"}),
        ("uint4", "bf16", {"zero_point": "float"}),
        ("fp8_e5m2", "ue8m0", {}),
    ]
    for element, scale, options in cases:
        quantized, values, _ = quantize(random_weight(4, 40), element, scale, "g16", **options)
        elements = element_format(element).decode(quantized.codes)
        scales = scale_format(scale).decode(quantized.scale_codes)
        for n, k in np.ndindex(4, 40):
            exact = Fraction(float(elements[n, k]))
            if quantized.zero_point is not None:
                exact -= Fraction(float(quantized.zero_point[n, k // 16]))
            exact *= Fraction(float(scales[n, k // 16]))
            if quantized.second_scale is not None:
                exact *= Fraction(float(quantized.second_scale[0, 0]))
            assert Fraction(float(values[n, k])) == exact


def test_nan_and_infinite_scales_propagate() -> None:
    """A NaN scale poisons its group alone; infinity times 0 is NaN and times 1 infinity."""
    codes = np.array([[0, 1, 0, 1]], dtype=np.uint8)
    nan_scale = QuantizedWeight(codes, np.array([[255, 127]], dtype=np.uint8))
    values = dequantize_weight(nan_scale, element="int4", scale_format="ue8m0", granularity=parse_granularity("g2"))
    assert np.array_equal(values, [[np.nan, np.nan, 0.0, 1.0]], equal_nan=True)
    infinite_scale = QuantizedWeight(codes, np.array([[0x7C00, 0x3C00]], dtype=np.uint16))
    values = dequantize_weight(infinite_scale, element="int4", scale_format="fp16", granularity=parse_granularity("g2"))
    assert np.array_equal(values, [[np.nan, np.inf, 0.0, 1.0]], equal_nan=True)


@pytest.mark.parametrize(
    ("element", "scale", "text", "options", "message"),
    [
        ("uint4", "fp16", "g32", {}, "uint4 without a zero point has no negative values"),
        ("int4", "fp16", "g32", {"zero_point": "integer"}, "needs a uintN element, not int4"),
        ("fp4_e2m1", "fp16", "g32", {"zero_point": "float"}, "needs an integer or e0mN element"),
        ("int4", "fp16", "token", {}, "token is for activations: use channel"),
        ("int4", "fp16", "b4x32", {"second_scale": "channel"}, "needs channel or group scales, not b4x32"),
        ("int4", "int8", "g32", {}, "unknown scale format 'int8'"),
        ("int4", "fp16", "g32", {"zero_point": "int"}, "unknown zero point 'int'.*'integer'"),
        ("int4", "fp16", "g32", {"second_scale": "row"}, "unknown second-level scale 'row'"),
        (
            "int4",
            "e4m3",
            "g32",
            {"second_scale": "tensor", "second_scale_format": "e4m3"},
            "unknown second_scale_format 'e4m3'",
        ),
    ],
)
def test_schemes_that_do_not_exist_are_refused(
    element: str, scale: str, text: str, options: dict[str, str], message: str
) -> None:
    """Formats that do not go together are refused with the rule they break."""
    with pytest.raises(FormatError, match=message):
        quantize(np.ones((4, 32)), element, scale, text, **options)


@pytest.mark.parametrize("weight", [np.ones(32), np.ones((0, 32)), np.full((2, 32), np.nan)])
def test_bad_weights_are_refused(weight: np.ndarray) -> None:
    """Vectors, empty matrices and NaN are no weights."""
    with pytest.raises(ValueError, match="weight must be finite and"):
        quantize(weight, "int4", "fp16", "g32")
