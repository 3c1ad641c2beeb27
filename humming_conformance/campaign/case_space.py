# SPDX-License-Identifier: Apache-2.0
"""The cases that a kernel claims, from which its tier lists are drawn.

A case falls into three parts that are chosen apart: its *scheme* (with bias), its *size* (kind, N, K) and its
*load* (M, experts, token distribution, regime, call). Claims may tie scheme to size; a size limits the loads,
because a regime that reads all of K back at a small M takes many launches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import islice, product
from math import gcd

from humming_conformance.devices import Device
from humming_conformance.formats import FormatError, parse_granularity
from humming_conformance.problems import (
    REGIMES,
    ActivationScheme,
    Case,
    CaseError,
    Problem,
    WeightScheme,
)
from humming_conformance.problems.distributions import DISTRIBUTIONS
from humming_conformance.protocols import Claim, Kernel

#: What a pattern in a claim (``g*``) stands for here.
_GRANULARITIES = ("tensor", "channel", "token", "g16", "g32", "g64", "g128", "g256", "b128x128", "none")
#: Regimes that call options go with: one judged by the bound, one by equality. Equal bits of different batches say
#: something only where sums round.
_CALL_REGIMES = {
    "graph": ("random", "exact_grid"),
    "streams": ("random", "exact_grid"),
    "batch_invariant": ("random",),
}
#: A claim with more schemes than this is one of all formats there can be. It is drawn from evenly, about this
#: many…
_ENUMERABLE, _SAMPLE = 5000, 500
#: …of the elements that published checkpoints and kernels use.
_COMMON_ELEMENTS = (
    *("int2", "int3", "int4", "int8", "uint2", "uint3", "uint4", "uint8"),
    *("fp4_e2m1", "fp6_e2m3", "fp6_e3m2", "fp8_e4m3", "fp8_e5m2", "e0m3"),
)


@dataclass(frozen=True)
class Sizes:
    """Sizes to draw from, and how much one case may cost.

    Attributes:
        experts: (E, top_k) pairs.
        moe_n, moe_k: N and K of problems with experts.
        steps: the most tile steps (tiles of the output × 128 columns of K) over all launches of a case.
        launches, outputs, weights: the most launches, output elements over all launches, and weights of a
        case.
    """

    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    experts: tuple[tuple[int, int], ...]
    moe_n: tuple[int, ...]
    moe_k: tuple[int, ...]
    steps: int
    launches: int
    outputs: int
    weights: int


_COMPILED = Sizes(
    m=(1, 2, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 129, 300),
    n=(128, 136, 192, 256, 320, 384, 512),
    k=(128, 256, 320, 512, 1024, 1056),
    experts=((4, 1), (4, 2), (8, 2), (8, 8), (16, 4), (64, 8), (256, 8)),
    moe_n=(128, 192, 256),
    moe_k=(128, 256, 320, 512, 1024),
    steps=1 << 16,
    launches=128,
    outputs=1 << 22,
    weights=1 << 22,
)
#: In Triton's interpreter a program takes 3.6 ms a step, whatever its tile: a case stays below 0.4 s.
_INTERPRETED = Sizes(
    m=(1, 2, 15, 16, 17, 33),
    n=(32, 48, 64, 96, 130),
    k=(32, 40, 64, 75, 128, 160, 192, 256, 272, 320),
    experts=((4, 1), (4, 2), (8, 2)),
    moe_n=(32, 48),
    moe_k=(32, 64, 160),
    steps=100,
    launches=64,
    outputs=1 << 17,
    weights=1 << 18,
)


@dataclass(frozen=True)
class Scheme:
    """Weights, activations, output and bias: what is chosen before any size."""

    weight: WeightScheme
    activation: ActivationScheme
    output: str
    bias: bool


@dataclass(frozen=True)
class Load:
    """What is chosen for a size: M, experts, token distribution, regime and call options."""

    m: int
    experts: int
    top_k: int
    distribution: str
    regime: str
    call: tuple[str, ...] = ()


Size = tuple[str, int, int]  # kind, N, K


class CaseSpace:
    """All cases of one kernel that its claims hold for and that cost no more than the sizes allow."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.sizes = _INTERPRETED if "cpu_interpreter" in kernel.device_kinds else _COMPILED
        #: Every device kind is taken as present: claims are about kernels, not about this machine.
        self._device = Device(kernel.device_kinds[0], kernel.device_kinds[0], sm=90)  # type: ignore[arg-type]  # a kind
        schemes = {scheme: claim for claim in kernel.claims for scheme in _schemes(claim)}
        self._calls = set.intersection(*(set(claim.calls) for claim in kernel.claims))
        kinds = sorted({kind for claim in kernel.claims for kind in claim.kinds})
        #: By size, the schemes that are claimed there and the loads that it can bear.
        self.schemes: dict[Size, list[Scheme]] = {}
        self.loads: dict[Size, list[Load]] = {}
        for kind in kinds:
            moe = kind != "dense"
            sizes = self.sizes
            for n, k in product(sizes.moe_n if moe else sizes.n, sizes.moe_k if moe else sizes.k):
                loads = list(self._possible_loads((kind, n, k)))
                plain = next(load for load in loads if load.regime == "random")
                fitting = [
                    scheme
                    for scheme, claim in schemes.items()
                    if kind in claim.kinds and _rules_hold(claim, make_case(scheme, (kind, n, k), plain))
                ]
                if fitting:
                    self.schemes[kind, n, k] = fitting
                    self.loads[kind, n, k] = loads

    def claims(self, case: Case) -> bool:
        """Whether the kernel claims a case."""
        return self.kernel.support(case, self._device).answer != "no"

    def allows(self, case: Case) -> bool:
        """Whether a case's regime takes it, its call, and no more launches and operands of it than it may."""
        if any(case.regime not in _CALL_REGIMES[option] for option in case.call):
            return False
        return not REGIMES[case.regime].refuses(case) and self._affordable(case.problem, case.regime)

    def _possible_loads(self, size: Size) -> Iterator[Load]:
        kind, n, k = size
        dense = kind == "dense"
        experts_choices = ((0, 1),) if dense else self.sizes.experts
        distributions = ("balanced",) if dense else tuple(DISTRIBUTIONS)
        drawn = [name for name, regime in REGIMES.items() if regime.drawn]
        for m, (experts, top_k), regime in product(self.sizes.m, experts_choices, drawn):
            if self._affordable(Problem(kind, m, n, k, experts, top_k), regime):  # type: ignore[arg-type]  # from claims
                for distribution in distributions:
                    load = Load(m, experts, top_k, distribution, regime)
                    if regime != "poison" or not REGIMES[regime].refuses(make_case(_PLAIN, size, load)):
                        yield load
                    options = (option for option in sorted(self._calls) if regime in _CALL_REGIMES[option])
                    yield from (replace(load, call=(option,)) for option in options)

    def _affordable(self, problem: Problem, regime: str) -> bool:
        sizes, n, k, rows = self.sizes, problem.n, problem.k, problem.rows
        experts = max(problem.experts, 1)
        launches = experts * -(-k // problem.m) if regime in ("readout", "readout_wide", "all_codes") else 1
        tiles = (min(experts, rows) + (rows - 1) // 64) * -(-n // 128)
        return (
            launches <= sizes.launches
            and launches * tiles * -(-k // 128) <= sizes.steps
            and launches * rows * n <= sizes.outputs
            and experts * n * k <= sizes.weights
        )


def _rules_hold(claim: Claim, case: Case) -> bool:
    return all(holds(case) for _, holds in claim.rules)


def make_case(scheme: Scheme, size: Size, load: Load) -> Case:
    """The case of a scheme, a size and a load."""
    kind, n, k = size
    problem = Problem(kind, load.m, n, k, load.experts, load.top_k, load.distribution, scheme.bias)  # type: ignore[arg-type]  # from claims
    return Case(scheme.weight, scheme.activation, problem, load.regime, scheme.output, call=load.call)


@cache
def refused(regime: str, scheme: Scheme) -> bool:
    """Whether a regime makes no sense for a scheme, on a problem that it can have."""
    load = Load(4, 8, 1, "one", regime)
    return bool(REGIMES[regime].refuses(make_case(scheme, ("moe_indexed", 32, 32), load)))


_PLAIN = Scheme(
    WeightScheme("int4", parse_granularity("channel"), "bf16"), ActivationScheme("bf16"), "bf16", bias=False
)


def _schemes(claim: Claim) -> Iterator[Scheme]:
    """The schemes of a claim, or evenly spread ones if it is of all formats there can be."""
    activations = [
        (activation, output, bias)
        for activation, output, bias in product(_activations(claim), claim.outputs, claim.bias)
        if activation.granularity is not None or output == activation.element
    ]
    weights = list(_weights(claim))
    stride = 1
    if len(weights) * len(activations) > _ENUMERABLE:
        weights = [weight for weight in weights if weight.element in _COMMON_ELEMENTS]
        stride = -(-len(weights) * len(activations) // _SAMPLE)
        while gcd(stride, len(activations)) > 1:  # or some activations would never be met
            stride += 1
    for weight, (activation, output, bias) in islice(product(weights, activations), 0, None, stride):
        yield Scheme(weight, activation, output, bias)


def _weights(claim: Claim) -> Iterator[WeightScheme]:
    for element, granularity, scale, zero_point, second in product(
        claim.weights,
        _named(claim.granularities),
        claim.scale_formats,
        claim.zero_points,
        claim.second_scales,
    ):
        try:
            yield WeightScheme(element, parse_granularity(granularity), scale, zero_point, second)  # type: ignore[arg-type]  # from claims
        except (CaseError, FormatError):
            continue  # a product of a claim's fields may hold what no case can have


def _activations(claim: Claim) -> Iterator[ActivationScheme]:
    for element, granularity in product(claim.activations, _named(claim.activation_granularities)):
        try:
            yield ActivationScheme(element, None if granularity == "none" else parse_granularity(granularity))
        except (CaseError, FormatError):
            continue  # as above


def _named(patterns: tuple[str, ...]) -> list[str]:
    return [
        name
        for pattern in patterns
        for name in (_GRANULARITIES if "*" in pattern else (pattern,))
        if fnmatchcase(name, pattern)
    ]
