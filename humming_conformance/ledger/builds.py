# SPDX-License-Identifier: Apache-2.0
"""``failed_builds.json`` beside a ledger: what was compiled ahead of a run's cases and failed.

Whoever begins or resumes a run writes it before anything is judged; it is read by those who judge, and by people. The
verdicts of the cases say the same, so that neither a merge nor a resumed run needs it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from humming_conformance.ledger.writer import replace_text
from humming_conformance.protocols import Subject

NAME = "failed_builds.json"
_SCHEMA = 1


@dataclass(frozen=True)
class FailedBuild:
    """A unit that did not build.

    Attributes:
        key, description: as the adapter gave them.
        error: the compiler's first error line, or the first line of what was raised.
        log: the end of what the compiler printed, and the traceback.
        subjects: the subjects that need it.
    """

    key: str
    description: str
    error: str
    log: str
    subjects: tuple[Subject, ...]


def write_failed_builds(folder: Path, builds: Sequence[FailedBuild]) -> None:
    """Replace the file in a ledger folder; without failed builds there is none."""
    path = folder / NAME
    if not builds:
        path.unlink(missing_ok=True)
        return
    units = [asdict(build) | {"subjects": list(map(str, build.subjects))} for build in builds]
    replace_text(path, json.dumps({"schema": _SCHEMA, "units": units}, indent=1) + "\n")


def read_failed_builds(folder: Path) -> tuple[FailedBuild, ...]:
    """The failed builds of the run in a ledger folder."""
    path = folder / NAME
    if not path.exists():
        return ()
    units = json.loads(path.read_text(encoding="utf-8"))["units"]
    return tuple(FailedBuild(**unit | {"subjects": tuple(map(Subject.parse, unit["subjects"]))}) for unit in units)
