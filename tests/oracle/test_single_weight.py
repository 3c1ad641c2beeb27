# SPDX-License-Identifier: Apache-2.0
"""Single weights tell another scale from another code and another zero point, and chance from both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from humming_conformance.oracle.comparison import compare
from humming_conformance.oracle.contract import Contract
from humming_conformance.oracle.diagnosis import Diagnosis, diagnose
from humming_conformance.problems import Operands, build_operands, parse_case
from tests.wrong_kernels import model

CASE = "dense-w_{}-a_bf16-m16.n64.k128-readout"


def _diagnosis(scheme: str, **wrong: np.ndarray) -> Diagnosis:
    """The diagnosis of a kernel that is right for operands with the arrays ``wrong`` in place of theirs."""
    case = parse_case(CASE.format(scheme))
    operands = build_operands(case)
    contract = Contract("bf16")
    misled: Operands = replace(operands, **wrong)
    return diagnose(case, operands, compare(case, operands, contract, model.run(case, misled, contract), exact=True))


def _shuffled(name: str, scheme: str) -> np.ndarray:
    """An operand whose numbers of each expert have changed places at random."""
    array = getattr(build_operands(parse_case(CASE.format(scheme))), name)
    return np.random.default_rng(3).permuted(array.reshape(len(array), -1), axis=1).reshape(array.shape)


@pytest.mark.parametrize(
    ("scheme", "name", "fault_class"),
    [
        ("int4.g16.bf16", "weight_scale", "scale index"),
        ("fp4_e2m1.g16.fp8_e4m3.s2tensor", "weight_scale", "scale index"),
        ("int8.channel.bf16", "weight_scale", "scale index"),
        ("uint4.g16.bf16.zp", "zero_point", "zero point"),
        ("int4.g16.bf16", "weight", "layout"),
        ("fp4_e2m1.g16.fp8_e4m3", "weight", "layout"),
    ],
)
def test_places_exchanged_at_random(scheme: str, name: str, fault_class: str) -> None:
    """No rule of places explains random ones, but each weight that was used tells what it was made of."""
    diagnosis = _diagnosis(scheme, **{name: _shuffled(name, scheme)})
    assert diagnosis.fault_class == fault_class, diagnosis.sentences


def test_codes_and_scales_at_once_stay_unknown() -> None:
    """Where both are wrong neither explains the weights, and none is named."""
    scheme = "int4.g16.bf16"
    wrong = {name: _shuffled(name, scheme) for name in ("weight", "weight_scale")}
    assert _diagnosis(scheme, **wrong).fault_class == "unknown"
