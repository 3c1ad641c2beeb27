# SPDX-License-Identifier: Apache-2.0
"""Weight quantization: w ≈ (element - zero_point) * scale * second_scale.

`quantize_weight` makes operands; it is a definition, not a model of one library's quantizer. With `largest`
the magnitude that the element format reaches (its maximum; for `int1`, which has no positive value, 1), all
in float64 and per group (whatever shares a scale):

1. Real scale: symmetric absmax / largest; with a zero point (max(w, 0) - min(w, 0)) / (maximum - minimum).
2. Second-level scale: (largest real scale of the tensor or channel) / (maximum of the scale format), which is
   absmax / (element maximum * scale maximum) as in NVFP4, rounded to nearest in `second_scale_format`;
   the real scales are divided by it. Scale formats with the range of fp32 need no such help to use their
   range, and a divisor of 2^127 would leave only subnormals: there the largest scale becomes 1.
3. Stored scale: the real scale rounded by `scale_rounding`, saturating. A group of zeros gets the scale 1;
   one whose scale would round to zero gets the smallest positive scale. So do second-level scales.
4. Zero point: minimum - min(w, 0) / (scale * second_scale); `integer` rounds it to nearest and keeps it in
   the element's range, `float` rounds it to nearest in `zero_point_format`.
5. Code: w / (scale * second_scale) rounded to nearest, plus an integer zero point, saturating; with a float
   zero point the sum is rounded instead.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from humming_conformance.formats import elements
from humming_conformance.formats.codec import Codes, ElementFormat, FloatFormat, Rounding, Values
from humming_conformance.formats.elements import element_format
from humming_conformance.formats.errors import FormatError, require_choice
from humming_conformance.formats.granularity import Granularity, parse_granularity

_FP32_RANGE = 2.0**127  # fp32, bf16 and ue8m0 reach it; fp16, e5m2 and e4m3 do not

ZeroPoint = Literal["none", "integer", "float"]
SecondScale = Literal["none", "tensor", "channel"]


@dataclass(frozen=True, eq=False)
class QuantizedWeight:
    """A quantized weight (..., N, K), unpacked.

    codes        (..., N, K) element codes
    scale_codes  (..., *granularity.scale_shape(N, K)) scale codes
    zero_point   like scale_codes, or None: an unsigned integer dtype holds integer zero points, float32 holds
                 float ones (already rounded to their format)
    second_scale float32 (..., 1, 1) per tensor, (..., N, 1) per channel, or None
    """

    codes: Codes
    scale_codes: Codes
    zero_point: NDArray[Any] | None = None
    second_scale: NDArray[np.float32] | None = None


def quantize_weight(
    weight: Values,
    *,
    element: str,
    scale_format: str,
    granularity: Granularity,
    zero_point: ZeroPoint = "none",
    second_scale: SecondScale = "none",
    scale_rounding: Rounding = "nearest",
    zero_point_format: str = "fp16",
    second_scale_format: str = "fp32",
) -> QuantizedWeight:
    """Quantize finite float64 `weight` (..., N, K) by the steps of the module docstring.

    `zero_point_format` applies to float zero points only and `second_scale_format` to second-level scales
    only; both are `fp32`, `fp16` or `bf16`.

    Raises `FormatError` for formats that do not go together: an integer zero point needs a `uintN` element,
    a float one an integer or `e0mN` element, no zero point a signed element; a channel-wise second-level
    scale needs `channel` or `group` scales. Raises `ValueError` for a weight that is empty or not finite.
    """
    element_fmt = element_format(element)
    scale_fmt = elements.scale_format(scale_format)
    _check_scheme(element_fmt, granularity, zero_point, second_scale)
    if weight.ndim < 2 or 0 in weight.shape or not np.isfinite(weight).all():
        raise ValueError(f"weight must be finite and (..., N, K) without empty axes, not {weight.shape}")
    rows, columns = weight.shape[-2:]

    lowest = -granularity.maximum(-weight)
    highest = granularity.maximum(weight)
    if zero_point == "none":
        largest = element_fmt.maximum or -element_fmt.minimum
        real_scale = np.maximum(highest, -lowest) / largest
    else:
        real_scale = (highest - lowest) / (element_fmt.maximum - element_fmt.minimum)

    stored_second = None
    second = np.ones(1)
    if second_scale != "none":
        top = parse_granularity(second_scale).maximum(real_scale)
        second_fmt = _wide_format("second_scale_format", second_scale_format)
        top_stored = scale_fmt.maximum if scale_fmt.maximum < _FP32_RANGE else 1.0
        second = second_fmt.decode(_encode_scale(top / top_stored, second_fmt, "nearest"))
        stored_second = second.astype(np.float32)
    scale_codes = _encode_scale(real_scale / second, scale_fmt, scale_rounding)
    scale = scale_fmt.decode(scale_codes) * second
    ratio = weight / granularity.expand(scale, rows, columns)

    stored_zero_point: NDArray[Any] | None = None
    if zero_point == "none":
        codes = element_fmt.encode(ratio)
    elif zero_point == "integer":
        stored_zero_point = element_fmt.encode(-lowest / scale)
        codes = element_fmt.encode(np.rint(ratio) + granularity.expand(stored_zero_point, rows, columns))
    else:
        zero_point_fmt = _wide_format("zero_point_format", zero_point_format)
        real_zero_point = zero_point_fmt.decode(zero_point_fmt.encode(element_fmt.minimum - lowest / scale))
        stored_zero_point = real_zero_point.astype(np.float32)
        codes = element_fmt.encode(ratio + granularity.expand(real_zero_point, rows, columns))
    return QuantizedWeight(codes, scale_codes, stored_zero_point, stored_second)


def dequantize_weight(
    quantized: QuantizedWeight, *, element: str, scale_format: str, granularity: Granularity
) -> Values:
    """Return (element - zero_point) * scale * second_scale as float64 (..., N, K).

    Exact while the significands of difference and scales hold at most 53 bits together. That is always so
    without a second-level scale or float zero point, and for NVFP4; fp32 scales with an fp32 second-level
    scale can round, in the last bits of float64. NaN and infinity in scales propagate.

    Raises `ValueError` for scales whose shape does not fit `granularity`.
    """
    values = element_format(element).decode(quantized.codes)
    rows, columns = values.shape[-2:]
    with np.errstate(invalid="ignore"):
        if quantized.zero_point is not None:
            values = values - granularity.expand(quantized.zero_point, rows, columns)
        scale = elements.scale_format(scale_format).decode(quantized.scale_codes)
        values = values * granularity.expand(scale, rows, columns)
        if quantized.second_scale is not None:
            values = values * quantized.second_scale
    return values


def _check_scheme(
    element: ElementFormat, granularity: Granularity, zero_point: ZeroPoint, second_scale: SecondScale
) -> None:
    require_choice("zero point", zero_point, ("none", "integer", "float"))
    require_choice("second-level scale", second_scale, ("none", "tensor", "channel"))
    if granularity.kind == "token":
        raise FormatError("granularity token is for activations: use channel for one scale per weight row")
    fixed_point = element.is_integer or (isinstance(element, FloatFormat) and element.exponent_bits == 0)
    if zero_point == "none" and not element.signed:
        raise FormatError(f"{element.name} without a zero point has no negative values: use intN or add one")
    if zero_point == "integer" and not (element.is_integer and not element.signed):
        raise FormatError(f"an integer zero point needs a uintN element, not {element.name}")
    if zero_point == "float" and not fixed_point:
        raise FormatError(f"a float zero point needs an integer or e0mN element, not {element.name}")
    if second_scale == "channel" and granularity.kind not in ("channel", "group"):
        raise FormatError(f"a channel second-level scale needs channel or group scales, not {granularity}")


def _wide_format(what: str, name: str) -> ElementFormat:
    require_choice(what, name, ("fp32", "fp16", "bf16"))
    return element_format(name)


def _encode_scale(real_scale: Values, scale_format: ElementFormat, rounding: Rounding) -> Codes:
    """Step 3 of the module docstring."""
    nonzero = np.where(real_scale == 0.0, 1.0, real_scale)
    rounded = scale_format.decode(scale_format.encode(nonzero, rounding=rounding))
    return scale_format.encode(np.maximum(rounded, scale_format.smallest_subnormal))
