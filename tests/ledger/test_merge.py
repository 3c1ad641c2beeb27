# SPDX-License-Identifier: Apache-2.0
"""The merge of a run: plan = verdicts, whatever its workers met."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import humming_conformance
from humming_conformance.ledger import (
    Head,
    Ledger,
    LedgerError,
    Planned,
    ShardWriter,
    merge,
    read_ledger,
    resume,
    start,
)
from humming_conformance.ledger.jsonl import format_record
from humming_conformance.ledger.records import Entry
from humming_conformance.protocols import Outcome, Subject, Verdict

HEAD = Head({"gpu": "h200", "build": "abc", "index": (0,)}, "gate", ("pytest", "suites"))


def planned(name: str) -> Planned:
    """The plan entry of the numerics suite for the case ``name``."""
    return Planned("numerics", Subject("qdq", name, "cpu"))


def verdict(name: str, outcome: Outcome = "pass", reason: str = "") -> Verdict:
    """A verdict on :func:`planned` of the same name."""
    return Verdict(planned(name).subject, "numerics", outcome, reason)


def report(folder: Path, worker: str, *verdicts: Verdict) -> None:
    """Write a worker's whole shard."""
    with ShardWriter(folder, worker) as writer:
        for item in verdicts:
            writer.append(item)


def outcomes(ledger: Ledger) -> dict[str, str]:
    """Outcome by case name."""
    return {item.subject.case_id: item.outcome for item in ledger.verdicts}


PLAN = [planned(name) for name in "abcd"]


def test_a_clean_run_adds_up(tmp_path: Path) -> None:
    """Two workers' shards become one ledger in plan order, with counts, no mismatch, and no shard left."""
    folder = tmp_path / "new" / "ledger"
    start(folder, HEAD)
    report(folder, "gw0", verdict("c"), verdict("a", "fail", "wrong"))
    report(folder, "gw1", verdict("d", "unsupported"), verdict("b"))
    ledger = merge(folder, PLAN, {}, "")
    assert outcomes(ledger) == {"a": "fail", "b": "pass", "c": "pass", "d": "unsupported"}
    assert list(outcomes(ledger)) == list("abcd")
    assert ledger.head is not None
    assert ledger.head.plan == tuple(PLAN)
    assert ledger.end is not None
    assert ledger.end.counts == {"pass": 2, "fail": 1, "unsupported": 1}
    assert ledger.end.mismatches == ()
    assert ledger.end.exit_reason == "finished"
    assert [path.name for path in folder.iterdir()] == ["ledger.jsonl"]
    assert read_ledger(folder).entries == ledger.entries
    assert {entry.planned.subject.case_id: entry.worker for entry in ledger.entries}["d"] == "gw1"


def test_a_lost_worker_costs_an_error_for_what_it_ran(tmp_path: Path) -> None:
    """What a lost worker was running is an error unless its verdict was written; the rest stands."""
    start(tmp_path, HEAD)
    report(tmp_path, "gw0", verdict("a"))
    report(tmp_path, "gw1", verdict("c"), verdict("d"))
    ledger = merge(tmp_path, PLAN, {planned("a"): "gw0", planned("b"): "gw0"}, "")
    assert outcomes(ledger) == {"a": "pass", "b": "error", "c": "pass", "d": "pass"}
    assert "worker lost: gw0" in ledger.verdicts[1].reason
    assert ledger.end is not None
    assert ledger.end.mismatches == ()


@pytest.mark.parametrize(("interrupted", "mismatches"), [("Ctrl-C", 0), ("", 3)])
def test_what_nobody_reported_is_not_run(tmp_path: Path, interrupted: str, mismatches: int) -> None:
    """Silence is `not_run`, explained by an interruption and otherwise a mismatch."""
    start(tmp_path, HEAD)
    report(tmp_path, "main", verdict("b"))
    ledger = merge(tmp_path, PLAN, {}, interrupted)
    assert outcomes(ledger) == {"a": "not_run", "b": "pass", "c": "not_run", "d": "not_run"}
    assert ledger.end is not None
    assert len(ledger.end.mismatches) == mismatches
    assert interrupted in ledger.end.exit_reason
    assert interrupted in ledger.verdicts[0].reason


def test_a_plan_written_at_the_start_counts_too(tmp_path: Path) -> None:
    """A subject of the head's plan that the caller forgets at the end is a mismatch, not lost."""
    start(tmp_path, Head(HEAD.environment, "gate", (), (planned("x"),)))
    ledger = merge(tmp_path, [], {}, "")
    assert outcomes(ledger) == {"x": "not_run"}
    assert ledger.end is not None
    assert [item.planned for item in ledger.end.mismatches] == [planned("x")]


def test_duplicate_and_unplanned_verdicts_are_mismatches(tmp_path: Path) -> None:
    """Verdicts reported twice, verdicts that nobody planned and subjects planned twice are each listed."""
    start(tmp_path, HEAD)
    report(tmp_path, "gw0", verdict("a"), verdict("a", "fail"), verdict("z", "fail"))
    ledger = merge(tmp_path, [planned("a"), planned("b"), planned("b")], {planned("b"): "gw1"}, "")
    assert outcomes(ledger) == {"a": "fail", "b": "error", "z": "fail"}
    assert ledger.end is not None
    assert {str(item) for item in ledger.end.mismatches} == {
        "numerics qdq:a:cpu: 2 verdicts reported",
        "numerics qdq:z:cpu: judged, but not planned",
        "numerics qdq:b:cpu: planned 2 times",
    }
    assert ledger.settled() == {}


def test_one_subject_in_two_suites_is_two_verdicts(tmp_path: Path) -> None:
    """The key is suite and subject: the same subject in another suite is no duplicate."""
    subject = planned("a").subject
    start(tmp_path, HEAD)
    report(tmp_path, "gw0", verdict("a"), Verdict(subject, "routing", "fail"))
    ledger = merge(tmp_path, [planned("a"), Planned("routing", subject)], {}, "")
    assert [item.outcome for item in ledger.verdicts] == ["pass", "fail"]
    assert ledger.end is not None
    assert ledger.end.mismatches == ()


def test_a_killed_writer_loses_one_line_at_most(tmp_path: Path) -> None:
    """A real process killed while it writes leaves whole lines, at most one piece, and a sound ledger."""
    start(tmp_path, HEAD)
    script = (
        "import sys, pathlib, time\n"
        "from humming_conformance.ledger import ShardWriter\n"
        "from humming_conformance.protocols import Subject, Verdict\n"
        "writer = ShardWriter(pathlib.Path(sys.argv[1]), 'gw0')\n"
        "for i in range(300):\n"
        "    subject = Subject('qdq', f'c{i}', 'cpu')\n"
        "    writer.append(Verdict(subject, 'numerics', 'pass', message='x' * 200_000))\n"
        "time.sleep(600)\n"
    )
    root = str(Path(humming_conformance.__file__).parents[1])
    writer = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], env={**os.environ, "PYTHONPATH": root})
    shard = tmp_path / "shard-gw0.jsonl"
    try:
        while writer.poll() is None and (not shard.exists() or shard.stat().st_size < 1_000_000):
            time.sleep(0.01)
    finally:
        writer.kill()
    assert writer.wait() == -signal.SIGKILL
    reported = len(read_ledger(tmp_path).entries)
    assert reported >= 4
    plan = [planned(f"c{i}") for i in range(reported + 1)]
    ledger = merge(tmp_path, plan, {plan[-1]: "gw0"}, "")
    assert [item.outcome for item in ledger.verdicts] == ["pass"] * reported + ["error"]
    assert ledger.end is not None
    assert ledger.end.mismatches == ()


def test_a_truncated_shard_is_reported(tmp_path: Path) -> None:
    """The piece of a line that a killed worker left is named in the end record; its subject is not judged."""
    start(tmp_path, HEAD)
    lines = [format_record(Entry(verdict(name), "gw0")) for name in "ab"]
    (tmp_path / "shard-gw0.jsonl").write_text(lines[0] + lines[1][:-9])
    ledger = merge(tmp_path, PLAN[:2], {planned("b"): "gw0"}, "")
    assert outcomes(ledger) == {"a": "pass", "b": "error"}
    assert ledger.end is not None
    assert ledger.end.truncated == read_ledger(tmp_path).truncated == ("shard-gw0.jsonl",)


def test_merging_needs_a_begun_and_unmerged_ledger(tmp_path: Path) -> None:
    """No ledger, no head and a second merge are each refused with the mend."""
    with pytest.raises(LedgerError, match="holds no ledger"):
        merge(tmp_path, [], {}, "")
    report(tmp_path, "gw0", verdict("a"))
    with pytest.raises(LedgerError, match=r"has no head.*start or resume"):
        merge(tmp_path, [], {}, "")
    assert set(resume(tmp_path, HEAD, ["gpu"])) == {planned("a")}
    merge(tmp_path, [], {}, "")
    with pytest.raises(LedgerError, match="merged already"):
        merge(tmp_path, [], {}, "")
