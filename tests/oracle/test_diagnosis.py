# SPDX-License-Identifier: Apache-2.0
"""Where wrong elements lie, what explains them, and honesty where nothing does.

Wrong kernels with a known fault class are diagnosed in tests/wrong_kernels.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from humming_conformance.formats import element_format
from humming_conformance.oracle.comparison import Comparison, compare
from humming_conformance.oracle.contract import Contract
from humming_conformance.oracle.diagnosis import Diagnosis, diagnose
from humming_conformance.problems import Case, build_operands, parse_case
from tests.wrong_kernels import model

Codes = NDArray[np.uint16]
DENSE = parse_case("dense-w_int4.g16.bf16-a_bf16-m19.n40.k64-random")
MOE = parse_case("moe_indexed-w_int4.g16.bf16-a_bf16-m20.n16.k32.e4.top2-random")
STRICT = Contract("bf16")


def diagnosis_of(case: Case, spoil: Callable[[Codes], None]) -> Diagnosis:
    """The diagnosis of a right output after ``spoil`` changed its codes in place."""
    operands = build_operands(case)
    output = model.run(case, operands, STRICT)
    spoil(output)
    return diagnose(case, operands, compare(case, operands, STRICT, output, exact=False))


def noise(output: Codes, place: tuple[object, ...]) -> None:
    """Replace codes by those of unrelated numbers."""
    rng = np.random.default_rng(7)
    values = rng.standard_normal(output[place].shape) * 37
    output[place] = element_format("bf16").encode(values)


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ((0, slice(16, 19)), "all in the last 3 of 19 rows, beyond the last multiple of 8"),
        ((0, slice(18, 19)), "all in the last row"),
        ((0, slice(None), slice(32, 40)), "all in the last 8 of 40 columns, beyond the last multiple of 16"),
        ((0, slice(None), slice(39, 40)), "all in the last column"),
    ],
)
def test_tails(place: tuple[object, ...], sentence: str) -> None:
    """Wrong elements beyond the last whole tile only are a tail, and are said to be there."""
    diagnosis = diagnosis_of(DENSE, lambda output: noise(output, place))
    assert diagnosis.fault_class == "tail"
    assert sentence in diagnosis.sentences


def test_noise_everywhere_is_unknown() -> None:
    """Where nothing explains the output the class is unknown."""
    diagnosis = diagnosis_of(DENSE, lambda output: noise(output, (...,)))
    assert diagnosis.fault_class == "unknown"


def test_one_expert_and_one_slot_are_named() -> None:
    """Errors in one expert's rows, or in one slot, are said to be there."""
    expert = build_operands(MOE).expert
    assert expert is not None

    def spoil_expert(output: Codes) -> None:
        noise(output, (0, np.flatnonzero(expert[0].ravel() == 2)))

    assert "all in expert 2" in diagnosis_of(MOE, spoil_expert).sentences
    assert "all in slot 1" in diagnosis_of(MOE, lambda output: noise(output, (0, slice(1, None, 2)))).sentences


def test_rounding_is_told_from_truncation() -> None:
    """Small errors of both signs, and of one sign towards zero, are precision, with different sentences."""

    def shift(output: Codes, *, towards_zero: bool) -> None:
        steps = 3 if towards_zero else 3 * (-1) ** np.arange(output.size).reshape(output.shape)
        output[...] = (output.astype(np.int64) - steps).astype(np.uint16)

    both = diagnosis_of(DENSE, lambda output: shift(output, towards_zero=False))
    one = diagnosis_of(DENSE, lambda output: shift(output, towards_zero=True))
    assert both.fault_class == one.fault_class == "precision"
    assert any("rounding" in sentence for sentence in both.sentences)
    assert any("truncation" in sentence for sentence in one.sentences)


def test_nothing_wrong_is_nothing_to_diagnose() -> None:
    """A right output has no fault and no sentences."""
    assert diagnosis_of(DENSE, lambda _output: None) == Diagnosis("unknown", ())


def test_below_the_quality_floor_is_precision() -> None:
    """Within a loose bound but below the quality floor: precision, and the sentence says so."""
    case = parse_case("dense-w_int8.channel.bf16-a_bf16-m16.n16.k256-random")
    operands = build_operands(case)
    loose = Contract("bf16", weight_input="fp8_e4m3", sources={"weight_input": "this test"})
    comparison = compare(case, operands, loose, model.run(case, operands, loose), exact=False)
    diagnosis = diagnose(case, operands, comparison)
    assert diagnosis.fault_class == "precision"
    assert "quality floor" in diagnosis.sentences[0]


def test_nan_without_poison_is_unknown() -> None:
    """NaN in finite results, with no poisoned expert to take it from, is told and not explained."""

    def spoil(output: Codes) -> None:
        output[0, 3:5, 3:5] = element_format("bf16").encode(np.nan)

    diagnosis = diagnosis_of(DENSE, spoil)
    assert diagnosis.fault_class == "unknown"
    assert "NaN or infinity where results are finite" in diagnosis.sentences


def test_zero_references_do_not_trip_the_diagnosis() -> None:
    """An output that is wrong only where the right result is zero is diagnosed without dividing by it."""
    case = parse_case("dense-w_int4.g16.bf16-a_bf16-m4.n8.k32-readout")
    operands = build_operands(case)
    output = model.run(case, operands, STRICT)
    zeros = output & 0x7FFF == 0
    output[zeros] = element_format("bf16").encode(5.0)
    comparison: Comparison = compare(case, operands, STRICT, output, exact=True)
    assert comparison.wrong_count == np.count_nonzero(zeros)
    diagnosis = diagnose(case, operands, comparison)
    assert diagnosis.fault_class == "layout"
    assert diagnosis.sentences[0] == "only weights of code 0 are wrong"
