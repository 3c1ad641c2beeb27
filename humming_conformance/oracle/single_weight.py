# SPDX-License-Identifier: Apache-2.0
"""What wrong elements that read one weight each say about it: another code, zero point or scale.

With a one-hot activation row an element is one weight, so that the weight a kernel used can be solved for,
whatever index it got wrong. Within one granule (the weights of one scale) a wrong scale leaves the ratio of used
to right weights the same, a wrong zero point their difference in steps; a wrong code is a code still.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from humming_conformance.oracle.dequantize import Array
from humming_conformance.oracle.misread import Weights
from humming_conformance.problems import Case, Operands

#: Share of elements that an explanation must fit, and the most that it may fit by chance.
_ENOUGH, _BY_CHANCE = 0.75, 0.3
#: Fewer elements fit by chance.
_FEWEST = 16
#: A factor that is no ratio of codes.
_UNRELATED = 1.2345679


@dataclass(frozen=True, eq=False)
class SingleWeights:
    """Weights that a kernel used, (n,), and where they lie.

    Attributes:
        used: the weight that gives the stored value, second-level scale taken out.
        tolerance: how far it may be off, from the output's rounding.
        expert, channel, k: (n,) place in the weights.
    """

    used: Array
    tolerance: Array
    expert: NDArray[np.int64]
    channel: NDArray[np.int64]
    k: NDArray[np.int64]


def explain(
    case: Case, operands: Operands, single: SingleWeights
) -> tuple[Literal["layout", "zero point", "scale index"], str, float] | None:
    """Fault class, sentence and share of elements explained; None if nothing explains ``_ENOUGH`` of them."""
    weights = Weights(case, operands)
    group = single.k // weights.group
    scale = weights.scale(single.expert, single.channel, group)
    zero = weights.zero(single.expert, single.channel, group)
    centred = weights.element(single.expert, single.channel, single.k) - zero
    usable = (centred != 0) & (scale != 0) & np.isfinite(scale)
    if usable.sum() < _FEWEST:
        return None
    granules = np.stack([single.expert, single.channel // weights.block_n, group], axis=1)[usable]
    used, tolerance, scale, centred = single.used[usable], single.tolerance[usable], scale[usable], centred[usable]
    ratios = _same_in_granules(used / centred, tolerance / np.abs(centred), granules, centred)
    if ratios >= _ENOUGH:
        return "scale index", "weights of one group are off by the same factor", ratios
    steps, slack = used / scale, tolerance / np.abs(scale)
    if case.weight.zero_point != "none":
        shifts = _same_in_granules(steps - centred, slack, granules, centred)
        if shifts >= _ENOUGH:
            return "zero point", "weights of one group are off by the same number of steps", shifts
    codes = _every_code(case)
    zero = zero[usable]
    by_code = _share_of_codes(codes, steps + zero, slack)
    if by_code >= _ENOUGH and _share_of_codes(codes, steps * _UNRELATED + zero, slack) <= _BY_CHANCE:
        return "layout", "each wrong weight is another code under the right scale", by_code
    return None


def _same_in_granules(values: Array, tolerance: Array, granules: NDArray[np.int64], centred: Array) -> float:
    """Share of values that are those of their granule's first element; 0 where too few granules tell."""
    _, first, granule = np.unique(granules, axis=0, return_index=True, return_inverse=True)
    leader = first[granule.ravel()]
    telling = centred != centred[leader]  # equal codes are off alike, whatever is wrong
    if telling.sum() < _FEWEST:
        return 0.0
    same = np.abs(values - values[leader]) <= tolerance + tolerance[leader]
    return float(same[telling].mean())


def _every_code(case: Case) -> Array:
    element = case.weight.format
    values = element.decode(np.arange(1 << element.bits, dtype=element.code_dtype))
    finite: Array = np.unique(values[np.isfinite(values)])
    return finite


def _share_of_codes(codes: Array, values: Array, tolerance: Array) -> float:
    """Share of values that are codes (ascending), as far as tolerances tell."""
    above = np.clip(np.searchsorted(codes, values), 1, len(codes) - 1)
    distance = np.minimum(np.abs(values - codes[above - 1]), np.abs(values - codes[above]))
    return float((distance <= tolerance).mean())
