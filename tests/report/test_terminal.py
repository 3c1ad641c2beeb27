# SPDX-License-Identifier: Apache-2.0
"""The summary of a run in the terminal."""

import datetime as dt
from collections import Counter
from pathlib import Path

import pytest

from humming_conformance.ledger import (
    End,
    Entry,
    ExitStatus,
    Head,
    Ledger,
    Mismatch,
    Planned,
    Waiver,
)
from humming_conformance.protocols import Outcome, Subject, Verdict
from humming_conformance.report import summary_lines

GREEN = ExitStatus(0, ())


def verdict(
    outcome: Outcome, name: str = "c", reason: str = "", suite: str = "numerics", **evidence: object
) -> Verdict:
    """A verdict of kernel qdq on the case ``name``."""
    return Verdict(Subject("qdq", name, "cpu"), suite, outcome, reason, evidence=evidence)


def ledger(
    *verdicts: Verdict,
    planned: int | None = None,
    exit_reason: str = "finished",
    mismatches: tuple[Mismatch, ...] = (),
    truncated: tuple[str, ...] = (),
) -> Ledger:
    """A merged ledger of these verdicts, all planned unless ``planned`` says how many."""
    entries = tuple(Entry(item, "main") for item in verdicts)
    plan = tuple(entry.planned for entry in entries)[:planned]
    counts = Counter(item.outcome for item in verdicts)
    end = End(exit_reason, counts, mismatches, truncated)
    return Ledger(Head({}, "gate", (), plan), entries, (), end, truncated)


def test_a_green_run_is_a_table_an_account_and_the_counts() -> None:
    """Nothing but the table, plan = verdicts and the last line, which shows zeros too."""
    lines = summary_lines(ledger(verdict("pass"), verdict("pass", suite="routing")), GREEN)
    assert lines == [
        "kernel  suite     pass  fail  error  unsupported  waived  not_run",
        "qdq     numerics     1     -      -            -       -        -",
        "qdq     routing      1     -      -            -       -        -",
        "",
        "planned 2 = 2 pass",
        "slow 0  ambiguous 0  unsupported 0  not_run 0  waived 0",
    ]


def test_failures_are_grouped_by_fault_class() -> None:
    """The commonest class comes first, each failure with its subject, suite, outcome and reason."""
    lines = summary_lines(
        ledger(
            verdict("error", "a", "ended its process", fault_class="crash"),
            verdict("fail", "b", "margin 3", fault_class="tail"),
            verdict("fail", "c", "margin 4", fault_class="tail"),
            verdict("fail", "d", "unexpected pass"),
        ),
        ExitStatus(1, ("3 failed", "1 ended in an error")),
    )
    start = lines.index("failures and errors (4)")
    assert lines[start + 1 : start + 6] == [
        "  tail (2)",
        "    qdq:b:cpu",
        "      numerics fail: margin 3",
        "    qdq:c:cpu",
        "      numerics fail: margin 4",
    ]
    assert "  crash (1)" in lines
    assert "  unclassified (1)" in lines
    red = lines.index("red because (2)")
    assert lines[red + 1 : red + 3] == ["  3 failed", "  1 ended in an error"]


def test_many_failures_are_cut_with_the_place_of_the_rest() -> None:
    """Eight are shown, fairly over classes, every class is named, and the ledger's folder holds the rest."""
    many = [verdict("fail", f"t{i}", fault_class="tail") for i in range(500)]
    many += [verdict("error", f"c{i}", fault_class="crash") for i in range(30)]
    lines = summary_lines(ledger(*many), GREEN, folder=Path("out/run1"))
    assert sum(line.startswith("    qdq:t") for line in lines) == 4
    assert sum(line.startswith("    qdq:c") for line in lines) == 4
    assert "  and 522 more, see out/run1" in lines
    classes = [verdict("fail", f"c{i}", fault_class=f"class {i}") for i in range(13)]
    lines = summary_lines(ledger(*classes), GREEN)
    assert sum(line.startswith("  class ") for line in lines) == 13
    assert sum(line.startswith("    qdq:c") for line in lines) == 8
    assert "  and 5 more, --ledger DIR keeps them all" in lines


def test_what_could_not_be_judged_is_grouped_by_reason() -> None:
    """Reasons with counts, most frequent first; quarantined subjects are among them, tolerated ones not."""
    lines = summary_lines(
        ledger(
            verdict("unsupported", "a", "zero point float is not claimed"),
            verdict("not_run", "b", "no CUDA GPU (mend: run on a GPU)"),
            verdict("not_run", "c", "no CUDA GPU (mend: run on a GPU)"),
            verdict("waived", "d", "not launched", quarantined=True),
            verdict("waived", "e", "HC-001"),
        ),
        GREEN,
    )
    start = lines.index("could not be judged, and why (4)")
    assert lines[start + 1] == "       2 not_run: no CUDA GPU (mend: run on a GPU)"
    assert set(lines[start + 2 : start + 4]) == {
        "       1 unsupported: zero point float is not claimed",
        "       1 waived: not launched",
    }
    assert "planned 5 = 1 unsupported + 2 waived + 2 not_run" in lines
    assert lines[-1] == "slow 0  ambiguous 0  unsupported 1  not_run 2  waived 2"


def test_many_reasons_are_cut_with_their_number() -> None:
    """Ten reasons are shown; the rest is counted in subjects and reasons."""
    verdicts = [verdict("unsupported", f"{i}.{j}", f"reason {i}") for i in range(12) for j in range(2)]
    lines = summary_lines(ledger(*verdicts), GREEN)
    assert "  and 4 more, for 2 other reasons" in lines


def test_slow_and_ambiguous_are_counted_in_the_last_line() -> None:
    """The kinds of pass that are no plain pass are never lost in it."""
    kinds = ["slow", "slow", "ambiguous", "same"]
    verdicts = [verdict("pass", str(i), performance=kind) for i, kind in enumerate(kinds)]
    assert summary_lines(ledger(*verdicts), GREEN)[-1].startswith("slow 2  ambiguous 1  ")


def test_everything_that_does_not_add_up_is_shown() -> None:
    """Mismatches, cut files, stale waivers, an interruption and a wrong sum each have their lines."""
    waiver = Waiver("qdq:x:cpu", "HC-007", "old", "tolerate", None, dt.date(2030, 1, 1))
    lines = summary_lines(
        ledger(
            verdict("pass", "a"),
            verdict("pass", "b"),
            planned=1,
            exit_reason="interrupted: Ctrl-C",
            mismatches=(Mismatch(Planned("numerics", Subject("qdq", "b", "cpu")), "judged, but not planned"),),
            truncated=("shard-gw1.jsonl",),
        ),
        ExitStatus(1, ("1 accounting mismatches between plan and verdicts",)),
        stale=[waiver],
    )
    assert "  numerics qdq:b:cpu: judged, but not planned" in lines
    assert "  shard-gw1.jsonl" in lines
    assert "  HC-007 qdq:x:cpu" in lines
    assert lines[-3:-1] == ["planned 1, but 2 verdicts = 2 pass", "run interrupted: Ctrl-C"]


@pytest.mark.parametrize(("width", "limit"), [(60, 60), (200, 110), (5, 40)])
def test_lines_fit_the_terminal(width: int, limit: int) -> None:
    """Long reasons are cut or wrapped at the width, 40 to 110; subjects are left whole."""
    name = "dense-w_int4.g128.bf16-a_bf16-m16.n256.k512-readout" * 3
    long = "a reason with many words in it " * 20
    verdicts = [verdict("fail", name, long), verdict("not_run", name, f"{long}\nsecond line")]
    mismatch = Mismatch(Planned("numerics", verdicts[0].subject), "judged, but not planned")
    lines = summary_lines(ledger(*verdicts, mismatches=(mismatch,)), ExitStatus(1, (long,)), width=width)
    subject = f"    qdq:{name}:cpu"
    assert subject in lines
    assert f"  qdq:{name}:cpu:" in lines
    table = lines[:2]
    assert max(len(line) for line in lines[2:-1] if name not in line) == limit
    assert all("\n" not in line for line in lines)
    assert len(table[0]) == len(table[1])


def test_an_unmerged_ledger_has_no_summary() -> None:
    """Without an end there is no account to give."""
    with pytest.raises(ValueError, match="merge it first"):
        summary_lines(Ledger(Head({}, "gate", ()), (), (), None), GREEN)
