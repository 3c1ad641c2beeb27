# SPDX-License-Identifier: Apache-2.0
"""How codes become exact values and values become codes; `elements` names the formats and states the rules.

Decoding and rounding are integer arithmetic on the exponent field of float64, so every step but the one
rounding is exact.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from humming_conformance.formats.errors import require_choice, require_codes

Codes = NDArray[np.unsignedinteger[Any]]
Values = NDArray[np.float64]
Int64s = NDArray[np.int64]
Overflow = Literal["saturate", "native"]
Rounding = Literal["nearest", "up", "down"]

_FLOAT64_MANTISSA_BITS = 52
_FLOAT64_BIAS = 1023


@dataclass(frozen=True, kw_only=True, repr=False)
class ElementFormat(ABC):
    """A number format of at most 32 bits, its properties as plain numbers. Get one from `element_format`.

    `minimum` is the most negative finite value (of an unsigned format, the smallest). `smallest_subnormal`
    is the smallest positive value (`int1`, which has none: the step 1). `unit_roundoff` is
    2^-(mantissa bits + 1), the bound on the relative error of rounding a normal value to nearest; integers
    and `e0mN` have no relative precision and state 0.5, which holds from 1 up. `is_integer` is False for
    `e0mN`, whose codes are sign and magnitude.
    """

    name: str
    bits: int
    signed: bool
    maximum: float
    minimum: float
    smallest_subnormal: float
    unit_roundoff: float
    has_nan: bool = False
    has_inf: bool = False
    is_integer: bool = False

    def __repr__(self) -> str:
        return f"element_format({self.name!r})"

    @property
    def is_float(self) -> bool:
        """The opposite of `is_integer`."""
        return not self.is_integer

    @property
    def code_dtype(self) -> np.dtype[Any]:
        """The narrowest of uint8, uint16 and uint32 that holds a code."""
        return np.dtype(np.uint8 if self.bits <= 8 else np.uint16 if self.bits <= 16 else np.uint32)

    @abstractmethod
    def _decode(self, codes: Int64s) -> Values:
        """Values of codes already checked."""

    @abstractmethod
    def _encode(self, values: Values, overflow: Overflow, rounding: Rounding) -> Int64s:
        """Codes of values that hold NaN only where the format does."""

    @abstractmethod
    def _spacing(self, values: Values) -> Values:
        """Spacing at values without NaN."""

    def spacing(self, values: ArrayLike) -> Values:
        """Return the distance between neighbouring values of the format at |value|, as float64.

        At a power of two it is the distance to the next larger value; beyond the maximum, that at the
        maximum; below the smallest normal value, the smallest subnormal. NaN gives NaN.
        """
        array = np.asarray(values, dtype=np.float64)
        nan = np.isnan(array)
        return np.where(nan, np.nan, self._spacing(np.where(nan, 0.0, array)))

    @cached_property
    def _table(self) -> Values:
        return self._decode(np.arange(1 << self.bits, dtype=np.int64))

    def decode(self, codes: ArrayLike) -> Values:
        """Return the exact values of `codes` (any shape, integer dtype) as float64.

        Raises `ValueError` for codes of another dtype or outside [0, 2^bits).
        """
        array = np.asarray(codes)
        require_codes(self.name, array, self.bits)
        if self.bits > 16:
            return np.asarray(self._decode(array.astype(np.int64)))
        return np.asarray(self._table[array])

    def encode(self, values: ArrayLike, *, overflow: Overflow = "saturate", rounding: Rounding = "nearest") -> Codes:
        """Return the codes (dtype `code_dtype`) of `values` (any shape, taken as float64), rounded once.

        `elements` states the rules for overflow, ties, infinity and NaN. Raises `ValueError` for NaN where
        the format has none, and for a negative value in `ue8m0`.
        """
        require_choice("overflow", overflow, ("saturate", "native"))
        require_choice("rounding", rounding, ("nearest", "up", "down"))
        array = np.asarray(values, dtype=np.float64)
        if not self.has_nan and np.isnan(array).any():
            raise ValueError(f"{self.name} has no NaN: replace NaN before encoding")
        return np.asarray(self._encode(array, overflow, rounding), dtype=self.code_dtype)

    def round(self, values: ArrayLike) -> Values:
        """Return `values` rounded to nearest in this format, as float64, with native overflow."""
        return self.decode(self.encode(values, overflow="native"))


class IntegerFormat(ElementFormat):
    """`intN` (two's complement) or `uintN`."""

    def _decode(self, codes: Int64s) -> Values:
        return np.where(codes > self.maximum, codes - (1 << self.bits), codes).astype(np.float64)

    def _encode(self, values: Values, overflow: Overflow, rounding: Rounding) -> Int64s:
        del overflow  # the ends of the range are the only answer
        to_integer = {"nearest": np.rint, "up": np.ceil, "down": np.floor}[rounding]
        integers = np.clip(to_integer(values), self.minimum, self.maximum)
        return integers.astype(np.int64) & ((1 << self.bits) - 1)

    def _spacing(self, values: Values) -> Values:
        return np.ones_like(values)


@dataclass(frozen=True, kw_only=True, repr=False)
class FloatFormat(ElementFormat):
    """A signed binary format `eXmY`, or sign and magnitude `e0mN` (subnormals only, of step 1).

    `min_exponent` is the exponent of the smallest normal value; `max_code` the magnitude bits of `maximum`.
    """

    exponent_bits: int
    mantissa_bits: int
    min_exponent: int
    max_code: int

    def _decode(self, codes: Int64s) -> Values:
        sign_bit = 1 << (self.bits - 1)
        magnitude_code = codes & (sign_bit - 1)
        exponent_field = magnitude_code >> self.mantissa_bits
        mantissa_field = magnitude_code & ((1 << self.mantissa_bits) - 1)
        significand = mantissa_field + ((exponent_field > 0).astype(np.int64) << self.mantissa_bits)
        exponent = np.maximum(exponent_field, 1) - 1 + self.min_exponent - self.mantissa_bits
        magnitude = significand * _power_of_two(exponent)
        magnitude = np.where(magnitude_code > self.max_code, np.nan, magnitude)
        if self.has_inf:
            magnitude = np.where(magnitude_code == self.max_code + 1, np.inf, magnitude)
        return np.where(codes >= sign_bit, -magnitude, magnitude)

    def _encode(self, values: Values, overflow: Overflow, rounding: Rounding) -> Int64s:
        codes = _unlimited_codes(values, self.maximum, self.min_exponent, self.mantissa_bits, rounding)
        codes = _limit(codes, values, self.max_code, overflow if self.has_nan else "saturate", rounding)
        codes |= np.signbit(values).astype(np.int64) << (self.bits - 1)
        quiet_bit = (1 << self.mantissa_bits) >> 1 if self.has_inf else 0
        return np.where(np.isnan(values), self.max_code + 1 + quiet_bit, codes)

    def _spacing(self, values: Values) -> Values:
        return _binade_spacing(values, self.maximum, self.min_exponent, self.mantissa_bits)


class ExponentFormat(ElementFormat):
    """`ue8m0`: a biased exponent without sign, mantissa or zero."""

    _MIN_EXPONENT: ClassVar[int] = -127
    _NAN_CODE: ClassVar[int] = 255

    def _decode(self, codes: Int64s) -> Values:
        return np.where(codes == self._NAN_CODE, np.nan, _power_of_two(codes + self._MIN_EXPONENT))

    def _encode(self, values: Values, overflow: Overflow, rounding: Rounding) -> Int64s:
        if (values < 0.0).any():
            raise ValueError(f"{self.name} has no sign: encode the magnitude of a scale")
        # A float without mantissa bits has zero at code 0; here 2^-127 takes that code, and zero joins it.
        codes = _unlimited_codes(values, self.maximum, self._MIN_EXPONENT, 0, rounding) - 1
        codes = _limit(np.maximum(codes, 0), values, self._NAN_CODE - 1, overflow, rounding)
        return np.where(np.isnan(values), self._NAN_CODE, codes)

    def _spacing(self, values: Values) -> Values:
        return _binade_spacing(values, self.maximum, self._MIN_EXPONENT, 0)


def _float64_exponent(magnitude: Values) -> Int64s:
    """floor(log2(magnitude)) of finite magnitudes; -1023 for zero and float64 subnormals."""
    return (magnitude.view(np.int64) >> _FLOAT64_MANTISSA_BITS) - _FLOAT64_BIAS


def _power_of_two(exponent: Int64s) -> Values:
    """2^exponent, for exponents of normal float64 values."""
    return ((exponent + _FLOAT64_BIAS) << _FLOAT64_MANTISSA_BITS).view(np.float64)


def _rounds_towards_zero(values: Values, rounding: Rounding) -> NDArray[np.bool_]:
    """Where a directed rounding makes the magnitude smaller."""
    return np.signbit(values) if rounding == "up" else ~np.signbit(values)


def _unlimited_codes(
    values: Values, maximum: float, min_exponent: int, mantissa_bits: int, rounding: Rounding
) -> Int64s:
    """Magnitude codes of `values` in a format without largest exponent; NaN gives 0.

    The magnitude is scaled, exactly, until its last kept bit has weight 1. A carry out of the significand
    moves to the next exponent by itself, because codes run on across binades.
    """
    # Twice the maximum overflows in every rounding, and the scaling below stays within float64's range.
    magnitude = np.minimum(np.where(np.isnan(values), 0.0, np.abs(values)), 2.0 * maximum)
    exponent = np.maximum(_float64_exponent(magnitude), min_exponent)
    significand = magnitude * _power_of_two(mantissa_bits - exponent)
    if rounding == "nearest":
        significand = np.rint(significand)
    else:
        towards_zero = _rounds_towards_zero(values, rounding)
        significand = np.where(towards_zero, np.floor(significand), np.ceil(significand))
    return ((exponent - min_exponent) << mantissa_bits) + significand.astype(np.int64)


def _limit(codes: Int64s, values: Values, max_code: int, overflow: Overflow, rounding: Rounding) -> Int64s:
    """Apply the overflow rule; the code after `max_code` is the format's infinity, or NaN if it has none."""
    if overflow == "saturate":
        return np.minimum(codes, max_code)
    if rounding == "nearest":
        return np.minimum(codes, max_code + 1)
    stays_finite = _rounds_towards_zero(values, rounding) & np.isfinite(values)
    return np.minimum(codes, np.where(stays_finite, max_code, max_code + 1))


def _binade_spacing(values: Values, maximum: float, min_exponent: int, mantissa_bits: int) -> Values:
    exponent = _float64_exponent(np.minimum(np.abs(values), maximum))
    return _power_of_two(np.maximum(exponent, min_exponent) - mantissa_bits)
