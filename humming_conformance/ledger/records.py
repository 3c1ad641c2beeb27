# SPDX-License-Identifier: Apache-2.0
"""What a ledger is made of: plan, head, verdicts and end. :mod:`.jsonl` writes and reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

from humming_conformance.protocols import Outcome, Subject, Verdict

SUITES = ("numerics", "routing", "codegen", "vllm", "performance", "issues")
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


class LedgerError(ValueError):
    """A ledger folder, file or record breaks a rule; the text names it, the rule and the mend."""


class Planned(NamedTuple):
    """One entry of the plan: the suite that is to judge the subject."""

    suite: str
    subject: Subject

    def __str__(self) -> str:
        return f"{self.suite} {self.subject}"


class Mismatch(NamedTuple):
    """One place where plan and verdicts disagree."""

    planned: Planned
    problem: str

    def __str__(self) -> str:
        return f"{self.planned}: {self.problem}"


@dataclass(frozen=True)
class Head:
    """The first record: what was run, on what, and all that was to be judged.

    ``environment`` is JSON-able and the caller's: GPU, clocks, driver, library build and hash, our commit…
    """

    environment: Mapping[str, Any]
    tier: str
    command: tuple[str, ...]
    plan: tuple[Planned, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A verdict and the worker that reported it (empty: nobody did, the merge filled it in)."""

    verdict: Verdict
    worker: str = ""

    @property
    def planned(self) -> Planned:
        """The plan entry that this verdict answers."""
        return Planned(self.verdict.suite, self.verdict.subject)


@dataclass(frozen=True)
class End:
    """The last record: why the run ended, the counts by outcome, and what doesn't add up.

    ``exit_reason`` is ``finished`` or ``interrupted: …``. ``truncated`` names the files whose last line was
    cut off by a killed writer.
    """

    exit_reason: str
    counts: Mapping[str, int]
    mismatches: tuple[Mismatch, ...] = ()
    truncated: tuple[str, ...] = ()


Record = Head | Entry | End
