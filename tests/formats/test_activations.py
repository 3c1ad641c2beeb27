# SPDX-License-Identifier: Apache-2.0
"""Activation quantizer: bit for bit against scalar float32 arithmetic and searches over the value tables."""

import ml_dtypes
import numpy as np
import pytest

from humming_conformance.formats import (
    FormatError,
    dequantize_activation,
    element_format,
    parse_granularity,
    quantize_activation,
)

ELEMENTS = {
    "int4": 7,
    "int8": 127,
    "fp8_e4m3": 448,
    "fp8_e5m2": 57344,
    "fp8_e3m4": 30,
    "fp4_e2m1": 6,
    "e0m3": 7,
}
SCALES = ["fp32", "e4m3", "ue8m0"]


def bf16_rows(rows: int, columns: int, seed: int = 5) -> np.ndarray:
    """bf16 activations whose rows differ in size by up to 2^12, as float32."""
    generator = np.random.default_rng(seed)
    values = generator.standard_normal((rows, columns)) * 2.0 ** generator.integers(-6, 7, (rows, 1))
    return element_format("bf16").round(values).astype(np.float32)


def smallest_at_least(value: np.float32, name: str) -> float:
    """The smallest finite value of a scale format that is not below `value`, by search."""
    fmt = element_format(name)
    candidates = fmt.decode(np.arange(256))
    return float(min(candidates[np.isfinite(candidates) & (candidates >= float(value))], default=fmt.maximum))


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("text", ["token", "g32"])
def test_matches_scalar_float32(element: str, scale: str, text: str) -> None:
    """Scales and scaled values equal float32 scalar arithmetic; codes are the nearest even in the table."""
    x = bf16_rows(6, 80)
    granularity = parse_granularity(text)
    quantized = quantize_activation(x, element=element, granularity=granularity, scale_format=scale)
    scales = element_format(scale).decode(quantized.scale_codes)
    values = element_format(element).decode(quantized.codes)
    group = granularity.group_size or 80
    for m in range(6):
        for start in range(0, 80, group):
            part = x[m, start : start + group]
            absmax = max(abs(v) for v in part)
            raw = max(np.float32(absmax) / np.float32(ELEMENTS[element]), np.float32(1e-30))
            expected = float(raw) if scale == "fp32" else smallest_at_least(raw, scale)
            assert scales[m, start // group] == expected
            reciprocal = np.float32(1) / np.float32(expected)
            scaled = [float(v * reciprocal) for v in part]
            got = values[m, start : start + group]
            limit = np.clip(scaled, element_format(element).minimum, element_format(element).maximum)
            assert (np.abs(got - limit) <= element_format(element).spacing(limit) / 2).all()
            assert np.array_equal(got, element_format(element).decode(element_format(element).encode(scaled)))


@pytest.mark.parametrize(
    ("element", "dtype"),
    [
        ("fp8_e4m3", ml_dtypes.float8_e4m3fn),
        ("fp8_e5m2", ml_dtypes.float8_e5m2),
        ("fp4_e2m1", ml_dtypes.float4_e2m1fn),
    ],
)
def test_codes_match_ml_dtypes(element: str, dtype: type) -> None:
    """The float32 pipeline written with ml_dtypes casts gives the same codes."""
    x = bf16_rows(16, 128)
    quantized = quantize_activation(x, element=element, granularity=parse_granularity("token"))
    maximum = np.float32(ELEMENTS[element])
    scale = np.maximum(np.abs(x).max(axis=1, keepdims=True) / maximum, np.float32(1e-30))
    expected = np.clip(x * (np.float32(1) / scale), -maximum, maximum).astype(dtype).view(np.uint8)
    assert np.array_equal(quantized.codes, expected)
    assert np.array_equal(quantized.scale_codes, scale.view(np.uint32))


@pytest.mark.parametrize(
    ("absmax", "x", "code"),
    [
        (9.0, 4.5, 64),  # reciprocal: 63.5, ties to 64; a quotient would be 63.499996
        (11.4375, 5.71875, 63),  # reciprocal: 63.499996; a quotient would be 63.5
    ],
)
def test_multiplies_by_the_rounded_reciprocal(absmax: float, x: float, code: int) -> None:
    """Where x * (1 / scale) and x / scale round to different codes, the product decides."""
    row = np.array([[absmax, x]], dtype=np.float32)
    quantized = quantize_activation(row, element="int8", granularity=parse_granularity("token"))
    assert quantized.codes.tolist() == [[127, code]]
    assert np.rint(np.float32(x) / (np.float32(absmax) / np.float32(127))) != code


def test_static_scale_is_used_as_given_and_saturates() -> None:
    """A static scale of 0.5 doubles values; what leaves the range ends at its ends, infinity included."""
    x = np.array([[1.0, -1.25, 63.75, 70.0, -64.0, -70.0, 3e38]])
    granularity = parse_granularity("tensor")
    quantized = quantize_activation(x, element="int8", granularity=granularity, static_scale=0.5)
    assert quantized.codes.view(np.int8).tolist() == [[2, -2, 127, 127, -128, -128, 127]]
    assert quantized.scale_codes.tolist() == [[0x3F000000]]
    values = dequantize_activation(quantized, element="int8", granularity=granularity)
    assert values.tolist() == [[1.0, -1.0, 63.5, 63.5, -64.0, -64.0, 63.5]]
    floats = quantize_activation(x, element="e4m3", granularity=granularity, static_scale=1.0)
    assert element_format("e4m3").decode(floats.codes[0, -1]) == 448.0


@pytest.mark.parametrize("scale", SCALES)
def test_zero_rows_keep_the_scale_floor(scale: str) -> None:
    """A row of zeros has the floor 1e-30, rounded up in the scale format, and codes of zero."""
    x = np.zeros((2, 64), dtype=np.float32)
    x[1] = 1.0
    granularity = parse_granularity("g32")
    quantized = quantize_activation(x, element="fp8_e4m3", granularity=granularity, scale_format=scale)
    floor = {"fp32": float(np.float32(1e-30)), "e4m3": 2.0**-9, "ue8m0": 2.0**-99}[scale]
    assert element_format(scale).decode(quantized.scale_codes)[0].tolist() == [floor, floor]
    assert not quantized.codes[0].any()
    assert quantized.codes[1].all()


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("text", ["token", "g32", "g48", "g512"])
def test_round_trip_error_is_half_a_step(scale: str, text: str) -> None:
    """No dynamic value is off by more than half the element spacing times its scale, in cut groups too."""
    x = bf16_rows(5, 80)
    granularity = parse_granularity(text)
    quantized = quantize_activation(x, element="fp8_e4m3", granularity=granularity, scale_format=scale)
    assert quantized.scale_codes.shape == granularity.scale_shape(5, 80)
    values = dequantize_activation(quantized, element="fp8_e4m3", granularity=granularity, scale_format=scale)
    step = granularity.expand(element_format(scale).decode(quantized.scale_codes), 5, 80)
    spacing = element_format("fp8_e4m3").spacing(x / step)
    assert (np.abs(values - x) <= spacing / 2 * step * (1 + 2.0**-20)).all()


def test_absmax_of_maximum_times_power_of_two_is_exact() -> None:
    """A row whose absmax is (format maximum) * 2^j gets the scale 2^j exactly: nothing is rounded."""
    for element, maximum in ELEMENTS.items():
        for exponent in (-7, 0, 5):
            codes = np.array([[0, 1, 2, 3, 5]], dtype=np.uint8)
            row = element_format(element).decode(codes)
            row[0, 0] = maximum
            row *= 2.0**exponent
            granularity = parse_granularity("token")
            for scale in SCALES:
                quantized = quantize_activation(row, element=element, granularity=granularity, scale_format=scale)
                values = dequantize_activation(quantized, element=element, granularity=granularity, scale_format=scale)
                assert element_format(scale).decode(quantized.scale_codes) == 2.0**exponent
                assert np.array_equal(values, row)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"element": "uint8", "granularity": "token"}, "values of both signs, not uint8"),
        ({"element": "int1", "granularity": "token"}, "values of both signs, not int1"),
        ({"element": "int8", "granularity": "channel"}, "per tensor, token or group"),
        ({"element": "int8", "granularity": "b4x32"}, "per tensor, token or group"),
        ({"element": "int8", "granularity": "tensor"}, "static_scale belongs to granularity tensor"),
        ({"element": "int8", "granularity": "token", "static_scale": 1.0}, "static_scale belongs"),
        (
            {"element": "int8", "granularity": "token", "scale_format": "bf16"},
            "unknown activation scale format",
        ),
        (
            {"element": "int8", "granularity": "tensor", "scale_format": "e4m3", "static_scale": 1.0},
            "stored in fp32, not fp8_e4m3",
        ),
    ],
)
def test_schemes_that_do_not_exist_are_refused(options: dict[str, object], message: str) -> None:
    """Formats that do not go together are refused with the rule they break."""
    granularity = parse_granularity(str(options.pop("granularity")))
    with pytest.raises(FormatError, match=message):
        quantize_activation(np.ones((2, 32)), granularity=granularity, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("static_scale", [0.0, -1.0, np.inf, np.nan, 1e-60])
def test_bad_static_scales_are_refused(static_scale: float) -> None:
    """A static scale is a positive finite float32."""
    with pytest.raises(ValueError, match="static_scale must be positive and finite"):
        quantize_activation(
            np.ones((2, 4)),
            element="int8",
            granularity=parse_granularity("tensor"),
            static_scale=static_scale,
        )


@pytest.mark.parametrize("x", [np.ones(4), np.ones((0, 4)), np.full((2, 4), 1e39), np.full((2, 4), np.nan)])
def test_bad_activations_are_refused(x: np.ndarray) -> None:
    """Vectors, empty matrices, NaN and what overflows float32 are no activations."""
    with pytest.raises(ValueError, match="x must be finite in float32"):
        quantize_activation(x, element="int8", granularity=parse_granularity("token"))
