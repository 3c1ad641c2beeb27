# SPDX-License-Identifier: Apache-2.0
"""Whole runs of a kernel that is compiled ahead: what they print, judge and leave, and how they stop."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest

from humming_conformance.ledger import read_failed_builds, read_ledger
from humming_conformance.problems import parse_case

#: Sizes of ``building_kernel`` whose compiler doesn't end, and for which no kernel can be selected.
HANGS, REFUSED = 48, 40


class Building:
    """Runs of the adapter that builds, in a state folder of the test's own."""

    def __init__(self, suites):
        self.suites = suites
        self.state = suites.folder / "state"
        suites.environment["HUMMING_CONFORMANCE_STATE"] = str(self.state)
        library = suites.folder / "library" / "toylib"
        library.mkdir(parents=True)
        (library / "__init__.py").touch()
        self.state.mkdir()

    def options(self, sizes):
        """Two cases for each N."""
        cases = [f"--case=dense-w_int8.channel.bf16-a_bf16-m{m}.n{n}.k32-random" for n in sizes for m in (1, 2)]
        return ["--kernel=building_kernel:building", "--library=toylib=library", *cases]

    def run(self, *options, sizes, **more):
        """A whole run."""
        return self.suites.run(*options, *self.options(sizes), **more)

    def compiled(self):
        """What the compiler was called for, in order."""
        return [line for path in self.state.glob("jit/*/compiled") for line in path.read_text().split()]


@pytest.fixture
def building(suites):
    """Runs of the adapter that builds."""
    return Building(suites)


def outcomes(ledger):
    """Outcomes by N."""
    found = {}
    for verdict in ledger.verdicts:
        found.setdefault(parse_case(verdict.subject.case_id).problem.n, []).append(verdict.outcome)
    return found


@pytest.mark.parametrize("workers", [["-n2"], []])
def test_failed_builds_are_judged_and_resumed(building, workers):
    """A kernel is compiled once whatever comes of it; one that fails is the error of its cases until it builds."""
    (building.state / "broken").write_text("16")
    ran = building.run(*workers, sizes=[8, 16, REFUSED])
    assert outcomes(ran.ledger) == {8: ["pass"] * 2, 16: ["error"] * 2, REFUSED: ["pass"] * 2}
    assert sorted(building.compiled()) == ["n16", "n8"]
    errors = [verdict for verdict in ran.ledger.verdicts if verdict.outcome == "error"]
    assert all(verdict.evidence == {"fault_class": "toolchain", "unit": "n16"} for verdict in errors)
    assert all("toy.cu(3): error: no tile for 16" in verdict.reason for verdict in errors)
    (failed,) = read_failed_builds(ran.folder)
    assert set(failed.subjects) == {verdict.subject for verdict in errors}
    assert "building kernels: 2 of 2, 1 failed" in ran.output.splitlines()
    assert "kernels built ahead: 1, for 6 cases, in" in ran.output
    assert ran.ledger.end.mismatches == ()
    assert ran.code == 1

    (building.state / "broken").unlink()
    resumed = building.run(*workers, "--resume", "ledger", sizes=[8, 16, REFUSED], ledger=None)
    assert resumed.code == 0, resumed.output
    ledger = read_ledger(ran.folder)
    assert {outcome for found in outcomes(ledger).values() for outcome in found} == {"pass"}
    assert sorted(building.compiled()) == ["n16", "n16", "n8"]
    assert read_failed_builds(ran.folder) == ()
    assert "kernels built ahead: 1, for 2 cases, in" in resumed.output


def test_nothing_to_build_is_not_worth_a_word(building):
    """A second run compiles nothing and says nothing of it."""
    first = building.run(sizes=[8, 16])
    assert "building kernels: 2 of 2" in first.output.splitlines()
    second = building.run(sizes=[8, 16], ledger="second")
    assert outcomes(second.ledger) == {8: ["pass"] * 2, 16: ["pass"] * 2}
    assert "kernels" not in second.output
    assert sorted(building.compiled()) == ["n16", "n8"]


def test_interrupted_while_it_builds(building):
    """Ctrl-C doesn't wait for the compiler: nothing was judged, and the numbers add up."""
    suites = building.suites
    with subprocess.Popen(
        suites.command("--ledger", "ledger", *building.options([HANGS])),
        cwd=suites.folder,
        env=suites.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        deadline = time.monotonic() + 300
        while building.compiled() != [f"n{HANGS}"]:
            assert process.poll() is None, "the run ended before it compiled anything"
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=120)[0]
    ledger = read_ledger(suites.folder / "ledger")
    assert outcomes(ledger) == {HANGS: ["not_run", "not_run"]}
    assert ledger.end.exit_reason == "interrupted: Ctrl-C"
    assert ledger.end.mismatches == ()
    assert process.returncode == 2
    assert "planned 2 = 2 not_run" in output
    assert "Traceback" not in output
