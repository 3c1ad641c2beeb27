# SPDX-License-Identifier: Apache-2.0
"""Codes from words by integer arithmetic alone, so that NumPy and a device make the same bits."""

from __future__ import annotations

from math import frexp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from humming_conformance.formats import ElementFormat, ExponentFormat, FloatFormat
from humming_conformance.problems.words import Array, Arrays


def max_exponent(element: ElementFormat) -> int:
    """Exponent of the largest binade that is whole: every mantissa in it is finite."""
    exponent = frexp(element.maximum)[1] - 1
    whole = (
        isinstance(element, ExponentFormat) or element.maximum == (2.0 - 2.0 * element.unit_roundoff) * 2.0**exponent
    )
    return exponent if whole else exponent - 1


def min_exponent(element: ElementFormat) -> int:
    """Exponent of the smallest binade that :func:`float_code` draws from."""
    if isinstance(element, ExponentFormat):
        return -126
    if not isinstance(element, FloatFormat):
        raise TypeError(f"{element.name} is no float format")
    return element.min_exponent


def is_wide(element: ElementFormat) -> bool:
    """Whether a format has binades enough that not all its codes make sense in one matrix."""
    return isinstance(element, FloatFormat) and element.exponent_bits > 0 and element.maximum > 64


def any_code(words: Array, arrays: Arrays, element: ElementFormat) -> Array:
    """Every finite code, equally likely."""
    return take(words, arrays, finite_codes(element))


def finite_codes(element: ElementFormat) -> NDArray[np.int64]:
    """All codes of a format of at most 16 bits but NaN and infinities, ascending."""
    codes = np.arange(1 << element.bits, dtype=np.int64)
    return codes[np.isfinite(element.decode(codes))]


def codes_where(element: ElementFormat, step: float, limit: float) -> NDArray[np.int64]:
    """The codes of multiples of ``step`` of at most ``limit`` in magnitude; +0 and -0 both count."""
    codes = finite_codes(element)
    values = element.decode(codes)
    wanted: NDArray[np.bool_] = (np.abs(values) <= limit) & (np.mod(values, step) == 0)
    return codes[wanted]


def take(words: Array, arrays: Arrays, table: NDArray[Any]) -> Array:
    """Entries of a small table, chosen evenly by the words."""
    if len(table) == 1 << int(np.log2(len(table))) and np.array_equal(table, np.arange(len(table))):
        return words & (len(table) - 1)
    return arrays.constant(table)[words % len(table)]


def float_code(
    words: Array,
    element: ElementFormat,
    low: int,
    high: int,
    *,
    signed: bool,
    mantissa_bits: int | None = None,
) -> Array:
    """Normal floats with an exponent uniform in [low, high] (clamped to the format) and a uniform mantissa.

    ``mantissa_bits`` keeps only that many leading mantissa bits. Bits 0…22 of a word feed the mantissa, 23…30
    the exponent, 31 the sign.
    """
    if isinstance(element, ExponentFormat):
        low, high = max(low, min_exponent(element)), min(high, 127)
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
    """log2, rounded up, of the magnitudes that ``random`` draws: a scale of its inverse gives about 1."""
    wide = element.is_float and element.maximum > 64
    return 3 if wide else frexp(element.maximum)[1]
