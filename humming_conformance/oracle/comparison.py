# SPDX-License-Identifier: Apache-2.0
"""Compares a kernel's output, element by element, with what its contract allows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from humming_conformance.formats import element_format
from humming_conformance.oracle.bound import Bound, bound, round_output
from humming_conformance.oracle.contract import Contract
from humming_conformance.oracle.dequantize import Array
from humming_conformance.oracle.quality import Quality, judge_quality
from humming_conformance.oracle.reference import Products, Reference, products, reference
from humming_conformance.oracle.region import Region
from humming_conformance.problems import Case, Operands

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class WrongElement:
    """One output element outside what the contract allows.

    Attributes:
        launch, row, column: its index; row = token * top_k + slot.
        token, slot: what the row is made of; slot is 0 for dense problems.
        expert: the expert the row was sent to, or None for dense problems.
        got: the stored value.
        expected: the reference, rounded to the output format.
        bound: the largest allowed distance from the unrounded reference; 0 where equality is demanded.
    """

    launch: int
    row: int
    column: int
    token: int
    slot: int
    expert: int | None
    got: float
    expected: float
    bound: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """The result of :func:`compare`. Arrays have the shape (L, rows, columns) of the judged region.

    Attributes:
        region: the judged rows and columns.
        exact: whether equality was demanded.
        got, expected: stored values, and the reference rounded to the output format.
        wrong: which elements are wrong.
        margin: the largest |got - reference| / (E1 + ... + E5); above 1 exactly if some element is wrong.
            Where equality was demanded it is 0 or infinite.
        margin_before_rounding: the same without the output's rounding: what |got - reference| exceeds E5 by,
            over E1 + ... + E4.
        first: the first wrong element in launch, row, column order, or None.
        quality: the quality floor; None where equality was demanded or the floor wasn't asked for.
        bound: the bound of every element; None where equality was demanded.
    """

    region: Region
    exact: bool
    got: Array
    expected: Array
    wrong: Mask
    margin: float
    margin_before_rounding: float
    first: WrongElement | None
    quality: Quality | None
    bound: Bound | None

    @property
    def total(self) -> int:
        """How many elements were judged."""
        return self.wrong.size

    @property
    def wrong_count(self) -> int:
        """How many of them are wrong."""
        return int(np.count_nonzero(self.wrong))

    @property
    def passed(self) -> bool:
        """No element is wrong and the output is above the quality floor."""
        return not self.wrong_count and (self.quality is None or self.quality.passed)


def is_exact(contract: Contract, exact_bits: int | None) -> bool:
    """Whether a regime whose partial results need ``exact_bits`` significand bits is exact under a contract.

    Then the output must equal the rounded reference. ``None`` marks regimes that are judged by the bound.
    """
    return exact_bits is not None and exact_bits <= significand_bits(contract)


def significand_bits(contract: Contract) -> int:
    """Significand bits that every partial result of the contract's kernel keeps."""
    if contract.accumulator_format == "int32":
        bits = 31
    else:
        bits = contract.accumulator_bits + 1
        if contract.step_length > 1:
            bits = min(bits, contract.fraction_bits + 1)
        if contract.accumulator_format == "fp16":
            bits = min(bits, 11)
    if contract.split_k > 1:
        roundoff = element_format(contract.reduction_format).unit_roundoff
        bits = min(bits, round(-np.log2(roundoff)))
    return bits


def compare(
    case: Case,
    operands: Operands,
    contract: Contract,
    output_codes: NDArray[np.unsignedinteger],
    *,
    exact: bool,
    region: Region | None = None,
    floor: bool = True,
) -> Comparison:
    """Judge the output of all launches.

    Args:
        case, operands: what was computed.
        contract: the arithmetic the kernel declares.
        output_codes: (L, rows, N) codes of ``case.output``.
        exact: demand equality with the rounded reference instead of closeness (see :func:`is_exact`).
        region: the rows and columns to judge; all of them when left out.
        floor: judge the quality floor, too, unless equality is demanded.

    NaN is right where the reference is NaN, whatever its bits; infinities must match; zeros of either sign
    are equal. Where the reference plus or minus its bound crosses the overflow threshold, infinity and the
    largest finite value are both right.

    Raises:
        ValueError: the output's shape or the contract's output format doesn't fit the case.
    """
    region = region or Region.whole(case)
    shape = (operands.launches, case.problem.rows, case.problem.n)
    if output_codes.shape != shape:
        raise ValueError(f"output has shape {output_codes.shape}; {case.id} has (launches, rows, N) = {shape}")
    if contract.output_format != case.output:
        raise ValueError(f"contract stores {contract.output_format}; {case.id} asks for {case.output}")
    judged = output_codes[:, region.rows][:, :, region.columns]
    got = element_format(case.output).decode(judged)
    result: Products = (products if exact else reference)(case, operands, contract, region)
    slices = contract.split_k > 1
    # The slices of a split are rounded one by one; where one alone counts, it is as if there were no split.
    scale = result.output_scale if exact or not slices else None
    expected = round_output(case, contract, result.product, result.bias, scale)
    right = _same(got, expected)
    if scale is not None and slices:
        # The bias is fused into the scaling of one slice, which may be another than the one that counts.
        alone = round_output(case, contract, result.product, np.zeros_like(result.bias), scale)
        right |= _same(got, element_format(case.output).round(alone + result.bias))
    wrong = ~right
    margin = margin_before_rounding = np.inf if wrong.any() else 0.0
    allowed, quality = None, None
    if isinstance(result, Reference):
        allowed = bound(case, contract, result)
        wrong = np.where(np.isfinite(result.value), _outside(got, allowed), wrong)
        margin, margin_before_rounding = _margins(got, result, allowed, wrong)
        quality = judge_quality(case, operands, region, got, repeatable=contract.repeatable) if floor else None
    return Comparison(
        region=region,
        exact=exact,
        got=got,
        expected=expected,
        wrong=wrong,
        margin=float(margin),
        margin_before_rounding=float(margin_before_rounding),
        first=_first_wrong(case, operands, region, got=got, expected=expected, wrong=wrong, allowed=allowed),
        quality=quality,
        bound=allowed,
    )


def differing_bits(first: NDArray[np.unsignedinteger], second: NDArray[np.unsignedinteger]) -> NDArray[np.int64]:
    """Indices (count, dimensions) where two outputs differ in a bit: for repeats and for batch invariance.

    Raises:
        ValueError: the shapes differ.
    """
    if first.shape != second.shape:
        raise ValueError(f"outputs of shapes {first.shape} and {second.shape} can't be compared bit for bit")
    return np.argwhere(first != second)


def _same(got: Array, expected: Array) -> Mask:
    """Equal values, NaN equal to NaN."""
    same: Mask = (got == expected) | (np.isnan(got) & np.isnan(expected))
    return same


def _outside(got: Array, allowed: Bound) -> Mask:
    nothing_promised = np.isneginf(allowed.lower) & np.isposinf(allowed.upper)
    outside: Mask = ~((got >= allowed.lower) & (got <= allowed.upper) | nothing_promised)
    return outside


def _margins(got: Array, reference: Reference, allowed: Bound, wrong: Mask) -> tuple[float, float]:
    value = reference.value
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        distance = np.abs(got - value)
        rounding = np.where(np.abs(got) < np.abs(value), allowed.output_below, allowed.output)
        before = allowed.before_rounding
        with_rounding = distance / (before + rounding)
        without_rounding = np.maximum(distance - rounding, 0.0) / before
    return _largest(with_rounding, wrong), _largest(without_rounding, wrong)


def _largest(margins: Array, wrong: Mask) -> float:
    """The largest margin: above 1 for every wrong element, at most 1 for every right one.

    Only ties need this help, which round the other way exactly on the bound. Where values are not finite,
    right is 0 and wrong is infinite.
    """
    finite = np.isfinite(margins)
    if_wrong = np.where(finite, np.maximum(margins, np.nextafter(1.0, 2.0)), np.inf)
    if_right = np.where(finite, np.minimum(margins, 1.0), 0.0)
    return float(np.where(wrong, if_wrong, if_right).max(initial=0.0))


def _first_wrong(
    case: Case,
    operands: Operands,
    region: Region,
    *,
    got: Array,
    expected: Array,
    wrong: Mask,
    allowed: Bound | None,
) -> WrongElement | None:
    if not wrong.any():
        return None
    place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    launch, row, column = int(place[0]), int(region.rows[place[1]]), int(region.columns[place[2]])
    token, slot = divmod(row, case.problem.top_k)
    return WrongElement(
        launch=launch,
        row=row,
        column=column,
        token=token,
        slot=slot,
        expert=None if operands.expert is None else int(operands.expert[launch, token, slot]),
        got=float(got[place]),
        expected=float(expected[place]),
        bound=0.0 if allowed is None else float(allowed.total[place]),
    )
