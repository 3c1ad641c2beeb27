# SPDX-License-Identifier: Apache-2.0
"""Each regime keeps its own promise, checked on the values of its operands."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import cases
from values import activations, biases, experts, scales, weights

from humming_conformance.formats import element_format
from humming_conformance.problems import REGIMES, Regime, build_operands, parse_case
from humming_conformance.problems.fill import finite_codes

DOCUMENT = Path(__file__).parents[2] / "docs" / "regimes.md"


def test_every_regime_is_documented():
    """The table of docs/regimes.md has one row for each regime, and says which are exact."""
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (exact|bound)[^|]* \|$", DOCUMENT.read_text(), re.MULTILINE))
    exact = {name: "bound" if regime.exact_bits is None else "exact" for name, regime in REGIMES.items()}
    assert rows == exact


@pytest.mark.parametrize("regime", REGIMES.values(), ids=REGIMES)
def test_regime_names_its_fault(regime):
    """A regime says which fault it exposes."""
    assert issubclass(regime, Regime)
    assert len(regime.fault) > 20


@settings(max_examples=150)
@given(cases(regimes=("readout", "all_codes")))
def test_readout_reads_everything(case):
    """One-hot rows meet every column of every expert at least once, over all launches."""
    operands = build_operands(case)
    codes = operands.activation
    assert (np.count_nonzero(codes, axis=2) <= 1).all()
    if case.regime == "all_codes":
        return  # some of the codes are 0; the columns are those of readout
    assert set(case.activation.format.decode(codes).ravel()) <= {0.0, 1.0}
    column = codes.argmax(axis=2)[:, :, None]
    read = np.zeros((max(case.problem.experts, 1), case.problem.k), dtype=int)
    np.add.at(read, (experts(operands), np.broadcast_to(column, experts(operands).shape)), 1)
    assert read.min() >= 1


@pytest.mark.parametrize(
    "text",
    [
        "dense-w_int4.g32.bf16-a_bf16-m7.n8.k64-readout",
        "moe_indexed-w_fp8_e4m3.channel.fp16-a_fp16-m3.n8.k64.e4.top2.one-readout",
        "moe_grouped_masked-w_uint4.g32.bf16.zp-a_int8.token-m16.n8.k96.e3.top3.high-readout",
    ],
)
def test_readout_outputs_are_weights(text):
    """The exact output of each row is a column of its expert's weights times the token's power of two."""
    case = parse_case(text)
    operands = build_operands(case)
    weight = weights(case, operands)
    activation = activations(case, operands)
    expert = experts(operands)
    for launch in range(operands.launches):
        for token in range(case.problem.m):
            row, factor = activation[launch, token], activation[launch, token].max()
            assert np.log2(factor) % 1 == 0
            for chosen in expert[launch, token]:
                assert np.array_equal(weight[chosen] @ row, weight[chosen, :, row.argmax()] * factor)


def test_readout_wide_has_many_binades_and_products_that_fp32_holds():
    """Scales meet eleven exponents; both scales and a weight multiply exactly in fp32, and not in bf16."""
    case = parse_case("dense-w_int4.g32.bf16-a_fp8_e4m3.g32-m32.n64.k256-readout_wide")
    operands = build_operands(case)
    scale = scales(case, operands)
    activation_scale = element_format("fp32").decode(operands.activation_scale)
    assert set(np.floor(np.log2(scale)).ravel()) == set(range(-20, -9))
    product = scale[0, :, None, :] * activation_scale[0][None, :, :]
    exact = product[..., None] * np.arange(-8, 8)
    assert np.array_equal(exact, exact.astype(np.float32))
    bf16 = element_format("bf16")
    assert (bf16.decode(bf16.encode(product)) != product).mean() > 0.5


def test_readout_keeps_each_launch_at_the_distribution():
    """Each launch's counts are the distribution's, its experts renumbered by the launch."""
    case = parse_case("moe_indexed-w_int4.g32.bf16-a_bf16-m8.n8.k32.e4.top2.skewed-readout")
    counts = [np.bincount(launch.ravel(), minlength=4) for launch in build_operands(case).expert]
    for launch, count in enumerate(counts):
        assert np.array_equal(count, np.roll(counts[0], launch))


@settings(max_examples=300)
@given(cases(regimes=("exact_grid", "exact_grid_wide")))
def test_exact_grid_stays_on_the_grid(case):
    """In every output row all products and the bias are on one grid, within 2^8 (2^11 wide) of its steps.

    The step is the lowest bit that any of them has, with every scale and zero point applied.
    """
    operands = build_operands(case)
    weight, activation, bias = weights(case, operands), activations(case, operands), biases(case, operands)
    limit = 1 << REGIMES[case.regime].exact_bits
    for token in range(case.problem.m):
        for expert in experts(operands)[0, token]:
            terms = np.append(weight[expert] * activation[0, token], bias[expert][:, None], axis=1)
            halves = (2 * terms).astype(np.int64)
            assert np.array_equal(halves, 2 * terms)
            bits = int(np.bitwise_or.reduce(halves, axis=None))
            step = bits & -bits  # the lowest bit that any term has
            assert np.abs(halves).sum(axis=1).max() <= limit * step


@pytest.mark.parametrize("regime", ["exact_grid", "exact_grid_wide"])
@pytest.mark.parametrize("k", [33, 512, 2000])
def test_exact_grid_reaches_all_of_k(regime, k):
    """Each row has one nonzero in each of equal stretches of K; the last column is among them."""
    case = parse_case(f"dense-w_int4.g32.bf16-a_bf16-m16.n8.k{k}-{regime}")
    operands = build_operands(case)
    nonzero = operands.activation[0] != 0
    counts = nonzero.sum(axis=1)
    assert (counts == counts[0]).all()
    assert counts[0] == min(k, {"exact_grid": 8, "exact_grid_wide": 68}[regime])
    assert nonzero[0, k - 1]
    starts = np.arange(counts[0]) * k // counts[0]
    assert (np.add.reduceat(nonzero, starts, axis=1) == 1).all()


@settings(max_examples=100)
@given(cases(regimes=("same_sign",)))
def test_same_sign_has_no_cancellation(case):
    """No product is negative, and not all are 0."""
    operands = build_operands(case)
    weight, activation = weights(case, operands), activations(case, operands)
    assert (weight >= 0).all()
    assert (activation > 0).all()
    assert weight.any()


@settings(max_examples=100)
@given(cases(regimes=("scale_spread",)))
def test_scale_spread_neighbours_differ(case):
    """Scales next to each other, along N and along K, differ by more than 2^5."""
    exponents = np.log2(scales(case, build_operands(case)))
    for axis in (1, 2):
        assert (np.abs(np.diff(exponents, axis=axis)) >= 5).all()


@pytest.mark.parametrize("weight", ["int4.g32.bf16", "uint3.g32.bf16.zp", "fp4_e2m1.g16.fp8_e4m3", "fp8_e4m3.g32.bf16"])
@pytest.mark.parametrize("activation", ["bf16", "int8.token", "fp8_e5m2.token"])
def test_all_codes_of_both(weight, activation):
    """Given K, each row of weights has every finite code, and the one-hot values are every activation code.

    Of a 16-bit format they are signed zeros, subnormals, ±1 and a few more.
    """
    case = parse_case(f"dense-w_{weight}-a_{activation}-m32.n8.k288-all_codes")
    operands = build_operands(case)
    wanted = set(finite_codes(case.weight.format).tolist())
    assert all(set(row.tolist()) == wanted for row in operands.weight[0])
    met = set(operands.activation.ravel().tolist())
    if case.activation.format.bits <= 8:
        assert met == set(finite_codes(case.activation.format).tolist())
    else:
        assert {0x0000, 0x8000, 0x0001, 0x8001, 0x007F, 0x0080, 0x3F80, 0xBF80, 0x3F81, 0x4170} <= met


@pytest.mark.parametrize("granularity", ["g32", "channel"])
def test_all_codes_has_the_ends_of_ue8m0(granularity):
    """Scale bytes 0, 1, 127, 128, 254 and 255 occur, in every eighth row only; the others are ordinary."""
    case = parse_case(f"dense-w_fp4_e2m1.{granularity}.ue8m0-a_bf16-m4.n48.k96-all_codes")
    codes = build_operands(case).weight_scale[0]
    assert set(codes[::8].ravel().tolist()) == {0, 1, 127, 128, 254, 255}
    assert np.isin(np.delete(codes, np.s_[::8], axis=0), [126, 127, 128]).all()


@settings(max_examples=100)
@given(cases(regimes=("poison",)))
def test_poison_is_in_unhit_experts_only(case):
    """Scales and biases are NaN in the experts without rows and only there; there is such an expert."""
    operands = build_operands(case)
    counts = np.bincount(operands.expert.ravel(), minlength=case.problem.experts)
    assert (counts == 0).any()
    for values in (scales(case, operands), biases(case, operands) if case.problem.bias else None):
        if values is not None:
            nan = np.isnan(values).reshape(case.problem.experts, -1)
            assert (nan.all(axis=1) == (counts == 0)).all()
            assert (nan.any(axis=1) == (counts == 0)).all()


@pytest.mark.parametrize("activation", ["bf16", "fp16", "fp8_e5m2.token", "fp8_e4m3.token"])
def test_nonfinite_rows(activation):
    """Of each four rows one has a NaN, one +inf, one -inf (without infinities: three a NaN), one nothing."""
    case = parse_case(f"dense-w_int4.g32.bf16-a_{activation}-m8.n8.k64-nonfinite")
    values = case.activation.format.decode(build_operands(case).activation)[0]
    has_inf = case.activation.format.has_inf
    for token, row in enumerate(values):
        special = row[~np.isfinite(row)].tolist()
        wanted = [np.nan, np.inf if has_inf else np.nan, -np.inf if has_inf else np.nan]
        assert np.array_equal(special, wanted[token % 4 : token % 4 + 1] if token % 4 < 3 else [], equal_nan=True)


@settings(max_examples=100)
@given(cases(regimes=("random",)))
def test_random_is_ordinary(case):
    """The plain fill is finite, and neither all one value nor far from 1."""
    operands = build_operands(case)
    weight, activation = weights(case, operands), activations(case, operands)
    assert np.isfinite(weight).all()
    assert np.isfinite(activation).all()
    assert np.abs(weight).max() <= 64
    assert np.abs(activation).max() <= 64


@pytest.mark.parametrize("element", ["int4", "uint5", "fp4_e2m1", "e0m3", "int8"])
def test_random_uses_every_code(element):
    """The plain fill draws all codes of a narrow format about equally often (six standard deviations)."""
    suffix = ".zp" if element.startswith("u") else ""
    case = parse_case(f"dense-w_{element}.g32.bf16{suffix}-a_bf16-m1.n64.k512-random")
    counts = np.bincount(build_operands(case).weight.ravel(), minlength=1 << element_format(element).bits)
    expected = 64 * 512 / len(counts)
    assert (np.abs(counts - expected) < 6 * np.sqrt(expected)).all()
