# SPDX-License-Identifier: Apache-2.0
"""A ledger folder: its start, its shards and its resumption."""

from pathlib import Path

import pytest

from humming_conformance.ledger import (
    Head,
    Ledger,
    LedgerError,
    Planned,
    ShardWriter,
    merge,
    read_ledger,
    replace_text,
    resume,
    start,
)
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


def test_a_ledger_folder_must_be_new_or_empty(tmp_path: Path) -> None:
    """A folder with anything in it is refused with the mend, and so is a file; an empty folder is taken."""
    start(tmp_path / "empty", HEAD)
    with pytest.raises(LedgerError, match=r"is not empty.*--resume"):
        start(tmp_path / "empty", HEAD)
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match="is a file"):
        start(tmp_path / "file", HEAD)


def test_a_resumed_run_judges_only_what_lacks(tmp_path: Path) -> None:
    """Settled verdicts stay, `error` and `not_run` are judged again, and the merged ledger adds up."""
    start(tmp_path, HEAD)
    report(tmp_path, "gw0", verdict("a", "fail"), verdict("b", "error"), verdict("c", "waived"))
    merge(tmp_path, PLAN, {}, "-x")
    settled = resume(tmp_path, HEAD, ["gpu", "build", "index"])
    assert settled == {planned("a"): verdict("a", "fail"), planned("c"): verdict("c", "waived")}
    report(tmp_path, "gw0", verdict("b"), verdict("d"))
    ledger = merge(tmp_path, PLAN, {}, "")
    assert outcomes(ledger) == {"a": "fail", "b": "pass", "c": "waived", "d": "pass"}
    assert ledger.end is not None
    assert ledger.end.mismatches == ()
    assert ledger.end.exit_reason == "finished"


def test_a_killed_run_and_a_killed_resumed_run_can_be_resumed(tmp_path: Path) -> None:
    """Shards that nobody merged count, twice over, and a later verdict replaces an earlier error."""
    start(tmp_path, HEAD)
    report(tmp_path, "gw0", verdict("a"), verdict("b", "error"))
    assert set(resume(tmp_path, HEAD, [])) == {planned("a")}
    report(tmp_path, "gw0", verdict("b"))
    assert set(resume(tmp_path, HEAD, [])) == {planned("a"), planned("b")}
    report(tmp_path, "gw0", verdict("c"))
    ledger = merge(tmp_path, PLAN, {}, "Ctrl-C")
    assert outcomes(ledger) == {"a": "pass", "b": "pass", "c": "pass", "d": "not_run"}


def test_a_resumed_run_of_fewer_cases_keeps_the_others(tmp_path: Path) -> None:
    """What an earlier run planned and this one doesn't keeps its verdict and is no mismatch."""
    start(tmp_path, Head(HEAD.environment, "gate", (), tuple(PLAN)))
    report(tmp_path, "gw0", verdict("a"), verdict("b", "error", "boom"))
    resume(tmp_path, HEAD, [])
    report(tmp_path, "gw0", verdict("c"))
    ledger = merge(tmp_path, [planned("c")], {}, "")
    assert outcomes(ledger) == {"a": "pass", "b": "error", "c": "pass", "d": "not_run"}
    assert ledger.verdicts[1].reason == "boom"
    assert ledger.end is not None
    assert ledger.end.mismatches == ()


def test_a_settled_subject_judged_again_is_a_mismatch(tmp_path: Path) -> None:
    """A resumed run that reports what was settled doesn't add up."""
    start(tmp_path, HEAD)
    report(tmp_path, "gw0", verdict("a"))
    merge(tmp_path, [planned("a")], {}, "")
    resume(tmp_path, HEAD, [])
    report(tmp_path, "gw0", verdict("a", "fail"))
    assert planned("a") not in read_ledger(tmp_path).settled()
    ledger = merge(tmp_path, [planned("a")], {}, "")
    assert ledger.end is not None
    assert [item.problem for item in ledger.end.mismatches] == ["settled by an earlier run and judged again"]


def test_disputed_subjects_are_judged_again(tmp_path: Path) -> None:
    """Two different verdicts on one subject settle nothing, merged or not."""
    start(tmp_path, HEAD)
    report(tmp_path, "gw0", verdict("a"), verdict("b"))
    report(tmp_path, "gw1", verdict("a", "fail"))
    assert set(read_ledger(tmp_path).settled()) == {planned("b")}
    merge(tmp_path, PLAN[:2], {}, "")
    assert set(resume(tmp_path, HEAD, [])) == {planned("b")}
    ledger = merge(tmp_path, PLAN[:2], {}, "")
    assert outcomes(ledger) == {"a": "not_run", "b": "pass"}


def test_another_build_cannot_resume(tmp_path: Path) -> None:
    """A ledger speaks of one build: resuming with another is refused, naming the key and both values."""
    start(tmp_path, HEAD)
    other = Head({**HEAD.environment, "build": "def"}, "gate", ())
    with pytest.raises(LedgerError, match=r"its build is 'abc', this run's is 'def'.*--ledger"):
        resume(tmp_path, other, ["gpu", "build"])
    assert resume(tmp_path, other, ["gpu"]) == {}


def test_shards_left_by_a_merge_killed_at_its_last_step_are_ignored(tmp_path: Path) -> None:
    """The merged ledger holds all that its shards hold, so a shard that is still there adds nothing."""
    start(tmp_path, HEAD)
    report(tmp_path, "gw0", verdict("a"))
    shard = (tmp_path / "shard-gw0.jsonl").read_text()
    ledger = merge(tmp_path, [planned("a")], {}, "")
    (tmp_path / "shard-gw0.jsonl").write_text(shard)
    assert read_ledger(tmp_path) == ledger
    assert set(resume(tmp_path, HEAD, [])) == {planned("a")}
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.jsonl"]


def test_a_shard_has_one_writer(tmp_path: Path) -> None:
    """A second writer of the same name and a name that is no file name are refused."""
    with ShardWriter(tmp_path, "gw0"):
        with pytest.raises(LedgerError, match=r"another worker of that name.*--resume"):
            ShardWriter(tmp_path, "gw0")
        with pytest.raises(LedgerError, match="letters, digits"):
            ShardWriter(tmp_path, "../gw1")


def test_a_verdict_is_on_disk_when_append_returns(tmp_path: Path) -> None:
    """Each line is flushed: a reader sees it while the writer is open; a refused verdict writes nothing."""
    with ShardWriter(tmp_path, "gw0") as writer:
        writer.append(verdict("a"))
        with pytest.raises(LedgerError, match="JSON can't hold"):
            writer.append(Verdict(planned("b").subject, "numerics", "fail", evidence={"x": object()}))
        assert [entry.planned for entry in read_ledger(tmp_path).reported] == [planned("a")]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    """A text that can't be written leaves the old file and no temporary one."""
    path = tmp_path / "ledger.jsonl"
    replace_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        replace_text(path, "new \ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("damage", ["empty", "cut in its head", "noise"])
def test_a_damaged_ledger_is_refused_and_kept(tmp_path: Path, damage: str) -> None:
    """A ledger is replaced whole, so one without a whole head isn't ours: it is neither resumed nor overwritten."""
    folder = tmp_path / "run"
    head = Head({"gpus": []}, "gate", ("pytest",), ())
    start(folder, head)
    whole = (folder / "ledger.jsonl").read_bytes()
    damaged = {"empty": b"", "cut in its head": whole[:20], "noise": b"\xff\x00" * 40}[damage]
    (folder / "ledger.jsonl").write_bytes(damaged)
    with pytest.raises(LedgerError, match=r"ledger\.jsonl"):
        resume(folder, head, ["gpus"])
    assert (folder / "ledger.jsonl").read_bytes() == damaged
