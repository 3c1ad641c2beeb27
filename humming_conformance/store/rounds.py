# SPDX-License-Identifier: Apache-2.0
"""The raw data of performance campaigns: a line of JSON for each subject and process, and what baselines make of it."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from humming_conformance.problems import parse_case
from humming_conformance.problems.families import timing_family
from humming_conformance.store.baseline import BaselineError, CaseBaseline, Ratio

SCHEMA = 1


@dataclass(frozen=True)
class Timing:
    """What one process measured of one subject.

    Attributes:
        kernel, case, device: the subject.
        machine: names the GPU: its UUID.
        process: names the process on that machine.
        seconds: by name, ``kernel`` and anchors: of each cycle.
        roofs: fields of :class:`~humming_conformance.measure.roofs.Roofs`, of that process.
        found: whatever else the process tells: bytes, operations, route, disturbances…
    """

    kernel: str
    case: str
    device: str
    machine: str
    process: str
    seconds: Mapping[str, Sequence[float]]
    roofs: Mapping[str, float]
    found: Mapping[str, Any] = field(default_factory=dict)

    def log_ratio(self, anchor: str) -> float:
        """Log of the kernel's time over an anchor's: the median over cycles, of which one may have met anything."""
        pairs = zip(self.seconds["kernel"], self.seconds[anchor], strict=True)
        return median(math.log(own / other) for own, other in pairs)

    @property
    def anchors(self) -> list[str]:
        """Names of what was timed beside the kernel."""
        return [name for name in self.seconds if name != "kernel"]

    @property
    def microseconds(self) -> float:
        """The kernel's own time: the median over cycles."""
        return median(self.seconds["kernel"]) * 1e6


def append_timings(path: Path, timings: Iterable[Timing]) -> None:
    """Add lines to a file, which is made if there is none; a reader skips a last line that was cut off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for timing in timings:
            file.write(json.dumps({"schema": SCHEMA, **asdict(timing)}) + "\n")


def read_timings(path: Path) -> list[Timing]:
    """The lines of a file, but for a last one without an end.

    Raises:
        BaselineError: it is no file of timings, or of a newer schema.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise BaselineError(f"timings {path}: can't be read ({error}); name a file that a campaign wrote") from error
    timings = []
    for number, line in enumerate(lines, 1):
        if number == len(lines) and not line.endswith("\n"):
            break
        try:
            stored = json.loads(line)
            schema = stored.pop("schema")
            if schema > SCHEMA:
                raise BaselineError(
                    f"timings {path}, line {number}: schema {schema} is newer than {SCHEMA}, which this version reads; "
                    "upgrade"
                )
            timings.append(Timing(**stored))
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise BaselineError(
                f"timings {path}, line {number}: no timing ({type(error).__name__}: {error}); remove the line"
            ) from error
    return timings


def case_baselines(timings: Iterable[Timing]) -> dict[str, CaseBaseline]:
    """What is stored of the timings of one kernel, by case, from any number of processes and machines.

    All cases of a family (:func:`.families.timing_family`) have one anchor: that whose ratio differs least between
    machines, on one machine between processes, in root mean square over the family. A case's own spread between two or
    three machines says too little to choose by.
    """
    by_case: dict[str, list[Timing]] = defaultdict(list)
    for timing in timings:
        by_case[timing.case].append(timing)
    ratios = {
        case: {anchor: ratio_of(found, anchor) for anchor in sorted(set.intersection(*(set(t.anchors) for t in found)))}
        for case, found in by_case.items()
    }
    families: dict[str, list[str]] = defaultdict(list)
    for case in by_case:
        families[timing_family(parse_case(case))].append(case)
    anchors = {case: _best([ratios[other] for other in alike]) for alike in families.values() for case in alike}
    return {
        case: CaseBaseline(anchors[case], ratios[case], round(median(t.microseconds for t in found), 3))
        for case, found in by_case.items()
    }


def _best(ratios: Sequence[Mapping[str, Ratio]]) -> str:
    """The anchor that travels best among those that all of these cases have."""

    def spread(anchor: str) -> float:
        each = (ratio[anchor] for ratio in ratios)
        return fmean((r.process_sd if r.machine_sd is None else r.machine_sd) ** 2 for r in each)

    return min(sorted(set.intersection(*(set(each) for each in ratios))), key=spread)


def ratio_of(timings: Iterable[Timing], anchor: str) -> Ratio:
    """Mean and spreads of the log ratio to one anchor."""
    by_machine: dict[str, list[float]] = defaultdict(list)
    for timing in timings:
        by_machine[timing.machine].append(timing.log_ratio(anchor))
    means = [fmean(values) for values in by_machine.values()]
    freedom = sum(len(values) - 1 for values in by_machine.values())
    squares = sum((value - fmean(values)) ** 2 for values in by_machine.values() for value in values)
    return Ratio(
        mean=round(fmean(means), 6),
        process_sd=round(math.sqrt(squares / freedom), 6) if freedom else 0.0,
        processes=sum(map(len, by_machine.values())),
        machine_sd=round(stdev(means), 6) if len(means) > 1 else None,
        machines=len(means),
    )
