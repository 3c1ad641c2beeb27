# SPDX-License-Identifier: Apache-2.0
"""Activation quantization, in the float32 steps of a GPU quantizer, so that results compare bit for bit.

Every operation is IEEE float32, rounded to nearest even, subnormals kept:

1. x is rounded to float32 (nothing happens to fp16 and bf16 values).
2. Dynamic scale of a token or group: raw = max(absmax / element maximum, float32(1e-30)).
3. The stored scale: fp32 keeps raw; e4m3 and ue8m0 round it up (towards +inf), saturating.
   A static tensor scale is given, in fp32.
4. r = 1 / stored scale; y = x * r (a product with the rounded reciprocal, not a quotient).
5. The code is y rounded to nearest even in the element format, saturating (int8 to [-128, 127], int4 to
   [-8, 7]; floats to ± maximum).

These are the semantics of Humming's activation operator (`quant_group` in its `process_input` kernel).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from humming_conformance.formats.codec import Codes, ElementFormat, Values
from humming_conformance.formats.elements import element_format
from humming_conformance.formats.errors import FormatError, require_choice
from humming_conformance.formats.granularity import Granularity

_SCALE_FLOOR = np.float32(1e-30)
_SCALE_FORMATS = ("fp32", "fp8_e4m3", "ue8m0")


@dataclass(frozen=True, eq=False)
class QuantizedActivation:
    """Quantized activations: `codes` (M, K) and `scale_codes` (granularity.scale_shape(M, K))."""

    codes: Codes
    scale_codes: Codes


def quantize_activation(
    x: NDArray[np.floating[Any]],
    *,
    element: str,
    granularity: Granularity,
    scale_format: str = "fp32",
    static_scale: float | None = None,
) -> QuantizedActivation:
    """Quantize finite `x` (M, K) by the steps of the module docstring.

    `granularity` is `tensor`, with the positive `static_scale` (rounded to fp32), or `token` or a group,
    whose scales are computed. Raises `FormatError` for another granularity, for a scale format other than
    fp32, e4m3 and ue8m0 (static: fp32 only) and for a missing or superfluous `static_scale`; `ValueError`
    for `x` that is not finite in float32 or not a matrix.
    """
    element_fmt = element_format(element)
    scale_fmt = element_format(scale_format)
    _check_scheme(element_fmt, scale_fmt, granularity, static_scale)
    with np.errstate(over="ignore"):
        x32 = x.astype(np.float32)
    if x32.ndim != 2 or 0 in x32.shape or not np.isfinite(x32).all():
        raise ValueError(f"x must be finite in float32 and of shape (M, K) without empty axes, not {x.shape}")

    if static_scale is not None:
        scale_codes = scale_fmt.encode(np.full((1, 1), static_scale))
    else:
        absmax = granularity.maximum(np.abs(x32))
        raw_scale = np.maximum(absmax / np.float32(element_fmt.maximum), _SCALE_FLOOR)
        scale_codes = scale_fmt.encode(raw_scale, rounding="up")
    # Every value of the three scale formats is a float32.
    reciprocal = np.float32(1.0) / scale_fmt.decode(scale_codes).astype(np.float32)
    with np.errstate(over="ignore"):
        scaled = x32 * granularity.expand(reciprocal, *x32.shape)
    return QuantizedActivation(element_fmt.encode(scaled), scale_codes)


def dequantize_activation(
    quantized: QuantizedActivation, *, element: str, granularity: Granularity, scale_format: str = "fp32"
) -> Values:
    """Return element * scale as float64 (M, K), exactly. Raises `ValueError` if the scales do not fit."""
    values = element_format(element).decode(quantized.codes)
    scale = element_format(scale_format).decode(quantized.scale_codes)
    with np.errstate(invalid="ignore"):
        return values * granularity.expand(scale, *values.shape)


def _check_scheme(
    element: ElementFormat, scale_format: ElementFormat, granularity: Granularity, static_scale: float | None
) -> None:
    require_choice("activation scale format", scale_format.name, _SCALE_FORMATS)
    if not element.signed or element.maximum <= 0.0:
        raise FormatError(f"activations need an element with values of both signs, not {element.name}")
    if granularity.kind not in ("tensor", "token", "group"):
        raise FormatError(f"activations are quantized per tensor, token or group (g128), not {granularity}")
    if (granularity.kind == "tensor") != (static_scale is not None):
        raise FormatError("static_scale belongs to granularity tensor, and to it alone")
    if static_scale is not None:
        if scale_format.name != "fp32":
            raise FormatError(f"a static tensor scale is stored in fp32, not {scale_format.name}")
        if not 0.0 < np.float32(static_scale) < np.inf:
            raise ValueError(f"static_scale must be positive and finite in float32, not {static_scale}")
