# SPDX-License-Identifier: Apache-2.0
"""The exact result of a case under a contract, and the sums from which the bound is made.

Values are float64. Products of codes and scales carry at most a few roundings of 2^-53; their sum in any
order is off by at most (K + 8) * 2^-53 of the sum of magnitudes (Higham, Accuracy and Stability of Numerical
Algorithms, section 3.1). Where both inputs are integers of at most 8 bits and scales wait for whole sums,
every partial sum is an integer below 2^16 * K < 2^53, so float64 is exact in any order and no integer matrix
product is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from humming_conformance.oracle.contract import Contract
from humming_conformance.oracle.dequantize import (
    Array,
    Factor,
    Index,
    activation_factor,
    bias_values,
    weight_factor,
)
from humming_conformance.oracle.region import Region
from humming_conformance.problems import Case, Operands

#: Float64 values of one block of weights or activations (64 MiB).
_BLOCK = 1 << 23
_DOUBLE_ROUNDOFF = 2.0**-53


@dataclass(frozen=True, eq=False)
class Products:
    """Exact results of the judged region, (L, rows, columns).

    Attributes:
        region: the judged rows and columns.
        product: sum of a * w, scales included, without bias.
        bias: the bias of each element's expert and column (0 without one).
        output_scale: where the contract scales rounded sums, the scale of each element; else None.
    """

    region: Region
    product: Array
    bias: Array
    output_scale: Array | None

    @property
    def value(self) -> Array:
        """The exact result: product and bias."""
        return self.product + self.bias


@dataclass(frozen=True, eq=False)
class Reference(Products):
    """Exact results, and what the bound needs of the same shape.

    Attributes:
        magnitude: sum of |a * w|, without bias.
        error: how far ``product`` may be from the exact value.
        doubt: how much of ``product`` hangs on fp32 roundings before multiplier inputs were rounded.
        positive, negative: sums of the positive and of the |negative| sums over tiles of
            ``contract.k_tile``; over single terms if that is 0 or nothing is split.
        peak: for fp16 accumulators, the largest partial sum before scales; else None.
        unit: for fp16 accumulators, the scale of one accumulator unit; else None.
    """

    magnitude: Array
    error: Array
    doubt: Array
    positive: Array
    negative: Array
    peak: Array | None
    unit: Array | None


def products(case: Case, operands: Operands, contract: Contract, region: Region | None = None) -> Products:
    """Return the exact result under ``contract``: inputs rounded as it declares, sums exact, output not.

    Only experts that a token chose are read. Non-finite inputs propagate as in IEEE 754 (inf * 0 is NaN).
    Memory stays within a few blocks of 64 MiB beside the results.

    Raises:
        ValueError: the contract scales outputs, and the case's weight scales vary along K.
    """
    region = region or Region.whole(case)
    sums = _collect(case, operands, contract, region, _products_of)
    return Products(region, sums["product"], sums["bias"], sums.get("output_scale"))


def reference(case: Case, operands: Operands, contract: Contract, region: Region | None = None) -> Reference:
    """Return :func:`products` with all that the bound needs."""
    region = region or Region.whole(case)
    integer = _exact_integers(case, contract)
    sums = _collect(case, operands, contract, region, partial(_sums_of, contract=contract, integer=integer))
    with np.errstate(invalid="ignore"):
        single_terms = {
            "positive": (sums["magnitude"] + sums["product"]) / 2,
            "negative": (sums["magnitude"] - sums["product"]) / 2,
        }
    optional = dict.fromkeys(("output_scale", "peak", "unit"))
    return Reference(region=region, **(optional | single_terms | sums))  # type: ignore[arg-type]


def _collect(
    case: Case,
    operands: Operands,
    contract: Contract,
    region: Region,
    sums_of: Callable[[Factor, Factor], dict[str, Array]],
) -> dict[str, Array]:
    """The sums of all blocks and the bias, each (L, rows, columns)."""
    shape = (operands.launches, len(region.rows), len(region.columns))
    flat = (shape[0] * shape[1], shape[2])
    results = {"bias": np.zeros(flat)}
    biases = bias_values(case, operands)
    with np.errstate(invalid="ignore", over="ignore"):
        for expert, columns, weight, block in _blocks(case, operands, contract, region):
            place = np.ix_(block.index, columns)
            activation = activation_factor(case, operands, contract, block.launch, block.token)
            for name, sums in sums_of(activation, weight).items():
                results.setdefault(name, np.zeros(flat))[place] = sums
            if biases is not None:
                results["bias"][place] = biases[expert][region.columns[columns]]
    return {name: array.reshape(shape) for name, array in results.items()}


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of one expert: their places among all judged rows of all launches, and their activations'."""

    index: Index
    launch: Index
    token: Index


def _blocks(
    case: Case, operands: Operands, contract: Contract, region: Region
) -> Iterator[tuple[int, Index, Factor, _Rows]]:
    """Each expert's weight in blocks of columns (as places in the region), with its rows in blocks."""
    launches, rows = operands.launches, len(region.rows)
    launch = np.repeat(np.arange(launches), rows)
    token, slot = np.divmod(np.tile(region.rows, launches), case.problem.top_k)
    expert = np.zeros_like(launch) if operands.expert is None else operands.expert[launch, token, slot]
    width = max(1, _BLOCK // case.problem.k)
    for number in np.unique(expert):
        mine = np.flatnonzero(expert == number)
        for first in range(0, len(region.columns), width):
            columns = np.arange(first, min(first + width, len(region.columns)))
            weight = weight_factor(case, operands, contract, int(number), region.columns[columns])
            height = max(1, _BLOCK // max(case.problem.k, len(columns)))
            for start in range(0, len(mine), height):
                index = mine[start : start + height]
                yield int(number), columns, weight, _Rows(index, launch[index], token[index])


def _products_of(activation: Factor, weight: Factor) -> dict[str, Array]:
    """Products of one block, (rows, columns)."""
    product = _matmul(activation.along_k, weight.along_k) * _outer_scale(activation, weight)
    if weight.output_scale is None:
        return {"product": product}
    return {"product": product, "output_scale": np.broadcast_to(weight.output_scale, product.shape)}


def _sums_of(activation: Factor, weight: Factor, *, contract: Contract, integer: bool) -> dict[str, Array]:
    """All sums over K of one block, (rows, columns)."""
    a, w = activation.along_k, weight.along_k
    k = a.shape[1]
    scale = _outer_scale(activation, weight)
    sums = _products_of(activation, weight)
    sums["magnitude"] = _matmul(np.abs(a), np.abs(w)) * np.abs(scale)
    relative = 8 * np.abs(sums["product"]) if integer else (k + 8) * sums["magnitude"]
    sums["error"] = relative * _DOUBLE_ROUNDOFF
    sums["doubt"] = _doubt(activation, weight) * np.abs(scale)
    if contract.split_k > 1 and contract.k_tile > 0:
        sums["positive"], sums["negative"] = np.zeros_like(scale), np.zeros_like(scale)
        for first in range(0, k, contract.k_tile):
            tile = slice(first, first + contract.k_tile)
            tile_sum = _matmul(a[:, tile], w[:, tile]) * scale
            sums["positive"] += np.maximum(tile_sum, 0)
            sums["negative"] += np.maximum(-tile_sum, 0)
    if contract.accumulator_format == "fp16":
        raw, raw_weight = activation.multiplier, weight.multiplier
        total = _matmul(np.abs(raw), np.abs(raw_weight))
        grouped = activation.group_scale is not None or weight.group_scale is not None
        sums["peak"] = total if grouped else (total + np.abs(_matmul(raw, raw_weight))) / 2
        sums["unit"] = np.abs(scale) * _largest_group_scale(activation)[:, None] * _largest_group_scale(weight)
    return sums


def _outer_scale(activation: Factor, weight: Factor) -> Array:
    rows = np.ones(len(activation.multiplier)) if activation.row_scale is None else activation.row_scale
    columns = np.ones(len(weight.multiplier)) if weight.row_scale is None else weight.row_scale
    return np.outer(rows, columns)


def _largest_group_scale(factor: Factor) -> Array:
    if factor.group_scale is None:
        return np.ones(len(factor.multiplier))
    largest: Array = np.abs(factor.group_scale).max(axis=1)
    return largest


def _doubt(activation: Factor, weight: Factor) -> Array:
    doubt = np.zeros((len(activation.multiplier), len(weight.multiplier)))
    if weight.doubt is not None:
        doubt += _matmul(np.abs(activation.along_k), weight.doubt)
    if activation.doubt is not None:
        spread = np.abs(weight.along_k) if weight.doubt is None else np.abs(weight.along_k) + weight.doubt
        doubt += _matmul(activation.doubt, spread)
    return doubt


def _matmul(a: Array, w: Array) -> Array:
    """Return a @ w.T, with NaN and infinity as in IEEE 754; one-hot rows merely select."""
    finite_rows, finite_columns = np.isfinite(a).all(axis=1), np.isfinite(w).all(axis=1)
    if finite_rows.all() and finite_columns.all():
        if (np.count_nonzero(a, axis=1) <= 1).all():
            hot = np.argmax(a != 0, axis=1)
            return np.take_along_axis(a, hot[:, None], axis=1) * w[:, hot].T
        result: Array = a @ w.T
        return result
    # BLAS may skip a zero and so lose inf * 0: sum those rows and columns by elementwise products.
    result = np.where(np.isfinite(a), a, 0.0) @ np.where(np.isfinite(w), w, 0.0).T
    for i in np.flatnonzero(~finite_rows):
        result[i] = (a[i] * w).sum(axis=1)
    for j in np.flatnonzero(~finite_columns):
        result[:, j] = (a * w[j]).sum(axis=1)
    return result


def _exact_integers(case: Case, contract: Contract) -> bool:
    """Whether every sum before scales is an integer that float64 holds."""
    scales_of_whole_sums = not any(contract.applies("multiplier_input", case.weight.second_scale)) and all(
        granularity is None or granularity.kind not in ("group", "block")
        for granularity in (case.weight.granularity, case.activation.granularity)
    )
    integers = case.weight.format.is_integer and case.activation.format.is_integer
    rounds = contract.weight_input != "exact" or contract.activation_input != "exact"
    return integers and scales_of_whole_sums and case.weight.zero_point != "float" and not rounds
