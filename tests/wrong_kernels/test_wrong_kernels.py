# SPDX-License-Identifier: Apache-2.0
"""The judge is judged: it catches every wrong kernel, passes every correct one, and says so in its table."""

from __future__ import annotations

import dataclasses
import re

import pytest

from humming_conformance.oracle.contract import Contract
from humming_conformance.oracle.diagnosis import diagnose
from tests.wrong_kernels import catch_table
from tests.wrong_kernels.correct import CORRECT_KERNELS, UNSEEN_KERNELS
from tests.wrong_kernels.faults import WRONG_KERNELS
from tests.wrong_kernels.kernels import ModelKernel

_MEND = "run `python -m tests.wrong_kernels.catch_table`"
#: What the errors of these look like says nothing about their cause.
_UNDIAGNOSED = {"nan_read_as_zero", "overflow_saturates", "scales_cut_to_range"}


def _table_lines() -> list[str]:
    return catch_table.PATH.read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module", params=WRONG_KERNELS, ids=lambda kernel: kernel.name)
def wrong(request: pytest.FixtureRequest) -> catch_table.Row:
    """A wrong kernel, tried in every way."""
    return catch_table.try_kernel(request.param)


def test_wrong_kernel_is_caught(wrong: catch_table.Row) -> None:
    """Every wrong kernel is caught by the check that should show it, and the table says by which."""
    if wrong.kernel.shown_by == "regimes":
        assert any(wrong.regimes.values())
    else:
        assert wrong.kernel.shown_by in wrong.relations
    lines = _table_lines()
    assert catch_table.wrong_line(wrong) in lines, _MEND
    assert catch_table.flat_line(wrong) in lines, _MEND


def test_diagnosis_names_the_fault(wrong: catch_table.Row) -> None:
    """What one-hot rows read back names the fault class; precision and the rest show in some regime."""
    diagnosed = {
        regime: diagnose(case, catch_table.operands_of(case), wrong.comparisons[regime])
        for regime, case in wrong.kernel.cases().items()
        if wrong.regimes[regime]
    }
    fault_class = wrong.kernel.fault_class
    if "readout" in diagnosed and fault_class != "precision":
        assert diagnosed["readout"].fault_class == fault_class, diagnosed["readout"]
        assert diagnosed["readout"].sentences
    if diagnosed:
        expected = "unknown" if wrong.kernel.name in _UNDIAGNOSED else fault_class
        assert expected in {diagnosis.fault_class for diagnosis in diagnosed.values()}


@pytest.mark.parametrize("kernel", CORRECT_KERNELS, ids=lambda kernel: kernel.name)
def test_correct_kernel_passes(kernel: ModelKernel) -> None:
    """Every correct kernel passes all regimes and relations by its contract, and the table says so."""
    row = catch_table.try_kernel(kernel)
    assert [regime for regime, caught in row.regimes.items() if caught] == []
    assert row.relations == ()
    assert catch_table.correct_line(row) in _table_lines(), _MEND


@pytest.mark.parametrize("kernel", UNSEEN_KERNELS, ids=lambda kernel: kernel.name)
def test_unseen_kernel_is_listed_as_such(kernel: ModelKernel) -> None:
    """A violation that the table calls invisible is caught by nothing; else it belongs among the wrong."""
    row = catch_table.try_kernel(kernel)
    assert not row.caught
    assert catch_table.unseen_line(row) in _table_lines(), _MEND


def test_table_counts_its_own_rows() -> None:
    """The table's totals are the sums of its columns, and it has a row for every kernel and no other."""
    tables = re.findall(r"(?:^\|.*\n)+", catch_table.PATH.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(tables) == 4, _MEND
    expected = [WRONG_KERNELS, WRONG_KERNELS, CORRECT_KERNELS, UNSEEN_KERNELS]
    for text, kernels in zip(tables, expected, strict=True):
        rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in text.splitlines()[2:]]
        totals = rows.pop() if rows[-1][0].startswith("**") else None
        assert [row[0] for row in rows] == [kernel.name for kernel in kernels], _MEND
        if totals is not None:
            marks = [column for column, total in enumerate(totals) if total.isdigit()]
            counted = [sum(row[column] not in {"", "."} for row in rows) for column in marks]
            assert counted == [int(totals[column]) for column in marks], _MEND


def test_every_contract_field_is_violated() -> None:
    """Each field of the contract has a kernel that violates it alone: caught, or listed as invisible."""
    fields = {field.name for field in dataclasses.fields(Contract)} - {"sources"}
    violated = {kernel.violates for kernel in (*WRONG_KERNELS, *UNSEEN_KERNELS)} - {""}
    assert violated == fields


def test_every_fault_class_has_a_kernel() -> None:
    """Each fault class that a kernel's output can show has a wrong kernel."""
    classes = {
        "layout",
        "scale index",
        "zero point",
        "tail",
        "wrong expert",
        "unowned write",
        "precision",
        "race",
    }
    assert {kernel.fault_class for kernel in WRONG_KERNELS} == classes


def test_names_are_unique_words() -> None:
    """Kernel names are unique and fit into subjects."""
    names = [kernel.name for kernel in (*WRONG_KERNELS, *CORRECT_KERNELS, *UNSEEN_KERNELS)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in names)
