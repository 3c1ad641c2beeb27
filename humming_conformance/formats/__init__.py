# SPDX-License-Identifier: Apache-2.0
"""Element formats, packing and quantizers: exact, in NumPy, and independent of every library under test."""

from humming_conformance.formats.activations import (
    QuantizedActivation,
    dequantize_activation,
    quantize_activation,
)
from humming_conformance.formats.codec import (
    Codes,
    ElementFormat,
    ExponentFormat,
    FloatFormat,
    IntegerFormat,
    Overflow,
    Rounding,
    Values,
)
from humming_conformance.formats.elements import SCALE_FORMATS, element_format, scale_format
from humming_conformance.formats.errors import FormatError
from humming_conformance.formats.granularity import Granularity, parse_granularity
from humming_conformance.formats.packing import pack_bits, packed_words, unpack_bits
from humming_conformance.formats.weights import (
    QuantizedWeight,
    SecondScale,
    ZeroPoint,
    dequantize_weight,
    quantize_weight,
)

__all__ = [
    "SCALE_FORMATS",
    "Codes",
    "ElementFormat",
    "ExponentFormat",
    "FloatFormat",
    "FormatError",
    "Granularity",
    "IntegerFormat",
    "Overflow",
    "QuantizedActivation",
    "QuantizedWeight",
    "Rounding",
    "SecondScale",
    "Values",
    "ZeroPoint",
    "dequantize_activation",
    "dequantize_weight",
    "element_format",
    "pack_bits",
    "packed_words",
    "parse_granularity",
    "quantize_activation",
    "quantize_weight",
    "scale_format",
    "unpack_bits",
]
