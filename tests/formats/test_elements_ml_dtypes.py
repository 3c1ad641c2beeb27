# SPDX-License-Identifier: Apache-2.0
"""Element formats against ml_dtypes, a second independent implementation.

Differences known and kept out: ml_dtypes overflows e4m3 to NaN, rounds float64 twice, encodes NaN in fp4 and
fp6 as -0, and moves fp32 subnormals just above 2^-127 up to 2^-126 in e8m0, whose encoder is not used here.
"""

import ml_dtypes
import numpy as np
import pytest

from humming_conformance.formats import element_format

FLOATS = {
    "fp4_e2m1": ml_dtypes.float4_e2m1fn,
    "fp6_e2m3": ml_dtypes.float6_e2m3fn,
    "fp6_e3m2": ml_dtypes.float6_e3m2fn,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
    "bf16": ml_dtypes.bfloat16,
}
INTEGERS = {
    "int2": ml_dtypes.int2,
    "int4": ml_dtypes.int4,
    "uint2": ml_dtypes.uint2,
    "uint4": ml_dtypes.uint4,
}


@pytest.mark.parametrize("name", [*FLOATS, "ue8m0"])
def test_decode_matches_ml_dtypes(name: str) -> None:
    """Every code decodes to the same value, NaN for NaN."""
    fmt = element_format(name)
    dtype = FLOATS.get(name, ml_dtypes.float8_e8m0fnu)
    codes = np.arange(1 << fmt.bits).astype(fmt.code_dtype)
    with np.errstate(invalid="ignore"):
        expected = codes.view(dtype).astype(np.float64)
    assert np.array_equal(fmt.decode(codes), expected, equal_nan=True)


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_decode_matches_ml_dtypes(name: str) -> None:
    """Every code of the sub-byte integers decodes to the same value."""
    fmt = element_format(name)
    codes = np.arange(1 << fmt.bits, dtype=np.uint8)
    assert np.array_equal(fmt.decode(codes), codes.view(INTEGERS[name]).astype(np.float64))


@pytest.mark.parametrize("name", FLOATS)
def test_encode_matches_ml_dtypes(name: str) -> None:
    """fp32 values of all magnitudes, clipped to the range, get the same codes, sign of zero included."""
    fmt, dtype = element_format(name), FLOATS[name]
    bits = np.random.default_rng(11).integers(0, 1 << 32, 300_000, dtype=np.uint32)
    values = bits.view(np.float32)
    near = np.random.default_rng(12).standard_normal(300_000) * (fmt.maximum / 4 if fmt.bits <= 8 else 1.0)
    values = np.concatenate([values[np.isfinite(values)], near.astype(np.float32)])
    clipped = np.clip(values, np.float32(fmt.minimum), np.float32(fmt.maximum))
    assert np.array_equal(fmt.encode(values), clipped.astype(dtype).view(fmt.code_dtype))


@pytest.mark.parametrize("name", ["fp8_e4m3", "fp8_e5m2", "bf16"])
def test_native_overflow_matches_ml_dtypes(name: str) -> None:
    """Around the overflow threshold and at infinity, native overflow agrees with the casts of ml_dtypes."""
    fmt, dtype = element_format(name), FLOATS[name]
    threshold = np.float32(fmt.maximum + fmt.spacing(fmt.maximum) / 2)
    below, above = np.nextafter(threshold, np.float32(0)), np.nextafter(threshold, np.float32(np.inf))
    magnitudes = np.array([fmt.maximum, below, threshold, above, np.inf], dtype=np.float32)
    values = np.concatenate([magnitudes, -magnitudes])
    with np.errstate(over="ignore"):
        expected = values.astype(dtype).astype(np.float64)
    assert np.array_equal(fmt.round(values), expected, equal_nan=True)
