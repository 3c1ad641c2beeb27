# SPDX-License-Identifier: Apache-2.0
"""The element and scale formats, by name.

A **code** is the bit pattern of one element in the low bits of an unsigned integer.

| name | bits | values | NaN, inf | overflow `saturate` | overflow `native` |
|---|---|---|---|---|---|
| `int1`…`int8` | N | two's complement (`int1`: codes 0, 1 are 0, -1) | no, no | ends of the range | same |
| `uint1`…`uint8` | N | the code itself | no, no | ends of the range | same |
| `e0mN`, N = 1…7 | 1+N | sign and magnitude, ±0…±(2^N - 1) | no, no | ±maximum | same |
| `fp4_e2m1` `fp6_e2m3` `fp6_e3m2`, any other `eXmY` | 1+X+Y | all codes finite | no, no | ±maximum | same |
| `fp8_e4m3` `fp8_e3m4` | 8 | finite but for all magnitude bits set | yes, no | ±maximum | NaN |
| `fp8_e5m2` `fp16` `bf16` `fp32` | 8…32 | IEEE 754 | yes, yes | ±maximum | ±inf |
| `ue8m0` | 8 | 2^(code - 127), no sign, no zero; code 255 is NaN | yes, no | 2^127 | NaN |

- Floats are sign, X exponent bits with bias 2^(X-1) - 1, Y mantissa bits, with subnormals. `eXmY` is any
  X in 1…10 (then every value is an exact float64) with 3…16 bits.
- Rounding `nearest` is IEEE 754-2019 section 4.3.1: ties to the even significand. Without mantissa bits
  (`eXm0`, `ue8m0`) two neighbouring significands are both 1, and a tie goes to the larger magnitude.
  `up` rounds towards +inf, `down` towards -inf. A finite value that a directed rounding moves towards
  zero stays finite, even under `native`.
- Infinity overflows. NaN becomes the format's one positive quiet NaN; where the format has no NaN, encoding
  it raises `ValueError`. Every format with a sign bit keeps the sign of zero.
- `ue8m0` encodes 0, and whatever rounds below 2^-127, as code 0 (2^-127) in every rounding. A negative
  value raises `ValueError`.

Aliases: `fpB_eXmY` and `eXmY` are one format (`e4m3` is `fp8_e4m3`, `fp4_e0m3` is `e0m3`), and `e8m0` is
`ue8m0`. `e5m10` and `e8m7` have all codes finite: they are not `fp16` and `bf16`.

Sources: OCP 8-bit Floating Point Specification 1.0 (e4m3, e5m2); OCP Microscaling Formats 1.0 (fp4, fp6,
e8m0); IEEE 754-2019. `fp8_e3m4` has no specification: it follows e4m3, which gives the maximum of 30 that
Humming quantizes to.
"""

import re
from functools import cache

from humming_conformance.formats.codec import ElementFormat, ExponentFormat, FloatFormat, IntegerFormat
from humming_conformance.formats.errors import require_choice, unknown_name

# Of the codes with all exponent bits set, which are not finite: none, one NaN (the last), or all (IEEE 754).
_RESERVED_NONE, _RESERVED_NAN, _RESERVED_IEEE = "none", "nan", "ieee"

_NAMED_FLOATS = {
    "fp4_e2m1": (2, 1, _RESERVED_NONE),
    "fp6_e2m3": (2, 3, _RESERVED_NONE),
    "fp6_e3m2": (3, 2, _RESERVED_NONE),
    "fp8_e4m3": (4, 3, _RESERVED_NAN),
    "fp8_e3m4": (3, 4, _RESERVED_NAN),
    "fp8_e5m2": (5, 2, _RESERVED_IEEE),
    "fp16": (5, 10, _RESERVED_IEEE),
    "bf16": (8, 7, _RESERVED_IEEE),
    "fp32": (8, 23, _RESERVED_IEEE),
}
_CANONICAL_NAMES = {name.partition("_")[2]: name for name in _NAMED_FLOATS if "_" in name} | {"e8m0": "ue8m0"}
_MAX_EXPONENT_BITS = 10
_MAX_SIGN_MAGNITUDE_BITS = 7
_MIN_BITS, _MAX_BITS = 3, 16

SCALE_FORMATS = ("fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "ue8m0")
"""Canonical names of the formats that scales are stored in."""


def _valid_exponent_mantissa(exponent_bits: int, mantissa_bits: int) -> bool:
    if exponent_bits == 0:
        return 1 <= mantissa_bits <= _MAX_SIGN_MAGNITUDE_BITS
    return exponent_bits <= _MAX_EXPONENT_BITS and _MIN_BITS <= 1 + exponent_bits + mantissa_bits <= _MAX_BITS


def _valid_names() -> list[str]:
    """All names and aliases, for the suggestion in error messages."""
    sizes = ((x, y) for x in range(_MAX_BITS) for y in range(_MAX_BITS))
    floats = [f"e{x}m{y}" for x, y in sizes if _valid_exponent_mantissa(x, y)]
    integers = [f"{kind}{bits}" for kind in ("int", "uint") for bits in range(1, 9)]
    return [*integers, *_NAMED_FLOATS, "ue8m0", *floats]


def _integer(name: str, bits: int, *, signed: bool) -> IntegerFormat:
    return IntegerFormat(
        name=name,
        bits=bits,
        signed=signed,
        maximum=float((1 << (bits - signed)) - 1),
        minimum=-float(1 << (bits - 1)) if signed else 0.0,
        smallest_subnormal=1.0,
        unit_roundoff=0.5,
        is_integer=True,
    )


def _float(name: str, exponent_bits: int, mantissa_bits: int, reserved: str) -> FloatFormat:
    # An e0mN magnitude is the integer itself: subnormals of step 2^(min_exponent - mantissa_bits) = 1.
    min_exponent = 2 - (1 << (exponent_bits - 1)) if exponent_bits else mantissa_bits
    reserved_codes = {_RESERVED_NONE: 0, _RESERVED_NAN: 1, _RESERVED_IEEE: 1 << mantissa_bits}[reserved]
    max_code = (1 << (exponent_bits + mantissa_bits)) - 1 - reserved_codes
    exponent_field, mantissa_field = divmod(max_code, 1 << mantissa_bits)
    significand = mantissa_field + (1 << mantissa_bits if exponent_field else 0)
    maximum = significand * 2.0 ** (max(exponent_field, 1) - 1 + min_exponent - mantissa_bits)
    return FloatFormat(
        name=name,
        bits=1 + exponent_bits + mantissa_bits,
        signed=True,
        maximum=maximum,
        minimum=-maximum,
        smallest_subnormal=2.0 ** (min_exponent - mantissa_bits),
        unit_roundoff=2.0 ** -(mantissa_bits + 1) if exponent_bits else 0.5,
        has_nan=reserved != _RESERVED_NONE,
        has_inf=reserved == _RESERVED_IEEE,
        exponent_bits=exponent_bits,
        mantissa_bits=mantissa_bits,
        min_exponent=min_exponent,
        max_code=max_code,
    )


def _exponent_only() -> ExponentFormat:
    return ExponentFormat(
        name="ue8m0",
        bits=8,
        signed=False,
        maximum=2.0**127,
        minimum=2.0**-127,
        smallest_subnormal=2.0**-127,
        unit_roundoff=0.5,
        has_nan=True,
    )


@cache
def element_format(name: str) -> ElementFormat:
    """Return the format called `name` (see the module docstring), one object per canonical name.

    Raises `FormatError` for an unknown name.
    """
    if integer := re.fullmatch(r"(u?)int([1-8])", name):
        return _integer(name, bits=int(integer[2]), signed=not integer[1])
    if name == "ue8m0":
        return _exponent_only()
    if name in _NAMED_FLOATS:
        return _float(name, *_NAMED_FLOATS[name])
    if alias := re.fullmatch(r"(?:fp([1-9]\d?)_)?(e(0|[1-9]\d?)m(0|[1-9]\d?))", name):
        total_bits, short_name = alias[1], alias[2]
        exponent_bits, mantissa_bits = int(alias[3]), int(alias[4])
        consistent = total_bits is None or int(total_bits) == 1 + exponent_bits + mantissa_bits
        if consistent and (canonical := _CANONICAL_NAMES.get(short_name)):
            return element_format(canonical)
        if consistent and _valid_exponent_mantissa(exponent_bits, mantissa_bits):
            if name != short_name:
                return element_format(short_name)
            return _float(name, exponent_bits, mantissa_bits, _RESERVED_NONE)
    rule = (
        "int1…int8, uint1…uint8, fp16, bf16, fp32, ue8m0, e0mN with N in 1…7, or eXmY with X in 1…10 and "
        "3 <= 1 + X + Y <= 16 (as fpB_eXmY: B = 1 + X + Y)"
    )
    raise unknown_name("element format", name, rule, _valid_names())


def scale_format(name: str) -> ElementFormat:
    """Return `element_format(name)` if scales are stored in it, see `SCALE_FORMATS`. Raises `FormatError`."""
    found = element_format(name)
    require_choice("scale format", found.name, SCALE_FORMATS)
    return found
