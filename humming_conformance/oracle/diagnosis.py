# SPDX-License-Identifier: Apache-2.0
"""From wrong elements to a likely fault class: where they lie, and which misreading explains them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from humming_conformance.formats import element_format
from humming_conformance.oracle.comparison import Comparison
from humming_conformance.oracle.hypotheses import (
    SAMPLE,
    FaultClass,
    Sample,
    best_hypothesis,
    draw_sample,
)
from humming_conformance.problems import Case, Operands

_TILES = (8, 16, 32, 64, 128)
#: Rows at the end of an expert's rows that may be one cut tile.
_CUT_TILE = 16
#: Errors up to fp8 e4m3's unit roundoff, relative to results, look like rounding rather than a misread
#: operand.
_ROUNDING_LIKE = 2.0**-4


@dataclass(frozen=True)
class Diagnosis:
    """The likely fault class (``unknown`` if nothing points to one) and why, most telling sentence first."""

    fault_class: FaultClass
    sentences: tuple[str, ...]


def diagnose(case: Case, operands: Operands, comparison: Comparison) -> Diagnosis:
    """Explain the wrong elements of a comparison; each sentence stands for itself.

    The class comes from the codes that alone are decoded wrongly, else from a misreading that reproduces what
    the kernel stored, else from where the wrong elements lie, else from what the errors look like.
    """
    if not comparison.wrong_count:
        if comparison.quality is None or comparison.quality.passed:
            return Diagnosis("unknown", ())
        return Diagnosis("precision", ("no element is beyond its bound, but all together are below the quality floor",))
    places = _Places(case, operands, comparison)
    tail, others = places.tail(), places.common()
    sample = draw_sample(case, operands, comparison)
    if not sample.got.size:
        fault_class, sentence = _non_finite(case, operands, comparison)
        return Diagnosis("tail" if tail else fault_class, tuple(filter(None, (tail, sentence, *others))))
    codes = _codes(case, operands, sample)
    hypothesis = best_hypothesis(case, operands, comparison, sample)
    looks, look = _looks(comparison, sample)
    explanation = ""
    if hypothesis is not None:
        sampled = "sampled " if sample.got.size == SAMPLE else ""
        explanation = f"{hypothesis.sentence} (explains {hypothesis.share:.0%} of {sample.got.size} {sampled}elements)"
    fault_class = looks
    if codes:
        fault_class = "layout"
    elif tail and (hypothesis is None or hypothesis.fault_class in ("race", "layout")):
        fault_class = "tail"
    elif hypothesis is not None:
        fault_class = hypothesis.fault_class
    return Diagnosis(fault_class, tuple(filter(None, (codes, explanation, tail, *others, look))))


class _Places:
    """Where wrong elements lie."""

    def __init__(self, case: Case, operands: Operands, comparison: Comparison) -> None:
        self.case = case
        self.operands = operands
        region = comparison.region
        # A row that must be NaN as a whole can't show where a fault of finite numbers lies.
        self.rows = int(np.isfinite(comparison.expected).any(axis=(0, 2)).sum())
        launch, row, column = np.nonzero(comparison.wrong)
        self.launch, self.row, self.column = launch, region.rows[row], region.columns[column]
        self.token, self.slot = np.divmod(self.row, case.problem.top_k)

    def tail(self) -> str:
        """A sentence if all lie in rows or columns beyond the last whole tile, else empty."""
        problem = self.case.problem
        if self.operands.expert is not None:
            return _beyond("column", "columns", self.column, problem.n)
        rows = _beyond("row", "rows", self.row, problem.rows)
        return rows or _beyond("column", "columns", self.column, problem.n)

    def common(self) -> list[str]:
        """What the wrong elements have in common, beside their being in a tail."""
        problem, operands = self.case.problem, self.operands
        found = []
        if operands.expert is not None:
            expert = operands.expert[self.launch, self.token, self.slot]
            found += _one_of("expert", "experts", expert, len(np.unique(operands.expert)))
            found += _one_of("slot", "slots", self.slot, problem.top_k)
            found += self._end_of_experts(operands.expert)
        found += _one_of("launch", "launches", self.launch, operands.launches)
        found += _one_of("row", "rows", self.row, self.rows)
        found += _one_of("column", "columns", self.column, problem.n)
        position = self._positions()
        if position is not None:
            found += self._along_k(position)
        return found

    def _end_of_experts(self, experts: NDArray[np.int32]) -> list[str]:
        left, count = _rows_left(experts.reshape(len(experts), -1))
        mine = left[self.launch, self.row]
        if mine.max() <= _CUT_TILE and (mine < count[self.launch, self.row]).all():
            return [f"all in the last {mine.max()} rows of their experts"]
        return []

    def _positions(self) -> NDArray[np.int64] | None:
        """The position in K that each wrong element reads, if every one of their rows is one-hot."""
        rows, back = np.unique(np.stack([self.launch, self.token]), axis=1, return_inverse=True)
        nonzero = self.case.activation.format.decode(self.operands.activation[rows[0], rows[1]]) != 0
        return np.argmax(nonzero, axis=1)[back] if (nonzero.sum(axis=1) == 1).all() else None

    def _along_k(self, position: NDArray[np.int64]) -> list[str]:
        length = self.case.problem.k
        found = _one_of("position of K", "positions of K", position, length)
        _, group = self.case.weight.granularity.block_shape(self.case.problem.n, length)
        found += _one_of("group of K", "groups of K", position // group, -(-length // group))
        if sentence := _beyond("position of K", "positions of K", position, length):
            found.append(sentence)
        lanes = np.unique(position % 8)
        if len(lanes) <= 4:
            found.append(f"all read positions of K with k mod 8 in {_listed(lanes)}")
        return found


def _rows_left(experts: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For every row (L, rows), how many rows its expert has from it on, itself included, and in all."""
    left, count = np.zeros(experts.shape, dtype=np.int64), np.zeros(experts.shape, dtype=np.int64)
    for launch, of_rows in enumerate(experts):
        counts = np.bincount(of_rows)
        by_expert = np.argsort(of_rows, kind="stable")
        end = np.cumsum(counts)[of_rows[by_expert]]
        left[launch, by_expert] = end - np.arange(len(of_rows))
        count[launch] = counts[of_rows]
    return left, count


def _beyond(what: str, plural: str, place: NDArray[np.int64], length: int) -> str:
    """A sentence if all places are the last one, or beyond the last multiple of a tile."""
    first = int(place.min())
    if first == length - 1 and length > 1:
        return f"all in the last {what}"
    for tile in _TILES:
        if tile < length and length % tile and first >= length - length % tile:
            return f"all in the last {length - first} of {length} {plural}, beyond the last multiple of {tile}"
    return ""


def _one_of(what: str, plural: str, values: NDArray[np.integer], of: int) -> list[str]:
    """A sentence if the values are few out of ``of``."""
    distinct = np.unique(values)
    if len(distinct) == of:
        return []
    if len(distinct) == 1:
        return [f"all in {what} {int(distinct[0])}"]
    return [f"all in {plural} {_listed(distinct)}"] if len(distinct) <= min(4, of // 4) else []


def _listed(values: NDArray[np.integer]) -> str:
    return ", ".join(str(int(value)) for value in values)


def _codes(case: Case, operands: Operands, sample: Sample) -> str:
    """A sentence if elements that read one weight are wrong for few of its codes only."""
    if sample.k.shape[1] != 1 or case.weight.format.bits > 8:
        return ""
    codes = operands.weight[sample.expert[:, 0], sample.channel[:, 0], sample.k[:, 0]]
    distinct = np.unique(codes)
    if len(distinct) > (1 << case.weight.format.bits) // 4 or sample.got.size < 8 * len(distinct):
        return ""
    return f"only weights of code {_listed(distinct)} are wrong"


def _looks(comparison: Comparison, sample: Sample) -> tuple[FaultClass, str]:
    """A fault class, and a sentence, from the size and the sign of the errors."""
    error = sample.got - sample.expected
    size = np.maximum(np.abs(sample.expected), np.sqrt(np.mean(np.square(sample.expected))))
    if comparison.wrong_count < 8 or np.mean(np.abs(error) <= _ROUNDING_LIKE * size) < 0.95:
        return "unknown", ""
    if np.mean(error * np.sign(sample.expected) < 0) > 0.95:
        return "precision", "errors are small and towards zero, as from truncation"
    return "precision", "errors are small, as from rounding too often or too coarsely"


def _non_finite(case: Case, operands: Operands, comparison: Comparison) -> tuple[FaultClass, str]:
    """A fault class, and a sentence, where every wrong element is or should be NaN or infinite."""
    got, expected = comparison.got[comparison.wrong], comparison.expected[comparison.wrong]
    if np.isfinite(expected).all():
        scales = element_format(case.weight.scale_format).decode(operands.weight_scale)
        poisoned = np.flatnonzero(~np.isfinite(scales).all(axis=(1, 2)))
        if operands.expert is not None and poisoned.size and not np.isin(poisoned, operands.expert).any():
            return (
                "wrong expert",
                f"NaN or infinity, as from the poisoned experts {_listed(poisoned)}, which have no rows",
            )
        return "unknown", "NaN or infinity where results are finite"
    if np.isfinite(got).all():
        return "unknown", "finite where NaN or infinity must come out"
    return "unknown", "NaN or infinity of the wrong kind"
