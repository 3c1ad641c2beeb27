# SPDX-License-Identifier: Apache-2.0
"""The oracle: exact reference, error bound from a contract, comparison and diagnosis."""

from __future__ import annotations

from humming_conformance.oracle.bound import Bound, bound, round_output
from humming_conformance.oracle.comparison import Comparison, WrongElement, compare, differing_bits, is_exact
from humming_conformance.oracle.contract import Contract, ContractError
from humming_conformance.oracle.diagnosis import Diagnosis, diagnose
from humming_conformance.oracle.quality import Quality
from humming_conformance.oracle.reference import Reference, reference
from humming_conformance.oracle.region import Region, judged_region
from humming_conformance.oracle.spot_check import spot_check

__all__ = [
    "Bound",
    "Comparison",
    "Contract",
    "ContractError",
    "Diagnosis",
    "Quality",
    "Reference",
    "Region",
    "WrongElement",
    "bound",
    "compare",
    "diagnose",
    "differing_bits",
    "is_exact",
    "judged_region",
    "reference",
    "round_output",
    "spot_check",
]
