# SPDX-License-Identifier: Apache-2.0
"""``humming-conformance baseline``: from ledger folders to files and back, and what it refuses."""

from __future__ import annotations

import math

import pytest

from humming_conformance.cli import main
from humming_conformance.ledger import Head, start
from humming_conformance.store import read_baseline
from humming_conformance.store.rounds import Timing, append_timings

CASE = "dense-w_int4.g32.bf16-a_bf16-m{}.n64.k128-random"


def _ledger(folder, machine, *, slower=1.0, version="0.1.20"):
    """The folder of a run on one machine: its head, and timings of two cases in five processes."""
    environment = {"libraries": {"humming": {"version": version, "build_hash": "0123"}}, "gpus": [{"name": "h200"}]}
    start(folder, Head(environment, "gate", ("pytest", "suites/performance")))
    append_timings(
        folder / "timings.jsonl",
        [
            Timing(
                "humming",
                CASE.format(m),
                "h200",
                machine,
                str(process),
                {"kernel": [4e-6 * slower * math.exp(0.001 * process)] * 3, "copy": [8e-6] * 3},
                {"read": 4e12},
                {"library": version},
            )
            for m in (1, 16)
            for process in range(5)
        ],
    )
    return str(folder)


def _told(capsys):
    return capsys.readouterr().err.strip()


def test_record_show_compare_accept(tmp_path, capsys):
    """Two machines make a baseline; a later run differs from it, and one case of that is accepted."""
    ledgers = [_ledger(tmp_path / name, name) for name in ("GPU-0", "GPU-1")]
    assert main(["baseline", "record", *ledgers, "--baselines", str(tmp_path / "new")]) == 0
    path = tmp_path / "new" / "performance" / "h200" / "humming-0.1.20.json"
    assert capsys.readouterr().out == f"2 cases in {path}\n"
    stored = read_baseline(path)
    assert stored.cases[CASE.format(1)].ratios["copy"].machines == 2
    assert [run["command"] for run in stored.provenance["runs"]] == [["pytest", "suites/performance"]] * 2

    assert main(["baseline", "show", str(path)]) == 0
    assert capsys.readouterr().out.startswith("humming 0.1.20 on h200, L2 cold\n")

    later = _ledger(tmp_path / "later", "GPU-2", slower=1.1)
    assert main(["baseline", "compare", str(path), later]) == 0
    assert capsys.readouterr().out.split()[:3] == ["+10.0%", "copy", CASE.format(16)]
    assert main(["baseline", "accept", str(path), later, "--case", "*-m16.*"]) == 0
    assert capsys.readouterr().out == f"{CASE.format(16)}\n1 cases accepted in {path}\n"
    assert read_baseline(path).cases[CASE.format(1)] == stored.cases[CASE.format(1)]
    assert read_baseline(path).cases[CASE.format(16)].microseconds > stored.cases[CASE.format(16)].microseconds


def test_a_baseline_is_not_overwritten(tmp_path, capsys):
    """Unless it is asked for."""
    command = ["baseline", "record", _ledger(tmp_path / "run", "GPU-0"), "--baselines", str(tmp_path)]
    assert main(command) == 0
    assert main(command) == 2
    assert "is there; take single cases with `baseline accept`, or give --replace" in _told(capsys)
    assert main([*command, "--replace"]) == 0


@pytest.mark.parametrize(
    ("action", "told"),
    [
        ("record", "holds no timings; name the ledger folder of a run of the performance suite"),
        ("mixed", "is of another library build than the ledgers before it"),
        ("accept", "no ledger given holds timings of humming on h100"),
        ("show", "no such file; record one"),
    ],
)
def test_bad_input(tmp_path, capsys, action, told):
    """One sentence on standard error, status 2, and nothing is written."""
    run = _ledger(tmp_path / "run", "GPU-0")
    other = _ledger(tmp_path / "other", "GPU-1", version="0.1.19")
    start(tmp_path / "empty", Head({}, "gate", ()))
    new = tmp_path / "new"
    assert main(["baseline", "record", run, "--baselines", str(new)]) == 0
    path = new / "performance" / "h200" / "humming-0.1.20.json"
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text(path.read_text().replace('"h200"', '"h100"'))
    before = sorted(new.rglob("*"))
    commands = {
        "record": ["record", str(tmp_path / "empty"), "--baselines", str(new)],
        "mixed": ["record", run, other, "--baselines", str(new), "--replace"],
        "accept": ["accept", str(elsewhere), run, "--case", "*"],
        "show": ["show", str(tmp_path / "none.json")],
    }
    assert main(["baseline", *commands[action]]) == 2
    assert told in _told(capsys)
    assert sorted(new.rglob("*")) == before
