# SPDX-License-Identifier: Apache-2.0
"""The exponent-only scale format: rounding, limits and the values it does not have."""

import numpy as np
import pytest

from humming_conformance.formats import element_format


def test_ue8m0_rounding() -> None:
    """ue8m0 rounds the exponent as asked, ties up, and keeps fp32 subnormals below 1.5 * 2^-127 at 2^-127."""
    fmt = element_format("ue8m0")
    smallest = 2.0**-127
    cases = {  # value: exponents for nearest, up, down
        1.0: (0, 0, 0),
        np.nextafter(1.0, 2.0): (0, 1, 0),
        np.nextafter(1.5, 1.0): (0, 1, 0),
        1.5: (1, 1, 0),
        3.0: (2, 2, 1),
        np.nextafter(2.0, 1.0): (1, 1, 0),
        0.75: (0, 0, -1),
        1.25 * smallest: (-127, -126, -127),
        np.nextafter(1.5 * smallest, 0.0): (-127, -126, -127),
        1.5 * smallest: (-126, -126, -127),
        smallest / 4: (-127, -127, -127),
        0.0: (-127, -127, -127),
        1.25 * 2.0**126: (126, 127, 126),
    }
    for value, exponents in cases.items():
        for rounding, exponent in zip(("nearest", "up", "down"), exponents, strict=True):
            for overflow in ("saturate", "native"):
                code = fmt.encode(value, rounding=rounding, overflow=overflow)
                assert code == exponent + 127, (value, rounding)


def test_ue8m0_limits() -> None:
    """Beyond 2^127 ue8m0 saturates or gives NaN, except rounded down; it refuses negative values."""
    fmt = element_format("ue8m0")
    values = [1.25 * 2.0**127, 1.5 * 2.0**127, 2.0**128, 1e300, np.inf]
    assert fmt.encode(values).tolist() == [254] * 5
    assert fmt.encode(values, overflow="native").tolist() == [254, 255, 255, 255, 255]
    assert fmt.encode(values, overflow="native", rounding="up").tolist() == [255] * 5
    assert fmt.encode(values, overflow="native", rounding="down").tolist() == [254, 254, 254, 254, 255]
    assert np.isnan(fmt.decode(255))
    assert fmt.decode(np.arange(255)).tolist() == [2.0 ** (code - 127) for code in range(255)]
    assert fmt.spacing([1.0, 3.0, 2.0**-130]).tolist() == [1.0, 2.0, 2.0**-127]
    with pytest.raises(ValueError, match="no sign"):
        fmt.encode([1.0, -1.0])
    assert fmt.encode(-0.0) == 0
