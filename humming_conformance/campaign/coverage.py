# SPDX-License-Identifier: Apache-2.0
"""What the cases of a tier must meet: combinations of factor values, as far as claims allow them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from itertools import combinations, product

from humming_conformance.campaign.case_space import CaseSpace, Load, Scheme, Size, refused
from humming_conformance.formats import Granularity
from humming_conformance.problems import REGIMES, Case
from humming_conformance.problems.tiers import TIERS

#: Regimes that every scheme meets: each weight read back, each sum exact. The factor ``core`` is one of them.
_CORE = ("readout", "exact_grid")

_SCHEME_FACTORS = (
    *("weight", "second_scale", "scale", "granularity"),
    *("activation", "activation_granularity", "output", "bias"),
    *("kind", "n", "k"),
)
_LOAD_FACTORS = ("m", "experts", "distribution", "regime")
_FACTORS = (*_SCHEME_FACTORS, *_LOAD_FACTORS)
#: What a call option may interact with; in pairs with all factors it would ask for hundreds of compiled kernels.
_CALL_PAIRS = tuple((factor, "call") for factor in ("weight", "activation", "kind", "m", "core"))
_ACTIVATION = ("activation", "activation_granularity")

#: Sets of factors (those of the scheme first) whose every possible combination of values is met in a tier;
#: tiers add to those below.
_REQUIRED: dict[str, tuple[tuple[str, ...], ...]] = {
    "smoke": (
        ("activation", "core"),
        ("kind", "regime"),
        *((factor,) for factor in (*_FACTORS, "call")),
    ),
    "gate": (
        ("weight", "activation", "granularity"),
        ("weight", *_ACTIVATION, "regime"),
        ("activation", "granularity", "regime"),
        ("weight", "kind", "core"),
        ("activation", "kind", "core"),
        ("kind", "distribution", "m"),
        ("granularity", "k", "activation_granularity"),
        ("weight", "granularity", "regime"),
        *combinations(_FACTORS, 2),
        *_CALL_PAIRS,
    ),
    "full": (
        ("weight", *_ACTIVATION, "granularity", "kind", "core"),
        ("kind", "m", "experts"),
        ("granularity", "k", "m"),
        ("n", "k", "m"),
    ),
}
#: Fallbacks and anchors take any format and are there so that others can be compared with them: sets of
#: factors with more combinations than this are left out.
_LARGEST_SET = {
    "qdq": {"smoke": 50, "gate": 100, "full": 200},
    "torch_gemm": {"smoke": 8, "gate": 24, "full": 100},
}

#: Values by factor, in the order of a set of factors.
Combination = tuple[tuple[str, str], ...]


def factors(case: Case) -> dict[str, str]:
    """The value of every factor of a case."""
    problem = case.problem
    scheme = Scheme(case.weight, case.activation, case.output, problem.bias)
    load = Load(problem.m, problem.experts, problem.top_k, problem.distribution, case.regime, case.call)
    return {**scheme_values(scheme, (problem.kind, problem.n, problem.k)), **load_values(load)}


def met(values: Mapping[str, str], sets: Collection[tuple[str, ...]]) -> Iterator[Combination]:
    """The combinations, of these sets of factors, that a case with these values meets."""
    for names in sets:
        if "core" not in names or "core" in values:
            yield tuple((name, values[name]) for name in names)


def required(space: CaseSpace, tier: str) -> dict[tuple[str, ...], frozenset[Combination]]:
    """By set of factors, the combinations that a tier must meet and the claims allow."""
    needed = {}
    for included in TIERS[: TIERS.index(tier) + 1]:
        largest = _LARGEST_SET.get(space.kernel.name, {}).get(included)
        for names in _REQUIRED[included]:
            possible = _possible(space, names)
            if largest is None or len(possible) <= largest:
                needed[names] = possible
    return needed


@cache
def scheme_values(scheme: Scheme, size: Size) -> dict[str, str]:
    """The values of the factors that a scheme and a size decide, in their order."""
    kind, n, k = size
    weight, activation = scheme.weight, scheme.activation
    zero_point = {"none": "", "integer": ".zp", "float": ".fzp"}[weight.zero_point]
    return {
        "weight": weight.element + zero_point,
        "second_scale": weight.second_scale,
        "scale": weight.scale_format,
        "granularity": _granularity_class(weight.granularity),
        "activation": activation.element,
        "activation_granularity": str(activation.granularity or "none"),
        "output": scheme.output,
        "bias": str(scheme.bias),
        "kind": kind,
        "n": _n_class(n),
        "k": _k_class(k, weight.granularity.group_size),
    }


@cache
def load_values(load: Load) -> dict[str, str]:
    """The values of the factors that a load decides, and of ``core`` where its regime is a core one."""
    values = {
        "m": _m_class(load.m),
        "experts": f"e{load.experts}.top{load.top_k}",
        "distribution": load.distribution,
        "regime": load.regime,
        "call": ".".join(load.call) or "plain",
    }
    if load.regime in _CORE:
        values["core"] = load.regime
    return values


def _granularity_class(granularity: Granularity) -> str:
    """Groups longer than any kernel's K tile are all alike."""
    return "wide_group" if (granularity.group_size or 0) > 128 and granularity.kind == "group" else str(granularity)


def _m_class(m: int) -> str:
    """Where M stands to the tiles of 16 to 128 rows that kernels use."""
    if m == 1:
        return "one"
    if m > 129:
        return "many"
    tiles = (16, 32, 64, 128)
    return "tile" if m in tiles else "above_tile" if m - 1 in tiles else "below_tile"


def _n_class(n: int) -> str:
    if n % 64 == 0:
        return "half_tile" if n % 128 else "tile"
    return "unaligned" if n % 16 else "narrow" if n < 64 else "ragged"


def _k_class(k: int, group_size: int | None) -> str:
    if group_size and k % group_size:
        return "group_tail"
    if k == group_size:
        return "one_group"
    if group_size and k // group_size > group_size:
        return "more_groups_than_group_size"
    return "tile_tail" if k % 128 else "tiles"


@cache
def _possible(space: CaseSpace, names: tuple[str, ...]) -> frozenset[Combination]:
    """Combinations of these factors' values that some case of the space has."""
    places = [_SCHEME_FACTORS.index(name) for name in names if name in _SCHEME_FACTORS]
    found: set[Combination] = set()
    for loads, schemes in _blocks(space, regimes=bool({"regime", "core"} & set(names))).items():
        left = {tuple(row[place] for place in places) for row in schemes}
        right = {tuple((name, row[name]) for name in names if name in row) for row in map(dict, loads)}
        found.update(tuple(zip(names, row, strict=False)) + load for row, load in product(left, right))
    return frozenset(item for item in found if len(item) == len(names))  # without `core` one is too short


@cache
def _blocks(space: CaseSpace, *, regimes: bool) -> dict[frozenset[Combination], set[tuple[str, ...]]]:
    """Factor values of loads, and by them those of the schemes that go with each, in the factors' order.

    Without ``regimes`` only the plain regime is looked at, which refuses no scheme and takes the most loads.
    """
    blocks: dict[frozenset[Combination], set[tuple[str, ...]]] = defaultdict(set)
    for size, schemes in space.schemes.items():
        rows = {scheme: tuple(scheme_values(scheme, size).values()) for scheme in schemes}
        for regime in REGIMES if regimes else ("random",):
            loads = [load for load in space.loads[size] if load.regime == regime]
            values = frozenset(tuple(load_values(load).items()) for load in loads)
            blocks[values].update(row for scheme, row in rows.items() if not refused(regime, scheme))
    return blocks
