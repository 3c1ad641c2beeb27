# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for valid cases, small enough to build their operands."""

from hypothesis import assume
from hypothesis import strategies as st

from humming_conformance.formats import SCALE_FORMATS, parse_granularity
from humming_conformance.problems import REGIMES, ActivationScheme, Case, Problem, WeightScheme
from humming_conformance.problems.calls import CALL_OPTIONS
from humming_conformance.problems.case import OUTPUT_FORMATS, PROBLEM_KINDS
from humming_conformance.problems.distributions import DISTRIBUTIONS

FLOATS = (
    "fp4_e2m1",
    "fp6_e2m3",
    "fp6_e3m2",
    "fp8_e4m3",
    "fp8_e3m4",
    "fp8_e5m2",
    "e0m1",
    "e0m3",
    "e0m7",
    "e3m0",
    "e1m6",
)
SYMMETRIC = (*(f"int{bits}" for bits in range(1, 9)), *FLOATS, *OUTPUT_FORMATS)
UNSIGNED = tuple(f"uint{bits}" for bits in range(1, 9))
SCALED_ACTIVATIONS = ("int4", "int8", "fp4_e2m1", "fp6_e3m2", "fp8_e4m3", "fp8_e3m4", "fp8_e5m2", "e0m3")


@st.composite
def weight_schemes(draw):
    """Every element with every zero point and granularity that it may have."""
    element = draw(st.sampled_from(SYMMETRIC + UNSIGNED))
    granularities = ["tensor", "channel", "g16", "g32", "g96"]
    zero_point = "none"
    if element in UNSIGNED:
        zero_point = draw(st.sampled_from(["integer", "float"]))
    else:
        granularities.append("b8x32")
    return WeightScheme(
        element,
        parse_granularity(draw(st.sampled_from(granularities))),
        draw(st.sampled_from(SCALE_FORMATS)),
        zero_point,
        draw(st.sampled_from(["none", "tensor", "channel"])),
    )


@st.composite
def activation_schemes(draw):
    """16-bit formats, or narrow ones with a scale."""
    element = draw(st.sampled_from(OUTPUT_FORMATS + SCALED_ACTIVATIONS))
    if element in OUTPUT_FORMATS:
        return ActivationScheme(element)
    granularity = parse_granularity(draw(st.sampled_from(["tensor", "token", "g16", "g48"])))
    return ActivationScheme(element, granularity, draw(st.sampled_from(SCALE_FORMATS)))


@st.composite
def problems(draw):
    """Small shapes of every kind, tails included."""
    kind = draw(st.sampled_from(PROBLEM_KINDS))
    m, n, k = draw(st.integers(1, 20)), draw(st.integers(1, 40)), draw(st.integers(1, 80))
    bias = draw(st.booleans())
    if kind == "dense":
        return Problem(kind, m, n, k, bias=bias)
    experts = draw(st.integers(1, 6))
    top_k = draw(st.integers(1, experts))
    return Problem(kind, m, n, k, experts, top_k, draw(st.sampled_from(sorted(DISTRIBUTIONS))), bias)


@st.composite
def cases(draw, regimes=tuple(REGIMES)):
    """Valid cases of these regimes, sources, call options and seeds included."""
    activation = draw(activation_schemes())
    source = st.text("abcz019_+", min_size=1, max_size=5)
    case = Case(
        draw(weight_schemes()),
        activation,
        draw(problems()),
        draw(st.sampled_from(regimes)),
        "" if activation.granularity is None else draw(st.sampled_from(OUTPUT_FORMATS)),
        draw(st.one_of(st.just(""), source)),
        tuple(sorted(draw(st.sets(st.sampled_from(sorted(CALL_OPTIONS)), max_size=2)))),
        draw(st.integers(0, 3)),
    )
    assume(not REGIMES[case.regime].refuses(case))
    return case
