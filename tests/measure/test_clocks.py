# SPDX-License-Identifier: Apache-2.0
"""What in a GPU's readings keeps a time from counting."""

from __future__ import annotations

import pytest

from humming_conformance.measure.clocks import Reading, disturbances

STEADY = Reading(sm_mhz=1980, memory_mhz=3201, watts=600.0, celsius=60, reasons=0)


def _reading(**fields):
    return Reading(**{**vars(STEADY), **fields})


@pytest.mark.parametrize(
    ("readings", "told"),
    [
        ([], []),
        ([STEADY, STEADY], []),
        ([STEADY, _reading(sm_mhz=1950)], []),
        ([STEADY, _reading(reasons=0x1)], []),
        ([STEADY, _reading(reasons=0x4)], []),
        ([STEADY, _reading(reasons=0x40)], ["hardware thermal slowdown"]),
        ([_reading(reasons=0x80), _reading(reasons=0x20)], ["software thermal slowdown", "power brake"]),
        ([STEADY, _reading(sm_mhz=1700)], ["SM clock between 1700 and 1980 MHz"]),
        ([STEADY, _reading(memory_mhz=2600)], ["memory clock between 2600 and 3201 MHz"]),
    ],
)
def test_disturbances(readings, told):
    """Throttling and clocks that moved are told; idling and the power cap are how a GPU works."""
    assert disturbances(readings) == told
