# SPDX-License-Identifier: Apache-2.0
"""Explanations of wrong elements that can be computed: the result of a kernel that misread something.

A sample of wrong elements is recomputed under each hypothesis. One that gives what the kernel gave, where the
right result differs, explains an element.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from humming_conformance.formats import element_format
from humming_conformance.oracle.comparison import Comparison
from humming_conformance.oracle.contract import Contract
from humming_conformance.oracle.dequantize import Array, Index, activation_factor, bias_values
from humming_conformance.oracle.misread import Weights, misread_weights, offset_words
from humming_conformance.oracle.single_weight import SingleWeights, explain
from humming_conformance.problems import Case, Operands

FaultClass = Literal[
    "layout",
    "scale index",
    "zero point",
    "tail",
    "wrong expert",
    "unowned write",
    "precision",
    "race",
    "route",
    "unknown",
]

#: Wrong elements that are recomputed, spread evenly over all.
SAMPLE = 192
#: Columns whose wrong elements are looked at one by one where each reads one weight, and the most of them.
_COLUMNS, _OF_COLUMNS = 4, 2048
#: Share of the sample that a hypothesis must explain; the rest may drown in the rounding that the contract
#: allows.
ENOUGH = 0.75
#: Elements that a hypothesis of many alike must have before it: fewer are matched by chance.
_FEW = 4
#: Splits of K of which one slice may be missing, and lengths whose remainder of K may be.
_SPLITS = (2, 4, 8)
_TAILS = (8, 16, 32, 64, 128)
#: Blocks within which a packing order may be permuted: a byte, a 32-bit word of nibbles or bytes, a tile.
_PACKING_BLOCKS = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, eq=False)
class Sample:
    """Some wrong elements, (n,), with their terms, (n, J); J is the most nonzero activations of a row.

    Attributes:
        launch, row, column: places in the judged region's arrays.
        expert, channel: (n, 1) expert and column of the weight.
        k: (n, J) positions in K.
        activation: (n, J) exact activations there; 0 where a row has fewer nonzeros.
        bias: bias of each element.
        got, expected: stored and expected values.
        step: distance of neighbouring output values at the larger of the two.
    """

    launch: Index
    row: Index
    column: Index
    expert: Index
    channel: Index
    k: Index
    activation: Array
    bias: Array
    got: Array
    expected: Array
    step: Array

    def total(self, weight: Array) -> Array:
        """Results for weights (n, J)."""
        summed: Array = (self.activation * weight).sum(axis=1) + self.bias
        return summed

    def explained(self, values: Array) -> NDArray[np.bool_]:
        """Elements whose stored value a hypothesis gives, nearer by far than the right value is."""
        deviation = np.abs(self.got - self.expected)
        tolerance = np.maximum(0.05 * deviation, self.step)
        return (np.abs(values - self.got) <= tolerance) & (np.abs(values - self.expected) > 2 * tolerance)


@dataclass(frozen=True)
class Hypothesis:
    """A fault class, what would have happened, and the share of the sample that it explains."""

    fault_class: FaultClass
    sentence: str
    share: float


def draw_sample(case: Case, operands: Operands, comparison: Comparison) -> Sample:
    """Up to ``SAMPLE`` wrong elements with finite stored and expected values."""
    places = _wrong_places(comparison)
    chosen = np.unique(np.linspace(0, max(len(places) - 1, 0), min(SAMPLE, len(places))).astype(np.int64))
    return _sample_at(case, operands, comparison, places[chosen])


def _wrong_places(comparison: Comparison) -> NDArray[np.int64]:
    """(n, 3) launch, row and column of all wrong elements with finite stored and expected values."""
    finite = np.isfinite(comparison.got) & np.isfinite(comparison.expected)
    return np.argwhere(comparison.wrong & finite)


def _sample_at(case: Case, operands: Operands, comparison: Comparison, places: NDArray[np.int64]) -> Sample:
    launch, row, column = places.T
    token, slot = np.divmod(comparison.region.rows[row], case.problem.top_k)
    expert = np.zeros_like(launch) if operands.expert is None else operands.expert[launch, token, slot]
    channel = comparison.region.columns[column]
    factor = activation_factor(case, operands, Contract(case.output), launch, token)
    activation = factor.along_k * (1.0 if factor.row_scale is None else factor.row_scale[:, None])
    nonzero = activation != 0
    width = max(int(nonzero.sum(axis=1).max(initial=0)), 1)
    k = np.argsort(~nonzero, axis=1, kind="stable")[:, :width]
    biases = bias_values(case, operands)
    got, expected = comparison.got[launch, row, column], comparison.expected[launch, row, column]
    return Sample(
        launch=launch,
        row=row,
        column=column,
        expert=expert[:, None],
        channel=channel[:, None],
        k=k,
        activation=np.take_along_axis(activation, k, axis=1),
        bias=np.zeros(len(launch)) if biases is None else biases[expert, channel],
        got=got,
        expected=expected,
        step=element_format(case.output).spacing(np.maximum(np.abs(got), np.abs(expected))),
    )


def best_hypothesis(case: Case, operands: Operands, comparison: Comparison, sample: Sample) -> Hypothesis | None:
    """The hypothesis that explains most of the sample, first of equals; None if none explains ``ENOUGH``."""
    with np.errstate(invalid="ignore", over="ignore"):
        hypotheses = list(_hypotheses(case, operands, comparison, sample))
    best = max(hypotheses, key=lambda hypothesis: hypothesis.share)
    if best.share >= ENOUGH:
        return best
    return _single_weights(case, operands, comparison) if sample.k.shape[1] == 1 else None


def _single_weights(case: Case, operands: Operands, comparison: Comparison) -> Hypothesis | None:
    """What elements of a few columns tell of the one weight that each of them read."""
    places = _wrong_places(comparison)
    columns = np.unique(places[:, 2])
    chosen = columns[np.unique(np.linspace(0, len(columns) - 1, _COLUMNS).astype(np.int64))]
    sample = _sample_at(case, operands, comparison, places[np.isin(places[:, 2], chosen)][:_OF_COLUMNS])
    some = sample.activation[:, 0] != 0
    expert, channel, k = sample.expert[some, 0], sample.channel[some, 0], sample.k[some, 0]
    factor = sample.activation[some, 0] * Weights(case, operands).second(expert, channel)
    used, tolerance = (sample.got - sample.bias)[some] / factor, sample.step[some] / np.abs(factor)
    found = explain(case, operands, SingleWeights(used, tolerance, expert, channel, k))
    return Hypothesis(*found) if found is not None else None


def _hypotheses(case: Case, operands: Operands, comparison: Comparison, sample: Sample) -> Iterator[Hypothesis]:
    weights = Weights(case, operands)
    right = weights.value(sample.expert, sample.channel, sample.k)
    yield from _losses(case, sample, right)
    if len(sample.got) < _FEW:
        return
    for fault_class, sentence, weight in misread_weights(weights, sample.expert, sample.channel, sample.k):
        yield _tried(sample, fault_class, sentence, sample.total(weight))
    for sentence, ratio in _activation_scales(case, operands, comparison, sample):
        yield _tried(sample, "scale index", sentence, sample.total(right * ratio))
    if sample.k.shape[1] == 1:
        yield from _permutations(case, weights, sample)
    yield from _moved_results(comparison, sample)
    nonzero = sample.expected != 0
    if nonzero.any():
        factor = float(np.median(sample.got[nonzero] / sample.expected[nonzero]))
        one_line = len(np.unique(sample.row)) == 1 or len(np.unique(sample.column)) == 1
        kind: FaultClass = "scale index" if one_line or abs(factor - 1) > 0.25 else "precision"
        sentence = f"results are {factor:.3g} times what they should be"
        yield _tried(sample, kind, sentence, sample.expected * factor)


def _tried(sample: Sample, fault_class: FaultClass, sentence: str, results: Array) -> Hypothesis:
    return Hypothesis(fault_class, sentence, float(sample.explained(results).mean()))


def _losses(case: Case, sample: Sample, right: Array) -> Iterator[Hypothesis]:
    """Parts of sums that are missing or counted twice, for right weights (n, J); few elements show these."""
    for sentence, kept in _without_remainder(case, sample):
        yield _tried(sample, "tail", sentence, sample.total(np.where(kept, right, 0.0)))
    yield _tried(sample, "race", "results are zero: lost, or never written", np.zeros_like(sample.got))
    for sentence, kept in _without_slice(case, sample):
        yield _tried(sample, "race", sentence, sample.total(np.where(kept, right, 0.0)))
    if case.problem.bias:
        yield _tried(sample, "race", "the bias was added twice", sample.expected + sample.bias)
        yield _tried(sample, "race", "the bias was not added", sample.expected - sample.bias)


def _without_remainder(case: Case, sample: Sample) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """A remainder of K left out: sentence, (n, J) terms that were kept."""
    k = case.problem.k
    for tile in sorted({*_TAILS, case.weight.granularity.group_size or _TAILS[0]}):
        if k % tile:
            sentence = f"the last {k % tile} of K, beyond the last multiple of {tile}, were left out"
            yield sentence, sample.k < k - k % tile


def _without_slice(case: Case, sample: Sample) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """One slice of several along K left out: sentence, (n, J) terms that were kept."""
    for split in _SPLITS:
        for part in range(split):
            yield (
                f"slice {part} of {split} along K was left out",
                (sample.k * split // case.problem.k) != part,
            )


def _activation_scales(
    case: Case, operands: Operands, comparison: Comparison, sample: Sample
) -> Iterator[tuple[str, Array]]:
    """Activation scales of the next or previous token: sentence, (n, J) ratio of wrong to right scale."""
    granularity = case.activation.granularity
    if granularity is None or granularity.kind == "tensor":
        return
    token = comparison.region.rows[sample.row] // case.problem.top_k
    contract = Contract(case.output)

    def scales(of: Index) -> Array:
        factor = activation_factor(case, operands, contract, sample.launch, of)
        if factor.group_scale is not None:
            return np.take_along_axis(factor.group_scale, sample.k, axis=1)
        return np.ones_like(sample.activation) if factor.row_scale is None else factor.row_scale[:, None]

    for step in (1, -1):
        other = np.clip(token + step, 0, case.problem.m - 1)
        yield f"activation scales are those of the token {offset_words(step)}", scales(other) / scales(token)


def _permutations(case: Case, weights: Weights, sample: Sample) -> Iterator[Hypothesis]:
    """Codes read from another place of the same packing block, where each element reads one position."""
    k = sample.k[:, 0]
    group = sample.k // weights.group
    scale = weights.scale(sample.expert, sample.channel, group) * weights.second(sample.expert, sample.channel)
    zero = weights.zero(sample.expert, sample.channel, group)[:, 0]
    for block in _PACKING_BLOCKS:
        residues = np.unique(k % block)
        if block > case.problem.k or len(k) < _FEW * len(residues):
            return
        hits = np.zeros((block, len(k)), dtype=bool)
        for source in range(block):
            code = weights.element(sample.expert, sample.channel, (k // block * block + source)[:, None])[:, 0]
            hits[source] = sample.explained((code - zero) * scale[:, 0] * sample.activation[:, 0] + sample.bias)
        explained, moves = 0, []
        for residue in residues:
            here = hits[:, k % block == residue].sum(axis=1)
            explained += int(here.max())
            moves.append(f"{residue} reads {int(here.argmax())}")
        where = ", ".join(moves[:8]) + (", …" if len(moves) > 8 else "")
        yield Hypothesis("layout", f"codes are permuted within blocks of {block} along K ({where})", explained / len(k))


def _moved_results(comparison: Comparison, sample: Sample) -> Iterator[Hypothesis]:
    """Results of another row or column."""
    _, rows, columns = comparison.expected.shape
    for step in (1, -1, 8, -8, 16, -16, 64, -64):
        moves = (
            ("row", sample.row + step, sample.column, rows),
            ("column", sample.row, sample.column + step, columns),
        )
        for axis, row, column, length in moves:
            moved = row if axis == "row" else column
            inside = (moved >= 0) & (moved < length)
            values = comparison.expected[sample.launch, row % rows, column % columns]
            share = float((sample.explained(values) & inside).mean())
            yield Hypothesis("layout", f"results are those of the {axis} {offset_words(step)}", share)
    wrong_rows = np.unique(sample.row)
    if len(wrong_rows) <= 8 and len(sample.row) >= _FEW * len(wrong_rows):
        sources = [_source_row(comparison, sample, int(row)) for row in wrong_rows]
        numbers = [int(comparison.region.rows[row]) for row in wrong_rows]
        pairs = [f"row {row} holds row {other}" for row, (other, _) in zip(numbers, sources, strict=True)]
        sentence = f"rows are exchanged: {', '.join(pairs)}"
        yield Hypothesis("layout", sentence, min(share for _, share in sources))


def _source_row(comparison: Comparison, sample: Sample, row: int) -> tuple[int, float]:
    """The other row of the same launch whose results ``row`` holds, and for which share of its elements."""
    mine = np.flatnonzero(sample.row == row)
    every = np.arange(comparison.expected.shape[1])
    candidates = comparison.expected[sample.launch[mine][:, None], every, sample.column[mine][:, None]]
    close = np.abs(candidates - sample.got[mine][:, None]) <= sample.step[mine][:, None]
    shares = np.where(every == row, 0.0, close.mean(axis=0))
    source = int(np.argmax(shares))
    return int(comparison.region.rows[source]), float(shares[source])
