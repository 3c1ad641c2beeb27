# SPDX-License-Identifier: Apache-2.0
"""Is what a library chose for a case right, and what its neighbours say about it: named rules, each with its reason.

Nothing ran: a rule judges choices, as :mod:`.protocols_routing` words them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from humming_conformance.devices import DeviceProfile
from humming_conformance.devices.deserved import MEMORY_BOUND_ROWS, deserved_mma, rows_of_expert
from humming_conformance.problems import Case
from humming_conformance.protocols import Route, Ruling, Subject, Verdict
from humming_conformance.protocols_routing import Refusal, Selection
from humming_conformance.verdicts.routing_evidence import RoutingEvidence, describe

#: Exceptions that say nothing by their kind; what counts then is whether the text does.
_BARE = ("AssertionError", "KeyError", "TypeError", "IndexError", "AttributeError", "ZeroDivisionError")
#: Classes whose sums stay in the registers of the threads of a block.
_REGISTER_SUMS = ("mma", "wgmma", "mxmma")
#: Registers that a thread has at most (every architecture here), and that it needs beside its sums for anything.
_MOST_REGISTERS, _LEAST_REGISTERS = 255, 32
#: Bytes of shared memory that the driver keeps of each block from sm_80 on; a block may have all else that there is
#: (CUDA C++ Programming Guide, "Shared Memory" of each compute capability).
_RESERVED = 1024
#: Entries of a configuration that follow M itself and change no kernel: how many blocks a launch has.
_OF_THE_LAUNCH = ("num_sms",)
#: A filled device: so many tiles of 128 × 128 outputs for each multiprocessor.
_FULL_TILES = 8
#: Multiplications for each element that a tile reads; fewer, and the L2 cache decides (32 balance a multiprocessor
#: that multiplies 1024 pairs of 16 bits while 64 bytes arrive).
_LEAST_REUSE = 24


Judgement = Callable[[RoutingEvidence], str | None]


@dataclass(frozen=True)
class Rule:
    """A rule: what must hold, why, and the function that says what doesn't ("" for nothing, None: not asked here)."""

    name: str
    must: str
    why: str
    judge: Judgement


def judge_routing(subject: Subject, evidence: RoutingEvidence) -> Verdict:
    """The verdict of the routing suite: ``fail`` with every rule that a choice breaks, else ``pass``."""
    rulings = []
    for rule in RULES:
        found = rule.judge(evidence)
        if found is not None:
            rulings.append(Ruling(rule.name, "fail" if found else "pass", found))
    broken = [ruling for ruling in rulings if ruling.outcome == "fail"]
    stored = {
        "route": describe(evidence.production),
        "rules": [ruling.rule for ruling in broken],
        "selections": 4 + (evidence.renamed is not None) + len(evidence.by_rows) + len(evidence.shapes),
    }
    if not broken:
        return Verdict(subject, "routing", "pass", rulings=tuple(rulings), evidence=stored)
    reason = "; ".join(f"{ruling.rule}: {ruling.reason}" for ruling in broken)
    lines = [str(subject), f"         route: {describe(evidence.production)}"]
    for ruling in broken:
        rule = next(rule for rule in RULES if rule.name == ruling.rule)
        lines += [f"        failed: {rule.name}: {ruling.reason}", f"          must: {rule.must}, because {rule.why}"]
    return Verdict(subject, "routing", "fail", reason, "\n".join(lines), tuple(rulings), stored)


def _configuration(evidence: RoutingEvidence) -> str | None:
    if not evidence.claimed:
        return None
    refused = evidence.production.route is None
    return f"claimed, yet {describe(evidence.production)}" if refused else ""


def _legal(evidence: RoutingEvidence) -> str | None:
    selection, profile = evidence.production, evidence.profile
    route = selection.route
    if route is None:
        return None
    if selection.refusal is not None:
        # What nobody claimed may be refused as late as this; how is another rule's matter.
        return f"the library's own kernel doesn't take it: {describe(selection)}" if evidence.claimed else None
    blocks, threads = int(route.details["blocks_per_sm"]), int(route.details["threads"])
    shared = int(route.details["shared_memory_bytes"])
    tile = route.tile or (0, 0, 0)
    wrong = []
    if shared > profile.max_shared_memory_per_block_bytes:
        wrong.append(f"{shared} bytes of shared memory; a block has {profile.max_shared_memory_per_block_bytes}")
    reserved = _RESERVED if profile.sm >= 80 else 0
    if (shared + reserved) * blocks > profile.max_shared_memory_per_block_bytes + reserved:
        have = profile.max_shared_memory_per_block_bytes + reserved
        wrong.append(f"{blocks} blocks of {shared} bytes and {reserved} reserved; a multiprocessor has {have}")
    if threads > profile.max_threads_per_block:
        wrong.append(f"{threads} threads; a block has {profile.max_threads_per_block}")
    if threads * blocks > profile.max_threads_per_sm:
        wrong.append(f"{blocks} blocks of {threads} threads; a multiprocessor has {profile.max_threads_per_sm}")
    registers = min(_MOST_REGISTERS, profile.max_registers_per_sm // max(threads * blocks, 1))
    sums = tile[0] * tile[1] / max(threads, 1) if route.mma_class in _REGISTER_SUMS else 0
    if sums + _LEAST_REGISTERS > registers:
        wrong.append(f"{sums:g} registers for sums and {_LEAST_REGISTERS} besides; a thread has {registers}")
    return "; ".join(wrong)


def _mma_class(evidence: RoutingEvidence) -> str | None:
    route = evidence.production.route
    if route is None or rows_of_expert(evidence.case) <= MEMORY_BOUND_ROWS:
        return None
    deserved = deserved_mma(evidence.case, evidence.profile.sm)
    if route.mma_class in deserved.classes:
        return ""
    return f"{route.mma_class} where {' or '.join(deserved.classes)} is deserved: {deserved.reason}"


def _rows(evidence: RoutingEvidence) -> str | None:
    """Between M and M ± 1: refused or not, and how many rows are computed."""
    near = {m: evidence.by_rows[m] for m in sorted(evidence.by_rows) if abs(m - evidence.case.problem.m) <= 1}
    if len(near) < 2:
        return None
    wrong = []
    for (m, one), (next_m, other) in pairwise(near.items()):
        if (one.refusal is None) != (other.refusal is None):
            wrong.append(f"M={m} {describe(one)}, M={next_m} {describe(other)}")
        elif one.route and other.route and not evidence.case.problem.experts:
            computed, then = _computed_rows(one.route, m), _computed_rows(other.route, next_m)
            if max(computed, then) > 2 * max(min(computed, then), 16):
                wrong.append(f"M={m} computes {computed} rows, M={next_m} {then}")
    return "; ".join(wrong)


def _computed_rows(route: Route, m: int) -> int:
    block = route.tile[0] if route.tile else 1
    return -(-m // block) * block


def _growth(evidence: RoutingEvidence) -> str | None:
    """From the first M that fills the device twice over: no tile of less than half the size, no slower class."""
    wrong = []
    full = [(m, found.route) for m, found in sorted(evidence.by_rows.items()) if found.route and not found.refusal]
    full = [(m, route) for m, route in full if _tiles(evidence.case, m, route) >= 2 * _places(evidence.profile, route)]
    if len(full) < 2:
        return None
    for (m, route), (next_m, other) in pairwise(full):
        if _area(other) * 2 < _area(route):
            wrong.append(f"M={m} {_shape(route)}, M={next_m} {_shape(other)}")
        elif other.mma_class == "mma" and route.mma_class != "mma":
            wrong.append(f"M={m} {route.mma_class}, M={next_m} {other.mma_class}")
    return "; ".join(wrong)


def _reuse(evidence: RoutingEvidence) -> str | None:
    """At a load that fills the device: how often a tile uses what it reads."""
    route = evidence.production.route
    if route is None or route.tile is None or evidence.production.refusal:
        return None
    outputs = evidence.case.problem.rows * evidence.case.problem.n
    if outputs < _FULL_TILES * evidence.profile.sm_count * 128 * 128 or rows_of_expert(evidence.case) < 128:
        return None
    reuse = _area(route) / (route.tile[0] + route.tile[1])
    return "" if reuse >= _LEAST_REUSE else f"tile {_shape(route)} multiplies {reuse:.0f} times for each element read"


def _tiles(case: Case, m: int, route: Route) -> float:
    tile = route.tile or (1, 1, 1)
    return m * case.problem.top_k / tile[0] * case.problem.n / tile[1]


def _places(profile: DeviceProfile, route: Route) -> int:
    return profile.sm_count * int(route.details["blocks_per_sm"])


def _area(route: Route) -> int:
    tile = route.tile or (0, 0, 0)
    return tile[0] * tile[1]


def _shape(route: Route) -> str:
    return "x".join(map(str, route.tile or ()))


def _shapes(evidence: RoutingEvidence) -> str | None:
    """Between N or K and the next one that is as good: refused or not, and the class where arithmetic decides."""
    if not evidence.shapes:
        return None
    wrong = []
    own = evidence.production
    decides = rows_of_expert(evidence.case) > MEMORY_BOUND_ROWS
    for label, other in evidence.shapes.items():
        if (own.refusal is None) != (other.refusal is None):
            wrong.append(f"{describe(own)}; {label}: {describe(other)}")
        elif decides and own.route and other.route and own.route.mma_class != other.route.mma_class:
            wrong.append(f"{own.route.mma_class}; {label}: {other.route.mma_class}")
    return "; ".join(wrong)


def _renamed(evidence: RoutingEvidence) -> str | None:
    if evidence.renamed is None:
        return None
    difference = _difference(evidence.production, evidence.renamed)
    return f"a device of another name: {difference}" if difference else ""


def _smaller(evidence: RoutingEvidence) -> str | None:
    own, other = evidence.production, evidence.smaller
    if (own.refusal is None) != (other.refusal is None):
        return f"{describe(own)}; with fewer multiprocessors {describe(other)}"
    decides = rows_of_expert(evidence.case) > MEMORY_BOUND_ROWS
    if decides and own.route and other.route and own.route.mma_class != other.route.mma_class:
        return f"{own.route.mma_class}; with fewer multiprocessors {other.route.mma_class}"
    return ""


def _under_pytest(evidence: RoutingEvidence) -> str | None:
    difference = _difference(evidence.production, evidence.under_pytest)
    return f"while a test runs: {difference}" if difference else ""


def _single_m(evidence: RoutingEvidence) -> str | None:
    difference = _difference(evidence.production, evidence.single_m, ignored=_OF_THE_LAUNCH)
    return f"asked for this M alone: {difference}" if difference else ""


def _shared(evidence: RoutingEvidence) -> str | None:
    return evidence.shared


def _accepted(evidence: RoutingEvidence) -> str | None:
    return evidence.accepted


def _compatibility(evidence: RoutingEvidence) -> str | None:
    said, served = evidence.compatible, evidence.production.refusal is None
    if said is None:
        return None
    if isinstance(said, str):
        return f"the compatibility function raises {said}"
    if said == served:
        return ""
    if said:
        return f"said to be compatible, yet {describe(evidence.production)}"
    return f"said to be incompatible, yet served by {describe(evidence.production)}"


def _refusal(evidence: RoutingEvidence) -> str | None:
    refusal = evidence.production.refusal
    if refusal is None:
        return None
    wrong = []
    if refusal.stage != "layer":
        wrong.append(f"refused at stage {refusal.stage}, after the weights were transformed")
    if not _clear(refusal):
        wrong.append(f"refused with {refusal.kind}: {refusal.message or 'no message'}"[:120])
    return f"{' and '.join(wrong)}, at {refusal.place}" if wrong else ""


def _clear(refusal: Refusal) -> bool:
    """Whether somebody meant to refuse, and said why."""
    return refusal.interface and bool(refusal.message.strip()) and refusal.kind.rpartition(".")[2] not in _BARE


def _difference(one: Selection, other: Selection, ignored: tuple[str, ...] = ()) -> str:
    """How two answers differ, in one line; empty where they don't, as two refusals do."""
    if one.refusal is not None and other.refusal is not None:
        return ""
    if one.refusal is not None or other.refusal is not None or one.route is None or other.route is None:
        return f"{describe(other)} instead of {describe(one)}"
    mine, its = one.route.details["tuning_config"], other.route.details["tuning_config"]
    keys = [key for key in mine.keys() | its.keys() if key not in ignored and mine.get(key) != its.get(key)]
    return "; ".join(f"{key} {its.get(key)} instead of {mine.get(key)}" for key in sorted(keys))


RULES: tuple[Rule, ...] = (
    Rule("configuration", "what is claimed has a configuration", "a claim is what users choose by", _configuration),
    Rule(
        "legal",
        "the kernel takes the configuration, and the device has the threads, registers and shared memory for it",
        "what isn't legal fails at the first call, in production",
        _legal,
    ),
    Rule(
        "mma_class",
        "above 64 rows of an expert the tensor-core instructions are those that the formats deserve",
        "there arithmetic decides, and older instructions have a fraction of the rate",
        _mma_class,
    ),
    Rule(
        "row_neighbours",
        "M and M ± 1 are both served, and neither computes more than twice the other's rows",
        "one token more or less is no cause to fail or to take twice as long",
        _rows,
    ),
    Rule(
        "shape_neighbours",
        "N and K next to it are served alike, by the same class of instructions",
        "sizes differ by a shard or a model, and padding costs less than a slower class",
        _shapes,
    ),
    Rule(
        "renamed_device",
        "a device with another name gets the same configuration",
        "names change by board and vendor; what decides is what the device has",
        _renamed,
    ),
    Rule(
        "smaller_device",
        "a device with fewer multiprocessors is served alike, by the same class of instructions",
        "boards and partitions of one chip differ in their number",
        _smaller,
    ),
    Rule(
        "tile_growth",
        "where M fills the device twice over, a larger M gets no tile of less than half the size and no slower class",
        "more work of the same kind is no cause to use each byte less",
        _growth,
    ),
    Rule(
        "tile_reuse",
        "at a load that fills the device a tile multiplies at least 24 times for each element that it reads",
        "below that the L2 cache decides how long it takes",
        _reuse,
    ),
    Rule(
        "compatibility",
        "the library's own compatibility function says what the library then does",
        "callers choose by it, before they load weights",
        _compatibility,
    ),
    Rule(
        "under_pytest",
        "a running test changes no choice",
        "what is tested must be what runs in production",
        _under_pytest,
    ),
    Rule(
        "single_m",
        "asked for one M the library names the configuration of its own list's entry, launch width apart",
        "callers that ask for one M must get the kernel that was compiled and tested",
        _single_m,
    ),
    Rule(
        "shared_state",
        "no caller can change another's answer",
        "one layer's tuning must not reach the next",
        _shared,
    ),
    Rule(
        "accepted_route",
        "the library's list for a layer is the accepted one (humming-conformance routes record accepts another)",
        "a changed route is seen before it ships, with the old one beside it",
        _accepted,
    ),
    Rule(
        "clear_refusal",
        "what is refused is refused by an error that says why, before any weight is touched",
        "a refusal after minutes of loading, or without words, is a crash to whoever meets it",
        _refusal,
    ),
)
