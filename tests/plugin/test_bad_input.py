# SPDX-License-Identifier: Apache-2.0
"""Bad input ends a run before anything is judged, with exit status 4 and one line that says why."""

from __future__ import annotations

import os

import pytest

from humming_conformance.devices import load_profile
from humming_conformance.pytest_plugin import _usage_errors

RIGHT = "--kernel=kernels_for_tests:right"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            [RIGHT, "--case", "dense-w_int8.chanel.bf16-a_bf16-m2.n8.k32-random"],
            ("w_int8.chanel.bf16", "dense-w_int8.channel."),
        ),
        (["--kernel", "torch_gem"], ("'torch_gem' is not known", "did you mean torch_gemm?")),
        (["--kernel", "kernels_for_tests:rihgt"], ("kernels_for_tests:rihgt", "right")),
        (["--kernel", "no_such_module:kernel"], ("no_such_module can't be imported", "package.module:attribute")),
        (["--kernel", "kernels_for_tests:lacking"], ("is no adapter", "it lacks name, device_kinds, claims")),
        (["--kernel", "kernels_for_tests:"], ("kernels_for_tests:", "package.module:attribute")),
        ([RIGHT, "--tier", "gates"], ("'gates' is not one of smoke, gate, full", "nearest: gate")),
        ([RIGHT, "--device", "cpus"], ("'cpus' is not here", "cpu")),
        (
            [RIGHT, "--device", "cpu_interpreter"],
            ("right can't run on cpu_interpreter", "needed is a device of the kind cpu"),
        ),
        ([RIGHT, "--waivers", "none.toml"], ("none.toml", "No such file")),
        ([RIGHT, "--library", "humming"], ("--library 'humming'", "NAME=REQUEST")),
        ([RIGHT, "--library", "humming=0.1.16"], ("library 'humming' belongs to no kernel of this run",)),
        (["--kernel", "humming", "--library", "humming=newest"], ("humming=newest", "neither a version nor")),
        ([RIGHT, "--require", "wrong"], ("kernel 'wrong' is not one of right",)),
        ([RIGHT, "--require", "right:numeric"], ("suite 'numeric'", "did you mean numerics?")),
        ([RIGHT, "--require", "right=0"], ("'right=0' is not KERNEL[:SUITE][=N]",)),
        ([RIGHT, "--require", "right=many"], ("'right=many' is not KERNEL[:SUITE][=N]",)),
        ([RIGHT, "--time-limit", "0"], ("--time-limit 0", "above 0")),
        ([RIGHT, "--ledger", "a", "--resume", "a"], ("give only one of them",)),
        ([RIGHT, "--conformance-html", "none/run.html"], ("none/run.html", "folder")),
        ([RIGHT, "--conformance-html", "."], ("--conformance-html '.' can't be written", "give a file")),
        (["--kernel", "kernels_for_tests:undecided"], ("kernels_for_tests:undecided", "support() raised LookupError")),
    ],
    ids=lambda value: " ".join(value).replace(RIGHT, "").strip() if isinstance(value, list) else "",
)
def test_an_option_that_cannot_be_used(suites, options, words):
    """The line names the option's value, the rule or the valid names, and the nearest where there is one."""
    told = suites.refused(*options)
    assert all(word in told for word in words), told
    assert list(suites.folder.iterdir()) == []


def test_adapters_that_cannot_be_loaded(suites):
    """A module that raises or exits at its import, and two adapters of one name, are told in one line."""
    (suites.folder / "broken.py").write_text("import torch_of_mine_\n")
    assert "No module named 'torch_of_mine_'" in suites.refused("--kernel", "broken:kernel")
    (suites.folder / "raising.py").write_text("1 / 0\n")
    assert "raising can't be imported (ZeroDivisionError: division by zero)" in suites.refused("--kernel", "raising:k")
    (suites.folder / "leaving.py").write_text("raise SystemExit(0)\n")
    assert "leaving can't be imported (SystemExit: 0)" in suites.refused("--kernel", "leaving:kernel")
    (suites.folder / "twin.py").write_text("from kernels_for_tests import OnTwoTokens\nkernel = OnTwoTokens('right')\n")
    told = suites.refused("--kernel", "twin:kernel", kernels=["right"])
    assert "twin:kernel" in told
    assert "kernels_for_tests:right" in told
    assert "named 'right'" in told


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[waiver]\n", "is not TOML"),
        ('[[waiver]]\nquery = "right:*:*"\nreson = "x"\n', "unknown key 'reson'; did you mean reason?"),
        (
            '[[waiver]]\nquery = "*:*:*"\nreason="x"\nkind="tolerate"\nlibrary="*"\nexpires=2099-01-01\n',
            "query '*:*:*'",
        ),
    ],
)
def test_a_broken_waiver_file(suites, text, words):
    """The line names the file and what is wrong in it."""
    (suites.folder / "mine.toml").write_text(text)
    told = suites.refused("--waivers", "mine.toml", kernels=["right"], tokens=[1])
    assert "mine.toml" in told
    assert words in told


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_ledger_folders_that_cannot_be_used(suites, workers):
    """A ledger that others wrote is never overwritten: files, folders with content, and nothing to resume."""
    (suites.folder / "file").write_text("kept")
    (suites.folder / "full").mkdir()
    (suites.folder / "full" / "notes").write_text("kept")
    (suites.folder / "empty").mkdir()
    for options, words in (
        (["--ledger", "full"], ("full is not empty", "--resume")),
        (["--ledger", "file"], ("is a file; name a new or empty folder",)),
        (["--ledger", "file/below"], ("file/below", "Not a directory")),
        (["--resume", "gone"], ("gone holds no ledger",)),
        (["--resume", "empty"], ("empty holds no ledger",)),
    ):
        told = suites.refused(workers, *options, kernels=["right"], tokens=[1])
        assert all(word in told for word in words), told
        if workers != "-n0":
            break  # the other ways differ before xdist comes in only
    assert (suites.folder / "file").read_text() == "kept"
    assert [path.name for path in (suites.folder / "full").iterdir()] == ["notes"]
    assert not (suites.folder / "gone").exists()


def test_an_index_that_cannot_be_reached(suites):
    """A version that pip can't get ends the run with the request and pip's own words."""
    suites.environment |= {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "http://127.0.0.1:9/",
        "PIP_RETRIES": "0",
        "XDG_CACHE_HOME": str(suites.folder / "cache"),
    }
    ran = suites.run("--kernel=humming", "--library=humming=0.0.999", ledger=None)
    assert ran.code == pytest.ExitCode.USAGE_ERROR, ran.output
    first, *words = ran.output.splitlines()
    assert first.startswith("ERROR: library humming=0.0.999: pip could not install humming-kernels==0.0.999; correct")
    assert any("No matching distribution" in line for line in words)
    assert "Traceback" not in ran.output


def test_a_damaged_profile(tmp_path):
    """A recorded device that can't be read ends the run as an option does."""
    (tmp_path / "t4.json").write_text("{")
    with pytest.raises(pytest.UsageError, match=r"t4\.json: no JSON"), _usage_errors():
        load_profile("t4", tmp_path)


def test_bad_input_with_workers(suites):
    """Under xdist, too, it is one line of the main process."""
    told = suites.refused("-n2", "--case", "dense-w_int9", kernels=["right"])
    assert "dense-w_int9" in told
