# SPDX-License-Identifier: Apache-2.0
"""Slow paths that need no baseline to be seen: by the roof, by the anchors, by the neighbours among a run's cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from humming_conformance.problems import Case
from humming_conformance.problems.families import DECODE_ROWS

#: From so many rows on a kernel is bound by the matrix rate.
PREFILL_ROWS = 1024
#: What a decode kernel may take: so many times the launch of an empty kernel, and its bytes at this part of the read
#: bandwidth. On an H200 the best kernels need 7 us (five launches) and 0.87 of it.
DECODE_LAUNCHES, DECODE_BANDWIDTH = 5.0, 0.4
#: How much slower than the explicit form, dequantization and GEMM, a kernel may be.
QDQ_FACTOR = 1.0
#: How much slower than the same product of 16-bit operands a dense prefill may be: less memory may cost some speed.
UNQUANTIZED_FACTOR = 1.25
#: A step to more rows, columns or depth may cost its own factor in work, and this; a step down no more than this.
CLIFF_FACTOR = 1.3
#: Fewer bits a weight, fp8 instead of 16-bit activations, indexed instead of grouped: at the most so much slower.
FEWER_BITS_FACTOR, FP8_FACTOR, INDEXED_FACTOR = 1.15, 1.05, 1.25


@dataclass(frozen=True)
class Speed:
    """What was measured of a case: medians over processes, seconds.

    Attributes:
        seconds: of one launch.
        anchors: of the anchors, by name.
        read: measured read bandwidth, bytes a second.
        launch: of an empty kernel.
        bytes: that the case moves at the least.
    """

    seconds: float
    anchors: Mapping[str, float]
    read: float
    launch: float
    bytes: int


@dataclass(frozen=True)
class SlowPath:
    """What a rule says of a case: nothing (empty ``trouble``) or why it is on a slow path."""

    rule: str
    trouble: str


#: A rule: the case, the speeds of all cases of its kernel; a sentence, empty, or None where it has nothing to compare.
Rule = Callable[[Case, Mapping[Case, Speed]], str | None]


def slow_paths(case: Case, speeds: Mapping[Case, Speed]) -> list[SlowPath]:
    """What every rule that applies says of a case.

    Args:
        case: one of ``speeds``.
        speeds: the cases of one kernel that were measured in a run.
    """
    found = ((name, rule(case, speeds)) for name, rule in RULES.items())
    return [SlowPath(name, trouble) for name, trouble in found if trouble is not None]


def _qdq(case: Case, speeds: Mapping[Case, Speed]) -> str | None:
    return _beside_anchor(speeds[case], "qdq", QDQ_FACTOR, "QDQ (dequantization and GEMM)")


def _unquantized(case: Case, speeds: Mapping[Case, Speed]) -> str | None:
    if case.problem.kind != "dense" or case.problem.m < PREFILL_ROWS:
        return None
    return _beside_anchor(speeds[case], "gemm", UNQUANTIZED_FACTOR, "the same product of 16-bit operands")


def _decode(case: Case, speeds: Mapping[Case, Speed]) -> str | None:
    if case.problem.rows > DECODE_ROWS:
        return None
    speed = speeds[case]
    allowed = DECODE_LAUNCHES * speed.launch + speed.bytes / (DECODE_BANDWIDTH * speed.read)
    if speed.seconds <= allowed:
        return ""
    return (
        f"{_us(speed.seconds)}, more than {_us(allowed)}: {DECODE_LAUNCHES:g} launches of {_us(speed.launch)} and "
        f"{speed.bytes / 1e6:.1f} MB at {DECODE_BANDWIDTH:g} of {speed.read / 1e12:.2f} TB/s"
    )


def _cliff(case: Case, speeds: Mapping[Case, Speed]) -> str | None:
    troubles, compared = [], False
    for name in ("m", "n", "k"):
        family = sorted(
            (other for other in speeds if _with_size(other, name, 0) == _with_size(case, name, 0)),
            key=lambda other: _size(other, name),
        )
        for small, large in pairwise(family):
            if case not in (small, large):
                continue
            compared = True
            work = _size(large, name) / _size(small, name)
            ratio = speeds[large].seconds / speeds[small].seconds
            if ratio > work * CLIFF_FACTOR and case == large:
                troubles.append(
                    f"{ratio:.2f} times as long as {name.upper()}={_size(small, name)}, for {work:.2f} times the work"
                )
            if ratio < 1 / CLIFF_FACTOR and case == small:
                troubles.append(
                    f"{1 / ratio:.2f} times as long as {name.upper()}={_size(large, name)}, which is more work"
                )
    return "; ".join(troubles) if compared else None


def _fewer_bits(case: Case, speeds: Mapping[Case, Speed]) -> str | None:
    wider = [
        other
        for other in speeds
        if other.problem == case.problem
        and other.activation == case.activation
        and other.output == case.output
        and other.weight.format.bits > case.weight.format.bits
    ]
    return _beside_cases(case, wider, speeds, FEWER_BITS_FACTOR) if case.problem.rows <= DECODE_ROWS else None


def _fp8(case: Case, speeds: Mapping[Case, Speed]) -> str | None:
    if case.activation.element != "fp8_e4m3" or case.problem.rows < PREFILL_ROWS:
        return None
    alike = [
        other
        for other in speeds
        if other.problem == case.problem and other.weight == case.weight and other.activation.granularity is None
    ]
    return _beside_cases(case, alike, speeds, FP8_FACTOR)


def _indexed(case: Case, speeds: Mapping[Case, Speed]) -> str | None:
    if case.problem.kind != "moe_indexed":
        return None
    grouped = [
        other
        for other in speeds
        if other.problem.kind.startswith("moe_grouped")
        and replace(other, problem=replace(other.problem, kind="moe_indexed")) == case
    ]
    return _beside_cases(case, grouped, speeds, INDEXED_FACTOR)


#: Every rule by its name in rulings.
RULES: dict[str, Rule] = {
    "slower than QDQ": _qdq,
    "slower than unquantized": _unquantized,
    "below the bandwidth of decode": _decode,
    "cliff between neighbours": _cliff,
    "fewer bits are slower": _fewer_bits,
    "fp8 is slower than 16 bits": _fp8,
    "indexed is slower than grouped": _indexed,
}


def _beside_anchor(speed: Speed, anchor: str, factor: float, what: str) -> str | None:
    if anchor not in speed.anchors:
        return None
    ratio = speed.seconds / speed.anchors[anchor]
    return f"{_us(speed.seconds)}, {ratio:.2f} times as long as {what}" if ratio > factor else ""


def _beside_cases(case: Case, others: list[Case], speeds: Mapping[Case, Speed], factor: float) -> str | None:
    if not others:
        return None
    fastest = min(others, key=lambda other: speeds[other].seconds)
    ratio = speeds[case].seconds / speeds[fastest].seconds
    return f"{_us(speeds[case].seconds)}, {ratio:.2f} times as long as {fastest.id}" if ratio > factor else ""


def _size(case: Case, name: str) -> int:
    return int(getattr(case.problem, name))


def _with_size(case: Case, name: str, value: int) -> tuple[object, ...]:
    """All of a case but one size: equal for the cases of a family along that size."""
    sizes = {
        size: getattr(case.problem, size)
        for size in ("m", "n", "k", "experts", "top_k", "distribution", "bias", "kind")
    }
    return (
        case.weight,
        case.activation,
        case.output,
        case.call,
        case.regime,
        case.seed,
        *({**sizes, name: value}).values(),
    )


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} us"
