# SPDX-License-Identifier: Apache-2.0
"""Tier lists cover what they must; what that is agrees, for a small kernel, with plain enumeration."""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from humming_conformance.campaign import arrays
from humming_conformance.campaign.arrays import extend_tier, missing_coverage, new_cases
from humming_conformance.campaign.case_space import CaseSpace, make_case
from humming_conformance.campaign.coverage import factors, met, required
from humming_conformance.campaign.kernels import find_kernels
from humming_conformance.problems import REGIMES, CaseError, parse_case, tiers
from humming_conformance.problems.tiers import TIERS, listed_kernels, load_tier
from humming_conformance.problems.words import Draw, NumpyArrays

TOY = "claiming_kernel:kernel"
HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def toy_on_path(monkeypatch):
    """The toy kernel is found by its reference, as a user's kernel is."""
    monkeypatch.syspath_prepend(HERE)


@pytest.fixture
def space():
    """What the toy kernel claims."""
    return arrays._space(TOY)


@pytest.mark.parametrize("kernel", listed_kernels())
def test_committed_lists_cover(kernel):
    """Every committed list meets all that its tier must meet; what it lacks is named."""
    for tier in TIERS:
        missing = missing_coverage(kernel, tier, load_tier(tier, kernel))
        assert not missing, f"run `humming-conformance tiers {kernel} --tier {tier}`: missing {missing[:20]}"


@pytest.mark.parametrize("kernel", listed_kernels())
def test_committed_cases_are_claimed_and_affordable(kernel):
    """A list holds cases that the kernel claims, none of which takes minutes or gigabytes.

    Boundary cases, written by hand, may be larger than those that are drawn; in the interpreter they may not.
    """
    space = arrays._space(kernel)
    for case in map(parse_case, load_tier("full", kernel)):
        assert space.claims(case), case.id
        problem = case.problem
        launches = REGIMES[case.regime](case, Draw(case.id, NumpyArrays())).launches
        assert max(problem.experts, 1) * problem.n * problem.k <= 1 << 23, case.id
        assert launches * problem.rows * problem.n <= 1 << 24, case.id
        assert launches <= 128, case.id
        if "cpu_interpreter" in space.kernel.device_kinds:
            assert space.allows(case), case.id


def test_every_built_in_kernel_has_lists():
    """No built-in kernel is judged by other kernels' cases."""
    assert {found.kernel.name for found in find_kernels()} <= set(listed_kernels())


def every_case(space):
    """All cases of the toy's space, by plain enumeration: no shortcut of the arrays is used."""
    for size in space.schemes:
        for scheme, load in product(space.schemes[size], space.loads[size]):
            case = make_case(scheme, size, load)
            if not REGIMES[load.regime].refuses(case):
                yield case


def test_required_is_all_that_is_possible(space):
    """The combinations asked for are those that some case has, and no others."""
    needed = required(space, "full")
    possible = {item for case in every_case(space) for item in met(factors(case), needed)}
    assert possible == {item for items in needed.values() for item in items}


def test_space_holds_what_is_claimed(space):
    """Every enumerated case is claimed and has an id; each factor keeps the claims' values and their ties."""
    seen = set()
    for number, case in enumerate(every_case(space)):
        if number % 101 == 0:
            assert space.claims(case)
            assert parse_case(case.id) == case
        seen.add(
            (
                case.weight.element,
                str(case.weight.granularity),
                case.activation.element,
                case.weight.zero_point,
            )
        )
    assert seen == {
        *product(("int4", "int1"), ("g32", "g128"), ("bf16", "int8"), ("none",)),
        ("int8", "channel", "bf16", "none"),
        ("int8", "b128x128", "bf16", "none"),
        ("uint4", "channel", "bf16", "integer"),
    }


def test_covering_covers(space):
    """From nothing, the new cases of each tier meet all that is missing; with some left out, it is named."""
    needed = required(space, "gate")
    for tier in ("smoke", "gate"):
        ids = new_cases(TOY, tier, [])
        assert len(set(ids)) == len(ids)
        assert missing_coverage(TOY, tier, ids) == []
    everything = {item for items in needed.values() for item in items}
    assert set(missing_coverage(TOY, "gate", [])) == everything
    assert set(missing_coverage(TOY, "gate", ids[1:])) <= everything - set(met(factors(parse_case(ids[1])), needed))
    only_case = [text for text in ids if parse_case(text).weight.element != "uint4"]
    assert (("weight", "uint4.zp"),) in missing_coverage(TOY, "gate", only_case)


def test_extension_only_adds():
    """Listed cases stay, and only what they lack is added."""
    listed = new_cases(TOY, "smoke", [])
    added = new_cases(TOY, "gate", listed)
    assert added
    assert not set(added) & set(listed)
    assert missing_coverage(TOY, "gate", [*listed, *added]) == []
    assert new_cases(TOY, "gate", [*listed, *added]) == []


def test_unclaimed_cases_count_for_nothing():
    """A case that the kernel doesn't claim meets no combination."""
    unclaimed = "dense-w_int8.channel.bf16-a_bf16-m1.n32.k32-src_gptq-readout"
    assert missing_coverage(TOY, "smoke", [unclaimed]) == missing_coverage(TOY, "smoke", [])


def test_the_same_cases_every_time():
    """The arrays don't depend on the order of sets: another hash seed gives the same ids."""
    code = f"from humming_conformance.campaign.arrays import new_cases; print(*new_cases({TOY!r}, 'smoke', []))"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=HERE,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert done.stdout.split() == new_cases(TOY, "smoke", [])


def test_extend_tier_writes_lists(tmp_path, monkeypatch):
    """The command appends to the kernel's own list, returns what it added, and a second call adds nothing."""
    monkeypatch.setattr(tiers, "LISTS", tmp_path)
    load_tier.cache_clear()
    try:
        smoke = extend_tier(TOY, "smoke")
        gate = extend_tier(TOY, "gate")
        assert load_tier("gate", "claiming") == (*smoke, *gate)
        assert extend_tier(TOY, "gate") == []
        assert (tmp_path / "numerics" / "smoke" / "claiming.txt").read_text().splitlines()[1:] == smoke
    finally:
        load_tier.cache_clear()


def test_a_kernel_that_refuses_its_claims():
    """A case that a claim allows and the kernel's own `support` refuses ends the extension with its name."""
    with pytest.raises(ValueError, match=r"lying refuses .*w_int4.* though the fields and rules of a claim hold"):
        new_cases("claiming_kernel:lying", "smoke", [])


def test_wide_claims_keep_their_pairs():
    """Of QDQ's millions of schemes, the chosen ones hold every weight with every activation element."""
    schemes = {scheme for chosen in arrays._space("qdq").schemes.values() for scheme in chosen}
    weights = {(scheme.weight.element, scheme.weight.zero_point) for scheme in schemes}
    activations = {scheme.activation.element for scheme in schemes}
    met_together = {(scheme.weight.element, scheme.weight.zero_point, scheme.activation.element) for scheme in schemes}
    assert len(weights) == 18
    assert len(activations) == 9
    assert len(met_together) == 18 * 9


@pytest.mark.parametrize(
    ("shape", "classes"),
    [
        ("m1.n128.k128", ("one", "tile", "tiles")),
        ("m15.n64.k160", ("below_tile", "half_tile", "tile_tail")),
        ("m16.n96.k100", ("tile", "ragged", "group_tail")),
        ("m17.n130.k1056", ("above_tile", "unaligned", "more_groups_than_group_size")),
        ("m300.n48.k96", ("many", "narrow", "tile_tail")),
    ],
)
def test_size_classes(shape, classes):
    """Sizes are classed by where they stand to tiles and groups."""
    values = factors(parse_case(f"dense-w_int4.g32.bf16-a_bf16-{shape}-random"))
    assert (values["m"], values["n"], values["k"]) == classes


def test_costly_cases_are_not_drawn():
    """A regime that would need too many launches at a small M isn't affordable; the same at a larger M is."""
    space = CaseSpace(find_kernels(["humming"])[0].kernel)
    text = "moe_indexed-w_int4.g32.bf16-a_bf16-m{}.n128.k256.e16.top4-readout"
    assert not space.allows(parse_case(text.format(1)))
    assert space.allows(parse_case(text.format(33)))
    with pytest.raises(CaseError):
        parse_case(text.format(0))
