# SPDX-License-Identifier: Apache-2.0
"""Baseline files and timings: written whole, read back the same, refused with one clear error."""

from __future__ import annotations

import json
import math

import pytest

from humming_conformance.store import (
    Baseline,
    BaselineError,
    CaseBaseline,
    Ratio,
    baseline_path,
    read_baseline,
    write_baseline,
)
from humming_conformance.store.record import accepted, differences, record, table
from humming_conformance.store.rounds import Timing, append_timings, case_baselines, ratio_of, read_timings

ONE = "dense-w_int4.g32.bf16-a_bf16-m1.n64.k64-random"
TWO = "dense-w_int4.g32.bf16-a_bf16-m2.n64.k64-random"


def _baseline(**changes):
    ratio = Ratio(mean=-0.5, process_sd=0.004, processes=10, machine_sd=0.01, machines=2)
    case = CaseBaseline("gemm", {"gemm": ratio, "copy": ratio}, 12.5)
    fields = {
        "device": "h200",
        "kernel": "humming",
        "library": "0.1.20",
        "mode": "cold",
        "provenance": {"recorded": "2026-12-01"},
        "cases": {ONE: case},
    }
    return Baseline(**{**fields, **changes})


def _timing(machine, process, ratio, *, case=ONE, anchors=("gemm", "copy"), **found):
    seconds = {"kernel": [ratio * 10e-6] * 3, **{anchor: [10e-6] * 3 for anchor in anchors}}
    return Timing("humming", case, "h200", machine, process, seconds, {"read": 4e12}, found)


def test_a_baseline_is_read_back(tmp_path):
    """Written, read, equal; one case a line; no temporary file is left."""
    path = baseline_path(tmp_path, "h200", "humming", "0.1.20")
    assert path.relative_to(tmp_path).as_posix() == "performance/h200/humming-0.1.20.json"
    baseline = _baseline(cases={ONE: _baseline().cases[ONE], TWO: _baseline().cases[ONE]})
    write_baseline(path, baseline)
    assert read_baseline(path) == baseline
    assert sum(line.strip().startswith('"dense') for line in path.read_text().splitlines()) == 2
    assert [found.name for found in path.parent.iterdir()] == [path.name]


def test_a_baseline_without_cases_is_one_too(tmp_path):
    """As it is before anything was recorded."""
    write_baseline(tmp_path / "b.json", _baseline(cases={}))
    assert read_baseline(tmp_path / "b.json").cases == {}


def _damaged(change):
    stored = {
        "schema": 1,
        "device": "h200",
        "kernel": "humming",
        "library": "",
        "mode": "cold",
        "provenance": {},
        "cases": {ONE: {"anchor": "gemm", "ratios": {}, "microseconds": 1.0}},
    }
    change(stored)
    return json.dumps(stored)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "no such file; record one"),
        ("{", "no JSON"),
        ("[]", "it has no schema number"),
        (_damaged(lambda stored: stored.pop("schema")), "it has no schema number"),
        (_damaged(lambda stored: stored.update(schema=True)), "it has no schema number"),
        (_damaged(lambda stored: stored.update(schema=9)), "schema 9 is newer than 1"),
        (_damaged(lambda stored: stored.pop("device")), "a field is missing"),
        (_damaged(lambda stored: stored.update(more=1)), "a field is missing, unknown"),
        (_damaged(lambda stored: stored.update(cases=[])), "a field is missing, unknown or of another type"),
        (_damaged(lambda _: None), "is judged by 'gemm', of which it has no ratio"),
    ],
)
def test_a_bad_baseline_is_refused(tmp_path, text, told):
    """The error names the file, the rule and the mend."""
    path = tmp_path / "b.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BaselineError, match=r"b\.json") as error:
        read_baseline(path)
    assert told in str(error.value)


def test_timings_are_read_back(tmp_path):
    """Appended in two goes; a last line that was cut off is left out, a damaged one is an error with its number."""
    path = tmp_path / "timings.jsonl"
    timings = [_timing("GPU-0", "1", 0.5, bytes=10), _timing("GPU-0", "2", 0.6)]
    append_timings(path, timings[:1])
    append_timings(path, timings[1:])
    assert read_timings(path) == timings
    with path.open("a") as file:
        file.write('{"schema": 1, "kern')
    assert read_timings(path) == timings
    with path.open("a") as file:
        file.write("\n")
    with pytest.raises(BaselineError, match="line 3: no timing"):
        read_timings(path)
    path.write_text('{"schema": 2}\n')
    with pytest.raises(BaselineError, match="line 1: schema 2 is newer"):
        read_timings(path)
    with pytest.raises(BaselineError, match="can't be read"):
        read_timings(tmp_path / "none.jsonl")


def test_a_process_counts_once():
    """Its log ratio is the median over cycles; its time too."""
    timing = Timing("k", ONE, "h200", "m", "p", {"kernel": [1e-6, 2e-6, 90e-6], "copy": [1e-6, 1e-6, 1e-6]}, {})
    assert timing.log_ratio("copy") == pytest.approx(math.log(2))
    assert timing.microseconds == pytest.approx(2.0)
    assert timing.anchors == ["copy"]


def test_mean_and_spreads():
    """Within a machine pooled over machines, between machines of their means."""
    timings = [_timing("a", "1", math.exp(0.1)), _timing("a", "2", math.exp(0.2)), _timing("b", "3", math.exp(0.35))]
    ratio = ratio_of(timings, "gemm")
    assert ratio.mean == pytest.approx(0.25)
    assert ratio.process_sd == pytest.approx(math.sqrt(0.005), abs=1e-6)
    assert ratio.machine_sd == pytest.approx(0.2 / math.sqrt(2), abs=1e-6)
    assert (ratio.processes, ratio.machines) == (3, 2)
    assert ratio_of(timings[:2], "gemm").machine_sd is None


def test_a_family_has_one_anchor():
    """The anchor whose ratio travels best over all cases of a family is every case's, whatever one case says."""
    timings = []
    for case, (gemm, copy) in {ONE: (0.10, 0.0), TWO: (0.0, 0.01)}.items():
        for machine, sign in (("a", 0), ("b", 1)):
            timing = _timing(machine, "1", 1.0, case=case)
            seconds = {
                **timing.seconds,
                "gemm": [10e-6 * math.exp(sign * gemm)] * 3,
                "copy": [10e-6 * math.exp(sign * copy)] * 3,
            }
            timings.append(Timing("humming", case, "h200", machine, "1", seconds, {}))
    assert {case: stored.anchor for case, stored in case_baselines(timings).items()} == {ONE: "copy", TWO: "copy"}


def test_record_leaves_out_what_is_wrong_or_disturbed():
    """Such a process says nothing of speed."""
    timings = [
        _timing("a", "1", 0.5, library="0.1.20"),
        _timing("a", "2", 0.1, library="0.1.20", wrong="the output is 1 off"),
        _timing("a", "3", 0.9, library="0.1.20", disturbances=["power brake"]),
    ]
    (baseline,) = record(timings, {"recorded": "today"})
    assert (baseline.kernel, baseline.library, baseline.device) == ("humming", "0.1.20", "h200")
    assert baseline.cases[ONE].ratios["gemm"].processes == 1
    assert math.exp(baseline.cases[ONE].ratios["gemm"].mean) == pytest.approx(0.5)


def test_accept_takes_single_cases():
    """The others keep their values, and the provenance of both stays."""
    other = CaseBaseline("gemm", {"gemm": Ratio(-0.1, 0.004, 5, None, 1)}, 20.0)
    old = _baseline(cases={ONE: _baseline().cases[ONE], TWO: _baseline().cases[ONE]})
    new = _baseline(cases={ONE: other, TWO: other}, provenance={"recorded": "later"})
    merged, chosen = accepted(old, new, ["*-m2.*"])
    assert chosen == [TWO]
    assert merged.cases == {ONE: old.cases[ONE], TWO: other}
    assert merged.provenance["recorded"] == "2026-12-01"
    assert merged.provenance["accepted"] == [{"cases": [TWO], "recorded": "later"}]
    with pytest.raises(BaselineError, match="no case matches nothing"):
        accepted(old, new, ["nothing"])
    with pytest.raises(BaselineError, match=r"another library: '0\.1\.20' and '0\.1\.19'"):
        accepted(old, _baseline(library="0.1.19"), ["*"])


def test_two_baselines_are_compared():
    """By the first one's anchor, the largest slowdown first, with what only one of them has."""
    slower = CaseBaseline("copy", {"gemm": Ratio(-0.4, 0.004, 5, None, 1)}, 20.0)
    first = {ONE: _baseline().cases[ONE], TWO: _baseline().cases[ONE]}
    lines = differences(first, {ONE: slower, "three": slower})
    assert lines[0].split() == ["+10.5%", "gemm", ONE]
    assert lines[1:] == [f"only in the first: {TWO}", "only in the second: three"]


def test_a_baseline_as_a_table():
    """Ratio, anchor, spreads and time of each case."""
    head, _, row = table(_baseline())
    assert head == "humming 0.1.20 on h200, L2 cold"
    assert row.split() == ["0.607", "gemm", "0.40%", "2:", "1.00%", "12.50", ONE]
