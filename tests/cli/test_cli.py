# SPDX-License-Identifier: Apache-2.0
"""The command line: each command's output, and bad input in one line."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys

import pytest

from humming_conformance import cli
from humming_conformance.ledger import Head, Planned, ShardWriter, merge, start
from humming_conformance.problems import parse_case
from humming_conformance.problems.tiers import load_tier
from humming_conformance.protocols import Subject, Verdict

CASE = "dense-w_int8.channel.bf16-a_bf16-m2.n8.k32-random"
SUBJECT = Subject("qdq", CASE, "cpu")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_doctor(capsys):
    """Every kernel, package and tool has a line that says whether it is there, and what would mend it."""
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    for heading in ("devices", "kernels", "packages", "tools"):
        assert f"\n{heading}\n" in f"\n{out}"
    for kernel in ("humming", "qdq", "torch_gemm", "triton_fused"):
        assert f"  {kernel}: " in out
    assert "  ok    cpu: cpu" in out
    assert "  ok    torch " in out
    assert "nvcc" in out
    assert all("mend: " in line for line in out.splitlines() if line.startswith("  none") and "(" not in line)


def test_plan(capsys):
    """Every subject of the tier has a line with its answer; the totals come last."""
    assert cli.main(["plan", "--tier", "smoke", "--kernel", "qdq"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = load_tier("smoke", "qdq")
    assert [line.split(":")[1] for line in lines[: len(listed)]] == list(listed)
    answers = [line.removeprefix(f"qdq:{case_id}:") for line, case_id in zip(lines, listed, strict=False)]
    assert all(answer.endswith((" yes", "needs a CUDA device; this is cpu")) for answer in answers)
    assert sum(answer.endswith(" yes") for answer in answers) > 50
    assert lines[len(listed)] == f"conformance plan: {len(listed)} subjects"


def test_report(folder, capsys):
    """A merged ledger becomes one HTML file that names its subjects."""
    planned = Planned("numerics", SUBJECT)
    start(folder / "ledger", Head({}, "gate", ("pytest",), (planned,)))
    with ShardWriter(folder / "ledger", "main") as shard:
        shard.append(Verdict(SUBJECT, "numerics", "fail", "1 of 16 elements", "the whole text"))
    merge(folder / "ledger", [planned], {}, "")
    assert cli.main(["report", "ledger"]) == 0
    assert "1 verdicts in conformance.html" in capsys.readouterr().out
    html = (folder / "conformance.html").read_text()
    assert str(SUBJECT) in html
    assert "the whole text" in html
    assert cli.main(["report", "ledger", "--output", "other.html"]) == 0
    assert (folder / "other.html").exists()


def written(folder, *verdicts):
    """A merged ledger of these verdicts in a folder of this name."""
    plan = [Planned(verdict.suite, verdict.subject) for verdict in verdicts]
    start(folder, Head({}, "gate", ("pytest",), tuple(plan)))
    with ShardWriter(folder, "main") as shard:
        for verdict in verdicts:
            shard.append(verdict)
    merge(folder, plan, {}, "")


MEASURED = {
    "route": {"path": "cpu_fp32"},
    "contract": "bf16 weight_input=bf16",
    "exact": False,
    "margin": 0.25,
    "margin_before_rounding": 0.125,
    "wrong": 0,
}


def test_compare(folder, capsys):
    """The exit status says whether two ledgers judge alike, the output where they don't."""
    written(folder / "a", Verdict(SUBJECT, "numerics", "pass", evidence=MEASURED))
    written(folder / "b", Verdict(SUBJECT, "numerics", "fail", "1 of 16", evidence=MEASURED | {"wrong": 1}))
    assert cli.main(["compare", "a", "a"]) == 0
    assert capsys.readouterr().out == "1 numerics verdicts in both ledgers, 0 of them differ\n"
    assert cli.main(["compare", "a", "b"]) == 1
    assert f"{SUBJECT}\n  outcome: pass → fail (1 of 16)\n  wrong elements: 0 → 1\n" in capsys.readouterr().out


def test_margins(folder, capsys):
    """A table with one row for the one case, and the regime in it where asked."""
    written(folder / "a", Verdict(SUBJECT, "numerics", "pass", evidence=MEASURED))
    assert cli.main(["margins", "a"]) == 0
    head, _, row = capsys.readouterr().out.splitlines()
    assert head.startswith("| kernel | path |")
    assert row == ("| qdq | cpu_fp32 | integer | 16-bit | weight_input=output | 0 | 1 | 0.25 | 0.25 | 0.125 | 0.125 |")
    assert cli.main(["margins", "a", "--by-regime"]) == 0
    assert "| random |" in capsys.readouterr().out


def test_ledgers_without_what_is_asked_for(folder, capsys):
    """A ledger that can't be compared, or has no margin, is bad input and named."""
    written(folder / "timed", Verdict(SUBJECT, "performance", "pass"))
    written(folder / "unjudged", Verdict(SUBJECT, "numerics", "not_run", "no GPU"))
    for arguments, words in (
        (["compare", "unjudged", "timed"], "timed holds no verdict of the numerics suite"),
        (["margins", "timed"], "timed holds no verdict of the numerics suite"),
        (["margins", "unjudged"], "unjudged: no case of it was judged"),
    ):
        assert cli.main(arguments) == 2
        told = capsys.readouterr()
        assert words in told.err
        assert told.out == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"margin": "wide"}, "could not convert string to float: 'wide'"),
        ({"margin": None}, "TypeError"),
        ({"margin_before_rounding": []}, "TypeError"),
        ({"route": "wgmma"}, "TypeError"),
        ({"route": {}}, "KeyError: 'path'"),
    ],
)
def test_ledgers_with_damaged_evidence(folder, capsys, change, words):
    """Evidence that no judge writes is bad input of the command that needs it, and its subject named."""
    written(folder / "a", Verdict(SUBJECT, "numerics", "pass", evidence=MEASURED))
    written(folder / "b", Verdict(SUBJECT, "numerics", "pass", evidence=MEASURED | change))
    for arguments in [["margins", "b"], *([["compare", "a", "b"]] if "margin" in change else [])]:
        assert cli.main(arguments) == 2
        told = capsys.readouterr()
        assert f"{SUBJECT}: its evidence in the ledger is damaged" in told.err
        assert words in told.err
        assert told.out == ""


def test_repro(folder, capsys):
    """A subject is judged again, and the script that is written runs by itself and finds the same."""
    assert cli.main(["repro", str(SUBJECT), "--output", "again.py"]) == 0
    assert capsys.readouterr().out == f"{SUBJECT}\npass\nwrote again.py\n"
    script = folder / "again.py"
    assert script.read_text().startswith(f'"""{SUBJECT}\n')
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"0 of {2 * 8} elements are wrong\n"


WRONG = """
from humming_conformance.kernels.qdq import Qdq


class Wrong(Qdq):
    name = "off"
    device_kinds = ("cpu",)

    def run(self, state, launch, buffer):
        output = super().run(state, launch, buffer)
        if launch == {launch}:
            output.tensor[1, 3] = 1000.0
        return output


kernel = Wrong()
"""


def test_repro_of_a_failure(folder, monkeypatch, capsys):
    """A failure's script holds the launch that is wrong and names the wrong element; the exit status is 1."""
    case = CASE.replace("random", "readout")
    launches = -(-parse_case(case).problem.k // 2)
    (folder / "off.py").write_text(WRONG.format(launch=launches - 1))
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    monkeypatch.setenv("PYTHONPATH", str(folder))
    assert cli.main(["repro", f"off:{case}:cpu", "--kernel", "off:kernel", "--output", "again.py"]) == 1
    out = capsys.readouterr().out
    assert f"launch {launches - 1}, row 1, column 3: got 1000" in out
    done = subprocess.run([sys.executable, "again.py"], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "1 of 16 elements are wrong"
    assert second.startswith("  [1, 3] got 1000, right: ")


RAISING = r"""
from humming_conformance.kernels.qdq import Qdq


class Raising(Qdq):
    name = "raising"
    device_kinds = ("cpu",)

    def run(self, state, launch, buffer):
        raise RuntimeError('C:\\xmm: \\"\"\" is no token, nor is \0' '1')


kernel = Raising()
"""


def test_repro_of_an_error(folder, monkeypatch, capsys):
    """What a library printed stands in the script as it is, whatever it would mean in Python."""
    (folder / "raising.py").write_text(RAISING)
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    monkeypatch.setenv("PYTHONPATH", str(folder))
    assert cli.main(["repro", f"raising:{CASE}:cpu", "--kernel", "raising:kernel", "--output", "again.py"]) == 1
    told = ast.get_docstring(ast.parse((folder / "again.py").read_text()), clean=False)
    assert told is not None
    assert 'RuntimeError: C:\\xmm: \\""" is no token, nor is \x001' in told
    assert told.partition("\n\n")[2].rstrip() in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["repro", "nonsense"], "subject 'nonsense' is not kernel:case:device"),
        (["repro", "qdq:dense:cpu"], "dense"),
        (["repro", f"qdk:{CASE}:cpu"], "did you mean qdq?"),
        (["repro", str(SUBJECT), "--kernel", "torch_gemm"], "'qdq' is not among torch_gemm"),
        (
            ["repro", f"triton_fused:{CASE}:cpu"],
            "triton_fused can't run on cpu; needed is a device of the kind cuda or",
        ),
        (["plan", "--tier", "smok"], "nearest: smoke"),
        (["plan", "--library", "humming"], "NAME=REQUEST"),
        (["report", "none"], "none holds no ledger"),
        (["compare", "none", "none"], "none holds no ledger"),
        (["margins", "none"], "none holds no ledger"),
        (["tiers", "none"], "kernel 'none' is not known"),
        (["tiers", "qdq", "--tier", "gates"], "nearest: gate"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input(folder, capsys, arguments, words):
    """One line on standard error that begins with the command, exit status 2, and nothing written."""
    assert cli.main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"humming-conformance {arguments[0]}: ")
    assert told.err.count("\n") == 1
    assert words in told.err
    assert list(folder.iterdir()) == []


def test_output_that_cannot_be_written(folder, capsys):
    """The path is named as it was given, before anything is judged."""
    for arguments in (["repro", str(SUBJECT)], ["report", "ledger"]):
        for output in ("none/file", "."):
            assert cli.main([*arguments, "--output", output]) == 2
            told = capsys.readouterr()
            assert f"--output {output!r} can't be written" in told.err
            assert told.out == ""
    assert list(folder.iterdir()) == []


def test_a_ledger_without_a_head(folder, capsys):
    """Shards alone are no run to report on."""
    (folder / "ledger").mkdir()
    with ShardWriter(folder / "ledger", "main") as shard:
        shard.append(Verdict(SUBJECT, "numerics", "pass"))
    assert cli.main(["report", "ledger"]) == 2
    assert "has no head" in capsys.readouterr().err


def test_repro_elsewhere(folder, capsys):
    """Where the subject's device isn't here, the one that is judged on is told; nothing judged is status 3."""
    assert cli.main(["repro", f"qdq:{CASE}:nonsense", "--output", "again.py"]) == 0
    assert re.match(r"judged on \w+ instead of nonsense, which is not here\nqdq:", capsys.readouterr().out)
    assert (folder / "again.py").is_file()
    unclaimed = CASE.replace("dense", "moe_indexed").replace("k32", "k32.e4.top2")
    for device in ("cpu", "nonsense"):
        assert cli.main(["repro", f"torch_gemm:{unclaimed}:{device}", "--output", "again.py"]) == 3
        out = capsys.readouterr().out
        assert "\nunsupported: " in out
        assert "judged on" not in out
    assert cli.main(["repro", f"qdq:{CASE}:sm_80_on_sm_90"]) == 2  # other code than any real device's
    assert "sm_80_on_sm_90" in capsys.readouterr().err


def test_help_of_repro(capsys):
    """It says what each exit status means."""
    with pytest.raises(SystemExit):
        cli.main(["repro", "--help"])
    assert "3 nothing was judged" in " ".join(capsys.readouterr().out.split())
