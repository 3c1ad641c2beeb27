# SPDX-License-Identifier: Apache-2.0
"""A baseline file: the measurements of one kernel with one library build on one model of device.

JSON, sorted and one case a line, so that a change of one case is a change of one line (docs/performance.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

SCHEMA = 1


class BaselineError(ValueError):
    """A baseline file can't be used; the text names it, the rule and the mend."""


@dataclass(frozen=True)
class Ratio:
    """A case's time over one anchor's, in logarithms.

    Attributes:
        mean: over machines, of the means over processes.
        process_sd: standard deviation between processes of one machine, pooled over machines.
        processes: on all machines.
        machine_sd: standard deviation of the machines' means; None for one machine.
        machines: how many GPUs of the model.
    """

    mean: float
    process_sd: float
    processes: int
    machine_sd: float | None
    machines: int


@dataclass(frozen=True)
class CaseBaseline:
    """One case: the anchor it is judged by, its ratio to each anchor, its own time in microseconds (for people)."""

    anchor: str
    ratios: Mapping[str, Ratio]
    microseconds: float


@dataclass(frozen=True)
class Baseline:
    """What a file holds.

    Attributes:
        device, kernel: as subjects name them.
        library: version of the judged library, empty for a kernel without one.
        mode: ``cold`` or ``warm`` L2.
        provenance: driver, CUDA, torch, triton, build hash, our commit, dates, commands; JSON-able, for people.
        cases: by case id.
    """

    device: str
    kernel: str
    library: str
    mode: str
    provenance: Mapping[str, Any]
    cases: Mapping[str, CaseBaseline] = field(default_factory=dict)


def baseline_path(folder: Path, device: str, kernel: str, library: str) -> Path:
    """Where the baseline of a kernel with a library version on a device lies below ``folder``."""
    name = f"{kernel}-{library}" if library else kernel
    return folder / "performance" / device / f"{re.sub(r'[^A-Za-z0-9_.+-]', '_', name)}.json"


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Write a file, whole or not at all."""
    head = {item.name: getattr(baseline, item.name) for item in fields(Baseline) if item.name != "cases"}
    lines = [
        f"  {json.dumps(case_id)}: {json.dumps(asdict(case), sort_keys=True)}"
        for case_id, case in sorted(baseline.cases.items())
    ]
    start = json.dumps({"schema": SCHEMA, **head}, indent=1, sort_keys=True).rstrip("}\n ")
    body = ",\n".join(lines)
    text = f'{start},\n "cases": {{\n{body}\n }}\n}}\n'
    json.loads(text)  # never a file that can't be read back
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def read_baseline(path: Path) -> Baseline:
    """Read a file.

    Raises:
        BaselineError: it isn't there, is no baseline, is damaged or of a newer schema.
    """
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BaselineError(f"baseline {path}: no such file; record one with `baseline record`") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BaselineError(f"baseline {path}: no JSON ({error}); restore the file or record it again") from error
    schema = stored.pop("schema", None) if isinstance(stored, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool):
        raise BaselineError(f"baseline {path}: it has no schema number, so it is no baseline; name a baseline file")
    if schema > SCHEMA:
        raise BaselineError(
            f"baseline {path}: schema {schema} is newer than {SCHEMA}, which this version reads; upgrade"
        )
    try:
        cases = {
            case_id: CaseBaseline(
                case["anchor"],
                {name: Ratio(**ratio) for name, ratio in case["ratios"].items()},
                float(case["microseconds"]),
            )
            for case_id, case in stored.pop("cases").items()
        }
        baseline = Baseline(**stored, cases=cases)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BaselineError(
            f"baseline {path}: a field is missing, unknown or of another type ({error}); restore the file"
        ) from error
    for case_id, case in cases.items():
        if case.anchor not in case.ratios:
            raise BaselineError(f"baseline {path}: {case_id} is judged by {case.anchor!r}, of which it has no ratio")
    return baseline
