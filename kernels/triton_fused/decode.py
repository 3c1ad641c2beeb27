# SPDX-License-Identifier: Apache-2.0
# Triton functions, in the subset of Python that Triton compiles.
# ruff: noqa: PLR1714, RET505
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The exact fp32 values of codes, for the tile of :mod:`.dense`.

Formats narrower than 16 bits are decoded by integer arithmetic: it is the same on GPUs without conversions of them
(fp8 has none before sm_89), and Triton's interpreter does it rightly. NaN and subnormals are decoded too.
"""

import triton
import triton.language as tl


@triton.jit
def decode_element(codes, ELEMENT: tl.constexpr):
    """Values of weight codes, uint8: int4, int8, uint4, uint8, fp4_e2m1 or fp8_e4m3."""
    if ELEMENT == "int4":
        return ((codes ^ 8).to(tl.int8) - 8).to(tl.float32)  # extends the sign: 8…15 become -8…-1
    elif ELEMENT == "int8":
        return codes.to(tl.int8, bitcast=True).to(tl.float32)
    elif ELEMENT == "fp4_e2m1":
        # Exponent and mantissa are those of the fp16 number 2^14 times smaller, subnormals included.
        bits = ((codes & 8).to(tl.uint16) << 12) | ((codes & 7).to(tl.uint16) << 9)
        return bits.to(tl.float16, bitcast=True).to(tl.float32) * 16384.0
    elif ELEMENT == "fp8_e4m3":
        return decode_e4m3(codes)
    else:
        tl.static_assert(ELEMENT == "uint4" or ELEMENT == "uint8")
        return codes.to(tl.float32)


@triton.jit
def decode_scale(stored, SCALE_FORMAT: tl.constexpr):
    """Values of scales: fp32, fp16 and bf16 as such, fp8_e4m3 and ue8m0 as uint8 codes."""
    if SCALE_FORMAT == "ue8m0":
        # The exponent field of an fp32, but 0 is 2^-127 (a subnormal there) and 255 is NaN.
        exponent = stored.to(tl.uint32)
        bits = tl.where(exponent == 0, 0x00400000, tl.where(exponent == 255, 0x7FC00000, exponent << 23))
        return bits.to(tl.float32, bitcast=True)
    elif SCALE_FORMAT == "fp8_e4m3":
        return decode_e4m3(stored)
    else:
        return stored.to(tl.float32)


@triton.jit
def decode_e4m3(codes):
    """Values of fp8_e4m3 codes, uint8."""
    # Exponent and mantissa are those of the fp16 number 2^8 times smaller, subnormals included.
    bits = ((codes & 0x80).to(tl.uint16) << 8) | ((codes & 0x7F).to(tl.uint16) << 7)
    value = bits.to(tl.float16, bitcast=True).to(tl.float32) * 256.0
    return tl.where((codes & 0x7F) == 0x7F, float("nan"), value)
