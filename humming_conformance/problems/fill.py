# SPDX-License-Identifier: Apache-2.0
"""Codes from words by integer arithmetic alone, so that NumPy and a device make the same bits."""

from __future__ import annotations

from math import frexp

import numpy as np

from humming_conformance.formats import ElementFormat, ExponentFormat, FloatFormat
from humming_conformance.problems.words import Array, Arrays


def max_exponent(element: ElementFormat) -> int:
    """Exponent of the largest binade that is whole: every mantissa in it is finite."""
    exponent = frexp(element.maximum)[1] - 1
    whole = isinstance(element, ExponentFormat) or element.maximum == (2.0 - 2.0 * element.unit_roundoff) * 2.0**exponent
    return exponent if whole else exponent - 1


def any_code(words: Array, arrays: Arrays, element: ElementFormat) -> Array:
    """Every finite code, equally likely."""
    return take(words, arrays, finite_codes(element))


def finite_codes(element: ElementFormat) -> np.ndarray:
    """All codes of a format of at most 16 bits but NaN and infinities, ascending."""
    codes = np.arange(1 << element.bits)
    return codes[np.isfinite(element.decode(codes))]


def codes_where(element: ElementFormat, step: float, limit: float) -> np.ndarray:
    """The codes whose values are multiples of ``step`` of at most ``limit`` in magnitude; ±0 count once each."""
    codes = finite_codes(element)
    values = element.decode(codes)
    return codes[(np.abs(values) <= limit) & (np.mod(values, step) == 0)]


def take(words: Array, arrays: Arrays, table: np.ndarray) -> Array:
    """Entries of a small table, chosen evenly by the words."""
    if len(table) == 1 << int(np.log2(len(table))) and np.array_equal(table, np.arange(len(table))):
        return words & (len(table) - 1)
    return arrays.constant(table)[words % len(table)]


def float_code(
    words: Array,
    arrays: Arrays,
    element: ElementFormat,
    low: int,
    high: int,
    *,
    signed: bool,
    mantissa_bits: int | None = None,
) -> Array:
    """Normal floats with an exponent uniform in [low, high] (clamped to the format) and a uniform mantissa.

    ``mantissa_bits`` keeps only that many leading mantissa bits. Bits 0…22 of a word feed the mantissa, 23…30 the
    exponent, 31 the sign.
    """
    if isinstance(element, ExponentFormat):
        low, high = max(low, -126), min(high, 127)
        return 127 + low + ((words >> 23) & 0xFF) % (high - low + 1)
    if not isinstance(element, FloatFormat):
        raise TypeError(f"{element.name} is no float format")
    top = max_exponent(element)
    low, high = min(max(low, element.min_exponent), top), max(min(high, top), element.min_exponent)
    exponent = low + ((words >> 23) & 0xFF) % (high - low + 1)
    mantissa = (words & 0x7FFFFF) >> (23 - element.mantissa_bits)
    if mantissa_bits is not None and mantissa_bits < element.mantissa_bits:
        dropped = element.mantissa_bits - mantissa_bits
        mantissa = (mantissa >> dropped) << dropped
    code = ((exponent - element.min_exponent + 1) << element.mantissa_bits) | mantissa
    return code | ((words >> 31) << (element.bits - 1)) if signed else code


def power_of_two(exponent: Array, element: ElementFormat) -> Array:
    """Codes of 2^exponent, an int64 array within the format's normal range."""
    if isinstance(element, ExponentFormat):
        return exponent + 127
    if not isinstance(element, FloatFormat):
        raise TypeError(f"{element.name} is no float format")
    return (exponent - element.min_exponent + 1) << element.mantissa_bits


def typical_exponent(element: ElementFormat) -> int:
    """log2, rounded up, of the magnitudes that ``random`` draws for a format: a scale of its inverse gives about 1."""
    wide = element.is_float and element.maximum > 64
    return 3 if wide else frexp(element.maximum)[1]
