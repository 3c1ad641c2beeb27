# SPDX-License-Identifier: Apache-2.0
"""The record of failed builds beside a ledger."""

from __future__ import annotations

from humming_conformance.ledger import (
    FailedBuild,
    Head,
    Planned,
    merge,
    read_failed_builds,
    resume,
    start,
    write_failed_builds,
)
from humming_conformance.protocols import Subject

SUBJECTS = (Subject("humming", "dense-a", "h200"), Subject("humming", "dense-b", "h200"))
FAILED = FailedBuild("k1", "tile 16×64", "a.cu(3): error: no", "line\nline", SUBJECTS)
HEAD = Head({}, "smoke", ("pytest",), tuple(Planned("numerics", subject) for subject in SUBJECTS))


def test_written_and_read(tmp_path):
    """What is read is what was written last; without failed builds there is no file."""
    assert read_failed_builds(tmp_path) == ()
    write_failed_builds(tmp_path, [FAILED])
    assert read_failed_builds(tmp_path) == (FAILED,)
    write_failed_builds(tmp_path, ())
    assert list(tmp_path.iterdir()) == []


def test_merge_and_resume_leave_it_alone(tmp_path):
    """It is no part of the ledger: a run with it merges and is resumed as without."""
    folder = tmp_path / "ledger"
    start(folder, HEAD)
    write_failed_builds(folder, [FAILED])
    merged = merge(folder, HEAD.plan, {}, "Ctrl-C")
    assert [verdict.outcome for verdict in merged.verdicts] == ["not_run", "not_run"]
    assert resume(folder, HEAD, ()) == {}
    assert read_failed_builds(folder) == (FAILED,)
