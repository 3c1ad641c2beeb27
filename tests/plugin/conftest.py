# SPDX-License-Identifier: Apache-2.0
"""Runs of the suites in processes of their own, as users start them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

import humming_conformance
from humming_conformance.ledger import read_ledger
from humming_conformance.problems import parse_case

HERE = Path(__file__).parent
SUITES = Path(humming_conformance.__file__).resolve().parents[1] / "suites" / "numerics"
#: Seconds after which a run is stuck; no passing test comes near.
PATIENCE = 300


@dataclass(frozen=True)
class Ran:
    """A finished run: its exit status, all it printed, and where its ledger was to be."""

    code: int
    output: str
    folder: Path

    @property
    def ledger(self):
        """The merged ledger."""
        return read_ledger(self.folder)

    def verdicts(self):
        """Verdicts by (kernel, number of tokens)."""
        return {(v.subject.kernel, parse_case(v.subject.case_id).problem.m): v for v in self.ledger.verdicts}

    @property
    def last_line(self):
        """The last line of the account: what is not red and must not be overlooked, None where there is none."""
        lines = [line for line in self.output.splitlines() if line.startswith("slow ")]
        return lines[-1] if lines else None

    def outcomes(self):
        """Outcomes by (kernel, number of tokens)."""
        return {key: verdict.outcome for key, verdict in self.verdicts().items()}


class Suites:
    """Starts ``pytest suites/numerics`` in a folder of its own: no GPU is seen, and these tests' adapters are there."""

    suites = SUITES

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        search_path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
        self.environment |= {"PYTHONPATH": search_path, "COLUMNS": "110", "CUDA_VISIBLE_DEVICES": ""}

    @staticmethod
    def case(tokens: int) -> str:
        """The id of a small case with so many tokens."""
        return f"dense-w_int8.channel.bf16-a_bf16-m{tokens}.n8.k32-random"

    def command(self, *options, kernels=(), tokens=()):
        """The command line for kernels of ``kernels_for_tests`` on the case with each number of tokens."""
        named = [f"--kernel=kernels_for_tests:{name}" for name in kernels]
        cases = [f"--case={self.case(m)}" for m in tokens]
        arguments = ["-p", "no:cacheprovider", *named, *cases, *map(str, options)]
        return [sys.executable, "-m", "pytest", str(SUITES), *arguments]

    def run(self, *options, ledger="ledger", **more):
        """Run to the end; with ``ledger`` None, no ledger is named."""
        named = ["--ledger", ledger] if ledger else []
        done = subprocess.run(
            self.command(*named, *options, **more),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return Ran(done.returncode, done.stdout, self.folder / (ledger or ""))

    def wait_for_a_verdict(self, process):
        """Wait until a run without workers has written its first verdict to the folder ``ledger``."""
        shard = self.folder / "ledger" / "shard-main.jsonl"
        deadline = time.monotonic() + PATIENCE
        while not (shard.exists() and shard.read_text().endswith("\n")):
            assert process.poll() is None, "the run ended before it had judged anything"
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def refused(self, *options, **more):
        """Run what must be refused: exit status 4 and one line that says why, which is returned."""
        ran = self.run(*options, ledger=more.pop("ledger", None), **more)
        assert ran.code == pytest.ExitCode.USAGE_ERROR, ran.output
        assert "Traceback" not in ran.output
        assert "INTERNALERROR" not in ran.output
        told = [line for line in ran.output.splitlines() if line.startswith("ERROR: ")]
        assert len(told) == 1, ran.output
        return told[0]


@pytest.fixture
def suites(tmp_path):
    """Runs of the suites in the test's folder."""
    return Suites(tmp_path)
