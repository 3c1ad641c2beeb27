# SPDX-License-Identifier: Apache-2.0
"""Element formats against a decoder and an encoder in exact fractions, written here from the definitions."""

import bisect
import random
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from humming_conformance.formats import element_format


class Definition(NamedTuple):
    """What a format's specification says: X exponent bits, Y mantissa bits, which codes are not finite."""

    exponent_bits: int
    mantissa_bits: int
    reserved: str = "none"


NAMED = {
    "fp4_e2m1": Definition(2, 1),
    "fp6_e2m3": Definition(2, 3),
    "fp6_e3m2": Definition(3, 2),
    "fp8_e4m3": Definition(4, 3, "last"),
    "fp8_e3m4": Definition(3, 4, "last"),
    "fp8_e5m2": Definition(5, 2, "ieee"),
}
NAMED_SIZES = {(d.exponent_bits, d.mantissa_bits) for d in NAMED.values()} | {(8, 0)}
SMALL = (
    NAMED
    | {f"e0m{y}": Definition(0, y) for y in range(1, 8)}
    | {
        f"e{x}m{y}": Definition(x, y)
        for x in range(1, 8)
        for y in range(8 - x)
        if (x, y) not in NAMED_SIZES and x + y > 1
    }
)
WIDE = {
    "fp16": Definition(5, 10, "ieee"),
    "bf16": Definition(8, 7, "ieee"),
    "e5m10": Definition(5, 10),
    "e10m5": Definition(10, 5),
    "e1m14": Definition(1, 14),
    "e9m0": Definition(9, 0),
}
ALL = SMALL | WIDE


def exact_magnitude(code: int, definition: Definition) -> Fraction:
    """The value of magnitude bits, also of the codes after the last one, as if exponents went on."""
    field, mantissa = divmod(code, 1 << definition.mantissa_bits)
    fraction = Fraction(mantissa, 1 << definition.mantissa_bits)
    if definition.exponent_bits == 0:
        return Fraction(code)
    bias = 2 ** (definition.exponent_bits - 1) - 1
    if field == 0:
        return fraction * Fraction(2) ** (1 - bias)
    return (1 + fraction) * Fraction(2) ** (field - bias)


def last_finite_code(definition: Definition) -> int:
    """The magnitude bits of the maximum."""
    codes = 1 << (definition.exponent_bits + definition.mantissa_bits)
    return codes - 1 - {"none": 0, "last": 1, "ieee": 1 << definition.mantissa_bits}[definition.reserved]


class ExactEncoder:
    """Rounds by comparing with every value of a format, and with the one after the maximum."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.last = last_finite_code(definition)
        self.grid = [exact_magnitude(code, definition) for code in range(self.last + 2)]

    def magnitude_code(self, magnitude: Fraction, choose: Callable[[int, Fraction], int]) -> int:
        if magnitude >= self.grid[-1]:
            return self.last + 1
        lower = bisect.bisect_right(self.grid, magnitude) - 1
        return lower if self.grid[lower] == magnitude else choose(lower, magnitude)

    def nearest(self, lower: int, magnitude: Fraction) -> int:
        below, above = magnitude - self.grid[lower], self.grid[lower + 1] - magnitude
        if below != above:
            return lower if below < above else lower + 1
        if self.definition.mantissa_bits == 0:
            return lower + (lower > 0)  # IEEE 754-2019 4.3.1: neither is even, the larger one; but zero is even
        return lower + lower % 2

    def encode(self, value: float, overflow: str, rounding: str = "nearest") -> int:
        """The code of a finite value, by the rules that the module docstring of `elements` states."""
        sign = int(np.signbit(value)) << (self.definition.exponent_bits + self.definition.mantissa_bits)
        towards_zero = rounding != "nearest" and (value < 0) == (rounding == "up")
        choose = {
            "nearest": self.nearest,
            "towards zero": lambda lower, _: lower,
            "away": lambda lower, _: lower + 1,
        }["nearest" if rounding == "nearest" else "towards zero" if towards_zero else "away"]
        code = self.magnitude_code(abs(Fraction(value)), choose)
        if code > self.last and (overflow == "saturate" or self.definition.reserved == "none" or towards_zero):
            code = self.last
        return sign | code


def probes(definition: Definition, codes: list[int]) -> list[float]:
    """Values, midpoints between neighbours, and the float64 numbers next to both, of either sign."""
    last = last_finite_code(definition)
    points = [0.0, 5e-324, 1e-310, 1.7e308]
    for code in codes:
        value = exact_magnitude(code, definition)
        above = exact_magnitude(code + 1, definition)
        points += [float(value), float((value + above) / 2)]
    points += [float(exact_magnitude(last + 1, definition)) * factor for factor in (1.0, 2.0, 3.0)]
    around = [np.nextafter(point, limit) for point in points for limit in (0.0, np.inf)]
    magnitudes = [float(point) for point in (*points, *around)]
    return magnitudes + [-magnitude for magnitude in magnitudes]


def sampled_codes(definition: Definition) -> list[int]:
    """All magnitude codes of a small format; the edges and a sample of a wide one."""
    last = last_finite_code(definition)
    if last < 1024:
        return list(range(last + 1))
    step = 1 << definition.mantissa_bits
    edges = {0, 1, 2, step - 1, step, step + 1, 2 * step - 1, 2 * step, last - 1, last}
    return sorted(edges | set(random.Random(last).sample(range(last + 1), 800)))  # noqa: S311


@pytest.mark.parametrize("name", ALL)
def test_decode_matches_definition(name: str) -> None:
    """Every code of every float format decodes to the value its definition gives, sign of zero included."""
    definition, fmt = ALL[name], element_format(name)
    half = 1 << (fmt.bits - 1)
    decoded = fmt.decode(np.arange(2 * half))
    last = last_finite_code(definition)
    for code in range(half):
        positive, negative = float(decoded[code]), float(decoded[code + half])
        if code > last:
            infinite = definition.reserved == "ieee" and code == last + 1
            assert positive == np.inf if infinite else np.isnan(positive)
            assert negative == -np.inf if infinite else np.isnan(negative)
        else:
            assert Fraction(positive) == exact_magnitude(code, definition)
            assert negative == -positive
            assert np.signbit(negative)


@pytest.mark.parametrize("name", ALL)
def test_encode_matches_exact_rounding(name: str) -> None:
    """Values, midpoints and their float64 neighbours round as exact fractions say, in every mode."""
    definition, fmt = ALL[name], element_format(name)
    encoder = ExactEncoder(definition)
    values = probes(definition, sampled_codes(definition))
    for overflow in ("saturate", "native"):
        for rounding in ("nearest", "up", "down"):
            codes = fmt.encode(values, overflow=overflow, rounding=rounding)
            expected = [encoder.encode(value, overflow, rounding) for value in values]
            wrong = np.flatnonzero(codes != np.array(expected))
            assert not wrong.size, (overflow, rounding, values[wrong[0]], codes[wrong[0]], expected[wrong[0]])


@pytest.mark.parametrize("name", [*ALL, "ue8m0", *[f"{k}{b}" for k in ("int", "uint") for b in range(1, 9)]])
def test_codes_round_trip(name: str) -> None:
    """Encoding a decoded code gives the code back, except that all NaN codes become one."""
    fmt = element_format(name)
    codes = np.arange(1 << fmt.bits).astype(fmt.code_dtype)
    values = fmt.decode(codes)
    nan = np.isnan(values)
    encoded = fmt.encode(values, overflow="native")
    assert encoded.dtype == fmt.code_dtype
    assert np.array_equal(encoded[~nan], codes[~nan])
    assert nan.any() == fmt.has_nan
    assert len(set(encoded[nan].tolist())) == fmt.has_nan
    assert np.isinf(values).any() == fmt.has_inf


@pytest.mark.parametrize("bits", range(1, 9))
def test_integers(bits: int) -> None:
    """Integers decode as two's complement or plain, round ties to even and end at their range."""
    signed, unsigned = element_format(f"int{bits}"), element_format(f"uint{bits}")
    codes = range(1 << bits)
    assert unsigned.decode(codes).tolist() == list(codes)
    assert signed.decode(codes).tolist() == [c - (1 << bits if c >> (bits - 1) else 0) for c in codes]
    for fmt in (signed, unsigned):
        low, high = int(fmt.minimum), int(fmt.maximum)
        for doubled in range(2 * low - 5, 2 * high + 6):
            rounded = fmt.decode(fmt.encode(doubled / 2))
            assert rounded == min(max(round(Fraction(doubled, 2)), low), high)
        assert fmt.decode(fmt.encode([-np.inf, np.inf], overflow="native")).tolist() == [low, high]
        assert fmt.spacing([0.0, 3.0]).tolist() == [1.0, 1.0]
        assert (fmt.is_integer, fmt.is_float, fmt.has_nan) == (True, False, False)


@pytest.mark.parametrize("name", ALL)
def test_properties_match_definition(name: str) -> None:
    """Maximum, minimum, smallest subnormal, unit roundoff and flags follow from the definition."""
    definition, fmt = ALL[name], element_format(name)
    assert Fraction(fmt.maximum) == exact_magnitude(last_finite_code(definition), definition)
    assert fmt.minimum == -fmt.maximum
    assert Fraction(fmt.smallest_subnormal) == exact_magnitude(1, definition)
    if definition.exponent_bits:
        assert fmt.unit_roundoff == 2.0 ** -(definition.mantissa_bits + 1)
    assert (fmt.has_nan, fmt.has_inf) == (definition.reserved != "none", definition.reserved == "ieee")
    assert (fmt.bits, fmt.signed) == (1 + definition.exponent_bits + definition.mantissa_bits, True)
    assert (fmt.is_integer, fmt.is_float) == (False, True)


@pytest.mark.parametrize("name", ALL)
def test_spacing_is_distance_to_next_value(name: str) -> None:
    """The spacing at a value, and between it and the next, is the distance of the two."""
    definition, fmt = ALL[name], element_format(name)
    codes = [code for code in sampled_codes(definition) if code < last_finite_code(definition)]
    for code in codes:
        value, above = (float(exact_magnitude(c, definition)) for c in (code, code + 1))
        inside = np.nextafter(above, 0.0)
        assert fmt.spacing([value, -value, inside]).tolist() == [above - value] * 3
    last = last_finite_code(definition)
    step = float(exact_magnitude(last + 1, definition) - exact_magnitude(last, definition))
    assert fmt.spacing([fmt.maximum, 3.0 * fmt.maximum, np.inf]).tolist() == [step] * 3
    assert np.isnan(fmt.spacing(np.nan))


@pytest.mark.parametrize(
    ("name", "maximum", "minimum_positive"),
    [
        ("fp4_e2m1", 6.0, 0.5),
        ("fp6_e2m3", 7.5, 0.125),
        ("fp6_e3m2", 28.0, 0.0625),
        ("fp8_e4m3", 448.0, 2.0**-9),
        ("fp8_e3m4", 30.0, 2.0**-6),
        ("fp8_e5m2", 57344.0, 2.0**-16),
        ("fp16", 65504.0, 2.0**-24),
        ("bf16", 3.3895313892515355e38, 2.0**-133),
        ("fp32", 3.4028234663852886e38, 2.0**-149),
        ("ue8m0", 2.0**127, 2.0**-127),
        ("e0m3", 7.0, 1.0),
    ],
)
def test_published_limits(name: str, maximum: float, minimum_positive: float) -> None:
    """Limits printed in the specifications hold."""
    fmt = element_format(name)
    assert (fmt.maximum, fmt.smallest_subnormal) == (maximum, minimum_positive)


def test_nan_and_infinity_rules() -> None:
    """NaN becomes the positive quiet NaN or is refused; infinity saturates or overflows as documented."""
    quiet = {"fp8_e4m3": 0x7F, "fp8_e3m4": 0x7F, "fp8_e5m2": 0x7E, "fp16": 0x7E00, "bf16": 0x7FC0}
    quiet |= {"fp32": 0x7FC00000, "ue8m0": 0xFF}
    for name, code in quiet.items():
        fmt = element_format(name)
        for overflow in ("saturate", "native"):
            assert fmt.encode([np.nan, -np.nan], overflow=overflow).tolist() == [code, code]
        assert fmt.decode(fmt.encode(np.inf)) == fmt.maximum
        native = fmt.decode(fmt.encode(np.inf, overflow="native"))
        assert native == np.inf if fmt.has_inf else np.isnan(native)
    for name in ("fp4_e2m1", "fp6_e3m2", "e0m3", "e4m2", "int8", "uint4"):
        with pytest.raises(ValueError, match=f"{name} has no NaN"):
            element_format(name).encode([1.0, np.nan])
        assert element_format(name).decode(element_format(name).encode(np.inf, overflow="native")) < np.inf
    for name in ("fp8_e5m2", "fp16", "bf16", "fp32"):
        fmt = element_format(name)
        assert fmt.decode(fmt.encode(-np.inf, overflow="native", rounding="up")) == -np.inf


def test_rounds_once_from_float64() -> None:
    """1 + 2^-8 + 2^-40 is above a bf16 midpoint; rounding to fp32 on the way would lose the 2^-40."""
    bf16 = element_format("bf16")
    assert bf16.round(1.0 + 2.0**-8 + 2.0**-40) == 1.0 + 2.0**-7
    assert bf16.round(1.0 + 2.0**-8 - 2.0**-40) == 1.0
    assert bf16.round(1.0 + 2.0**-8) == 1.0


@pytest.mark.parametrize(("name", "dtype"), [("fp16", np.float16), ("fp32", np.float32)])
def test_ieee_formats_match_numpy(name: str, dtype: type[np.floating]) -> None:
    """fp16 and fp32 agree bit for bit with the casts of NumPy, over all magnitudes, and decode them back."""
    fmt = element_format(name)
    generator = np.random.default_rng(7)
    exponents = generator.integers(-160, 140, 200_000)
    values = np.ldexp(generator.standard_normal(200_000), exponents)
    with np.errstate(over="ignore"):
        short = values.astype(np.float32).astype(np.float64)
    values = np.concatenate([values, short, np.nextafter(short, 0), [0.0, -0.0, np.inf, -np.inf]])
    with np.errstate(over="ignore", under="ignore"):
        expected = values.astype(dtype)
    codes = fmt.encode(values, overflow="native")
    assert np.array_equal(codes, expected.view(fmt.code_dtype))
    assert np.array_equal(fmt.decode(codes), expected.astype(np.float64))
    assert np.isnan(fmt.decode(np.array([0x7FC00000, 0x7F800001, 0xFFFFFFFF]) >> (32 - fmt.bits))).all()


@given(st.sampled_from(sorted(ALL)), st.lists(st.floats(allow_nan=False, width=64), min_size=2))
def test_rounding_properties(name: str, values: list[float]) -> None:
    """Rounding is monotonic and idempotent, moves at most half the spacing, and up is never below down."""
    fmt = element_format(name)
    array = np.sort(np.array(values))
    rounded = fmt.decode(fmt.encode(array))
    assert (np.diff(rounded) >= 0).all()
    assert np.array_equal(fmt.decode(fmt.encode(rounded)), rounded)
    inside = np.abs(array) <= fmt.maximum
    assert (np.abs(rounded - array)[inside] <= fmt.spacing(array)[inside] / 2).all()
    up, down = (fmt.decode(fmt.encode(array, rounding=r)) for r in ("up", "down"))
    assert ((down <= rounded) & (rounded <= up)).all()
    assert ((down <= array) & (array <= up))[inside].all()
