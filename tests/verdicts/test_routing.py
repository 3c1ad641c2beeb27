# SPDX-License-Identifier: Apache-2.0
"""Each rule of routing, broken alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from humming_conformance.devices import load_profile
from humming_conformance.devices.deserved import deserved_mma
from humming_conformance.problems import parse_case
from humming_conformance.protocols import Route, Subject
from humming_conformance.protocols_routing import Refusal, Selection
from humming_conformance.verdicts.routing import RULES, judge_routing
from humming_conformance.verdicts.routing_evidence import RoutingEvidence

CASE = parse_case("dense-w_int4.g128.bf16-a_bf16-m256.n4096.k4096-random")
LARGE = parse_case("dense-w_int4.g128.bf16-a_bf16-m8192.n8192.k4096-random")
SMALL = parse_case("dense-w_int4.g128.bf16-a_bf16-m16.n4096.k4096-random")
H100 = load_profile("h100")


def selection(mma="wgmma", tile=(128, 128, 64), *, blocks=1, threads=384, shared=100_000, refusal=None, **config):
    """A choice with all that the rules look at; more words are entries of the library's configuration."""
    details = {
        "blocks_per_sm": blocks,
        "threads": threads,
        "shared_memory_bytes": shared,
        "tuning_config": {"mma_type": mma, "block_shape": list(tile), "num_sms": 132, **config},
    }
    return Selection(Route(mma, mma, tile, 4, details=details), refusal)


def refused(stage="layer", kind="ValueError", message="bf16 needs sm_80", *, interface=True):
    """A refusal; one that nobody could object to, unless told otherwise."""
    return Selection(None, Refusal(stage, kind, message, "config/config.py:304 __post_init__", interface))


def evidence(case=CASE, chosen=None, **changes):
    """Evidence that keeps every rule, but for what is changed; ``chosen`` is every answer that isn't."""
    chosen = chosen or selection()
    same = {"production": chosen, "single_m": chosen, "under_pytest": chosen, "renamed": chosen, "smaller": chosen}
    rows = {case.problem.m + step: chosen for step in (-1, 0, 1)}
    shapes = {"N=4224": chosen, "K=4224": chosen}
    given = {"compatible": chosen.refusal is None, "shared": "", "by_rows": rows, "shapes": shapes, **same, **changes}
    return RoutingEvidence(case=case, claimed=given.pop("claimed", chosen.refusal is None), profile=H100, **given)


def broken(found):
    """The rules that evidence breaks."""
    verdict = judge_routing(Subject("humming", found.case.id, "h100"), found)
    rules = [ruling.rule for ruling in verdict.rulings if ruling.outcome == "fail"]
    assert (verdict.outcome == "fail") == bool(rules)
    assert all(f"failed: {rule}: " in verdict.message for rule in rules)
    return rules


def rows(*answers):
    """Answers by M, each with its M."""
    return {"by_rows": dict(answers)}


SLOW = selection("mma", threads=256)
NAMELESS = refused(kind="AssertionError", message="")

BROKEN = {
    "configuration": evidence(chosen=refused(), claimed=True),
    "legal": evidence(chosen=selection(shared=300_000)),
    "mma_class": evidence(chosen=SLOW),
    "row_neighbours": evidence(**rows((255, selection()), (256, selection()), (257, refused()))),
    "shape_neighbours": evidence(shapes={"N=4224": SLOW}),
    "renamed_device": evidence(renamed=selection(num_stages=3)),
    "smaller_device": evidence(smaller=SLOW),
    "tile_growth": evidence(LARGE, **rows((4096, selection()), (8192, selection(tile=(56, 128, 64))))),
    "tile_reuse": evidence(LARGE, selection(tile=(16, 128, 64))),
    "compatibility": evidence(compatible=False),
    "under_pytest": evidence(under_pytest=selection(use_tma=True)),
    "single_m": evidence(single_m=selection(tile=(64, 128, 64))),
    "shared_state": evidence(shared="a caller that sets num_stages has set it in the next caller's"),
    "accepted_route": evidence(accepted="- 1-32 mma 16x128x128; + 1-32 mma 8x128x128"),
    "clear_refusal": evidence(chosen=NAMELESS),
}


def test_every_rule_has_a_breach():
    """No rule is without evidence that breaks it."""
    assert [rule.name for rule in RULES] == list(BROKEN)


def test_right_choices_keep_every_rule():
    """A choice, one at a load that fills the device, one where the weights decide, and a clear refusal."""
    assert broken(evidence()) == []
    assert broken(evidence(LARGE)) == []
    assert broken(evidence(SMALL, SLOW)) == []
    assert broken(evidence(chosen=refused())) == []


@pytest.mark.parametrize("rule", BROKEN)
def test_a_breach_is_that_rules_alone(rule):
    """Evidence that breaks a rule breaks it, and no other."""
    assert broken(BROKEN[rule]) == [rule]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"shared": 233_000}, "233000 bytes of shared memory; a block has 232448"),
        ({"blocks": 2, "threads": 256, "shared": 116_000}, "2 blocks of 116000 bytes and 1024 reserved"),
        ({"threads": 1056}, "1056 threads; a block has 1024"),
        ({"blocks": 3, "threads": 768, "shared": 50_000}, "3 blocks of 768 threads; a multiprocessor has 2048"),
        ({"tile": (256, 256, 64), "threads": 256}, "256 registers for sums and 32 besides; a thread has 255"),
    ],
)
def test_what_a_device_lacks_is_named(change, told):
    """Each limit of the device, exceeded alone, and by how much."""
    found = judge_routing(Subject("humming", CASE.id, "h100"), evidence(chosen=selection(**change)))
    assert told in found.reason


def test_a_kernel_that_takes_no_claimed_configuration_is_illegal():
    """Selection names a configuration that the kernel's own checks refuse: for whoever claims it, no refusal."""
    refusal = Refusal("kernel", "AssertionError", "", "kernel/humming.py:364 check_shape", interface=True)
    chosen = selection(refusal=refusal)
    assert "legal" in broken(evidence(chosen=chosen, claimed=True))
    assert broken(evidence(chosen=chosen, claimed=False)) == ["clear_refusal"]


@pytest.mark.parametrize(
    "refusal",
    [
        refused(stage="selection"),
        refused(message=" "),
        refused(kind="KeyError", message="'bfloat16'"),
        refused(interface=False),
    ],
)
def test_unclear_refusals(refusal):
    """Too late, without words, with a lookup's own exception, or from the middle of something else."""
    assert broken(evidence(chosen=refusal)) == ["clear_refusal"]


def test_neighbours_may_compute_twice_the_rows():
    """From M=256 to 257 a tile of 128 rows makes three tiles of two; one of 256 computes as many again, no more."""
    wide, wider = selection(tile=(256, 128, 64)), selection(tile=(520, 64, 64))
    assert broken(evidence(**rows((256, selection()), (257, wide)))) == []
    assert broken(evidence(**rows((256, selection()), (257, wider)))) == ["row_neighbours"]


def test_a_launch_may_have_its_own_width():
    """How many blocks are launched follows M itself; that is no other kernel."""
    assert broken(evidence(single_m=selection(num_sms=100))) == []


def test_two_refusals_agree():
    """Another exception for one M alone is the refusal's matter."""
    assert broken(evidence(chosen=refused(), single_m=refused(kind="KeyError"))) == []


@pytest.mark.parametrize(
    ("scheme", "sm", "classes"),
    [
        ("w_int4.g128.bf16-a_bf16", 80, ("mma",)),
        ("w_int4.g128.bf16-a_bf16", 90, ("wgmma",)),
        ("w_int4.g128.bf16-a_bf16", 100, ("umma",)),
        ("w_int4.g128.bf16-a_bf16", 120, ("mma",)),
        ("w_fp8_e4m3.channel.bf16-a_fp8_e4m3.token", 89, ("mma",)),
        ("w_fp8_e4m3.channel.bf16-a_fp8_e4m3.token", 103, ("umma",)),
        ("w_fp8_e4m3.b128x128.fp32-a_fp8_e4m3.g128", 100, ("umma",)),
        ("w_fp4_e2m1.g32.fp8_e4m3-a_fp8_e4m3.g32", 100, ("umma", "mma")),
        ("w_fp4_e2m1.g32.ue8m0-a_fp8_e4m3.g32", 110, ("umma",)),
        ("w_fp4_e2m1.g32.ue8m0-a_fp8_e4m3.g32", 121, ("mxmma",)),
        ("w_int8.channel.bf16-a_int8.token", 100, ("umma",)),
        ("w_int8.channel.bf16-a_int8.token", 103, ("umma", "mma")),
    ],
)
def test_what_formats_deserve(scheme, sm, classes):
    """The table's answer for each generation, with a reason."""
    found = deserved_mma(parse_case(f"dense-{scheme}-m256.n4096.k4096-random"), sm)
    assert found.classes == classes
    assert found.reason


def test_experts_share_the_rows():
    """512 rows of 64 experts are 8 for each: the weights decide, and any instruction will do."""
    case = parse_case("moe_indexed-w_int4.g128.bf16-a_bf16-m256.n4096.k4096.e64.top2-random")
    assert broken(replace(evidence(case, SLOW), by_rows={}, shapes={})) == []
