# SPDX-License-Identifier: Apache-2.0
"""Records: what is written is what is read, and what is broken is named."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from humming_conformance.ledger import (
    OUTCOMES,
    SCHEMA,
    SUITES,
    End,
    Entry,
    Head,
    LedgerError,
    Mismatch,
    Planned,
    as_read,
)
from humming_conformance.ledger.jsonl import format_record, parse_record, read_records
from humming_conformance.protocols import Ruling, Subject, Verdict

PARTS = st.text(st.characters(exclude_characters=":"), min_size=1)
SUBJECTS = st.builds(Subject, PARTS, PARTS, PARTS)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    max_leaves=8,
)
EVIDENCE = st.dictionaries(st.text(), JSON_VALUES, max_size=4)
VERDICTS = st.builds(
    Verdict,
    subject=SUBJECTS,
    suite=st.sampled_from(SUITES),
    outcome=st.sampled_from(OUTCOMES),
    reason=st.text(),
    message=st.text(),
    rulings=st.lists(st.builds(Ruling, st.text(), st.sampled_from(OUTCOMES), st.text()), max_size=3).map(tuple),
    evidence=EVIDENCE,
    waiver=st.text(),
)
SUBJECT = Subject("qdq", "dense-case", "cpu")
ENTRY = Entry(Verdict(SUBJECT, "numerics", "fail", "wrong", evidence={"margin": 2.5}), "gw0")
HEAD = Head(
    {"gpu": None, "versions": {"torch": "2.13"}},
    "gate",
    ("pytest", "suites"),
    (Planned("numerics", SUBJECT),),
)
END = End("finished", {"fail": 1}, (Mismatch(Planned("numerics", SUBJECT), "2 verdicts"),), ("shard-gw0.jsonl",))


@given(VERDICTS, st.text())
def test_a_verdict_record_survives_writing_and_reading(verdict: Verdict, worker: str) -> None:
    """Any verdict, whatever its texts hold, is one line and reads back equal."""
    line = format_record(Entry(verdict, worker))
    assert line.count("\n") == 1
    assert line.endswith("\n")
    assert line.isascii()
    assert parse_record(line.encode()) == Entry(verdict, worker)


@pytest.mark.parametrize("record", [HEAD, ENTRY, END], ids=["head", "verdict", "end"])
def test_each_kind_of_record_reads_back_equal(record: Head | Entry | End) -> None:
    """Head, verdict and end keep every field."""
    assert parse_record(format_record(record).encode()) == record


def test_a_record_is_json_that_any_reader_takes() -> None:
    """Non-finite margins become strings, tuples lists, and the schema is on every line."""
    evidence = {"margin": float("inf"), "nan": float("nan"), "index": (3, 4), "numpy": np.float64(0.5)}
    line = format_record(Entry(Verdict(SUBJECT, "numerics", "fail", evidence=evidence)))

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    fields = json.loads(line, parse_constant=refuse)
    assert fields["schema"] == SCHEMA
    assert fields["evidence"] == {"margin": "inf", "nan": "nan", "index": [3, 4], "numpy": 0.5}
    assert as_read(evidence) == fields["evidence"]


@pytest.mark.parametrize(
    ("evidence", "place"),
    [
        ({"tile": np.int64(3)}, r"evidence\.tile is a int64"),
        ({"route": {"tile": [1, {2}]}}, r"evidence\.route\.tile\[1\] is a set"),
        ({"counts": {3: 1}}, r"evidence\.counts is a dict"),
    ],
)
def test_evidence_that_json_cannot_hold_is_named(evidence: dict[str, object], place: str) -> None:
    """The error names the place in the evidence, the type and the mend."""
    with pytest.raises(LedgerError, match=f"qdq:dense-case:cpu: {place}.*pass plain numbers"):
        format_record(Entry(Verdict(SUBJECT, "numerics", "fail", evidence=evidence)))


def test_unknown_keys_are_ignored() -> None:
    """A record with keys of a later minor addition reads as if they were not there."""
    fields = json.loads(format_record(ENTRY))
    fields["colour"] = "red"
    fields["rulings"] = [{"rule": "bound", "outcome": "fail", "reason": "r", "weight": 3}]
    read = parse_record(json.dumps(fields).encode())
    assert isinstance(read, Entry)
    assert read.verdict.rulings == (Ruling("bound", "fail", "r"),)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"schema": SCHEMA + 1}, r"schema 2 is newer than 1.*newer humming-conformance"),
        ({"schema": None}, "integer `schema`"),
        ({"record": "tail"}, "'tail' is not one of head, verdict, end"),
        ({"outcome": "passed"}, "'passed' is not one of pass"),
        ({"subject": "qdq:cpu"}, "not kernel:case:device"),
        ({"reason": 3}, "reason is 3, not a string"),
        ({"rulings": 3}, "wrong type"),
        ({"evidence": "much"}, "wrong type"),
    ],
)
def test_a_broken_record_is_refused_with_file_and_line(tmp_path: Path, change: dict[str, object], rule: str) -> None:
    """A record that breaks one rule raises one error naming the file, the line and the rule."""
    path = tmp_path / "shard-gw0.jsonl"
    broken = json.dumps(json.loads(format_record(ENTRY)) | change)
    path.write_text(format_record(ENTRY) + broken + "\n" + format_record(ENTRY))
    with pytest.raises(LedgerError, match=rf"shard-gw0\.jsonl, line 2: .*{rule}"):
        read_records(path)


def test_a_missing_key_is_named() -> None:
    """A verdict without its outcome says which key is missing."""
    fields = json.loads(format_record(ENTRY))
    del fields["outcome"]
    with pytest.raises(LedgerError, match="key 'outcome' is missing"):
        parse_record(json.dumps(fields).encode())


def test_a_file_cut_off_anywhere_keeps_its_whole_lines(tmp_path: Path) -> None:
    """Whatever byte a writer was killed at, whole lines are read and a piece of a line is reported."""
    lines = [format_record(HEAD), format_record(ENTRY)]
    text = "".join(lines)
    path = tmp_path / "ledger.jsonl"
    for length in range(len(text) + 1):
        path.write_text(text[:length])
        content = read_records(path)
        whole = sum(length >= len("".join(lines[: n + 1])) - 1 for n in range(2))
        assert content.records == (HEAD, ENTRY)[:whole]
        assert content.truncated == (length not in (0, *(len("".join(lines[:n])) - d for n in (1, 2) for d in (0, 1))))


@pytest.mark.parametrize("garbage", ["not json", '{"schema": 1, "record": "verd', "", "[1]", "\ufffd\x00"])
def test_garbage_before_the_last_line_is_an_error(tmp_path: Path, garbage: str) -> None:
    """Only the last line may be cut off: a broken line elsewhere means a damaged file."""
    path = tmp_path / "ledger.jsonl"
    path.write_text(format_record(HEAD) + garbage + "\n" + format_record(ENTRY))
    with pytest.raises(LedgerError, match=r"ledger\.jsonl, line 2: not a"):
        read_records(path)


def test_a_whole_last_line_of_a_newer_schema_is_no_truncation(tmp_path: Path) -> None:
    """A last line that lacks only its newline is judged like any other."""
    path = tmp_path / "ledger.jsonl"
    path.write_text(format_record(HEAD) + '{"schema": 9, "record": "verdict"}')
    with pytest.raises(LedgerError, match=r"line 2: schema 9 is newer"):
        read_records(path)
