# SPDX-License-Identifier: Apache-2.0
"""The plan and all verdicts of a run: records, folder, accounting and waivers."""

from __future__ import annotations

from humming_conformance.ledger.accounting import (
    ExitStatus,
    Requirement,
    RequirementError,
    count_by_kernel_and_suite,
    exit_status,
    is_judged,
    performance_kind,
)
from humming_conformance.ledger.builds import FailedBuild, read_failed_builds, write_failed_builds
from humming_conformance.ledger.folder import Ledger, read_ledger, resume, start
from humming_conformance.ledger.jsonl import SCHEMA, as_read
from humming_conformance.ledger.merge import merge
from humming_conformance.ledger.records import (
    OUTCOMES,
    SUITES,
    End,
    Entry,
    Head,
    LedgerError,
    Mismatch,
    Planned,
)
from humming_conformance.ledger.waiver_file import WaiverError, read_waivers
from humming_conformance.ledger.waivers import Target, Waiver, apply, quarantined, stale
from humming_conformance.ledger.writer import ShardWriter, replace_text

__all__ = [
    "OUTCOMES",
    "SCHEMA",
    "SUITES",
    "End",
    "Entry",
    "ExitStatus",
    "FailedBuild",
    "Head",
    "Ledger",
    "LedgerError",
    "Mismatch",
    "Planned",
    "Requirement",
    "RequirementError",
    "ShardWriter",
    "Target",
    "Waiver",
    "WaiverError",
    "apply",
    "as_read",
    "count_by_kernel_and_suite",
    "exit_status",
    "is_judged",
    "merge",
    "performance_kind",
    "quarantined",
    "read_failed_builds",
    "read_ledger",
    "read_waivers",
    "replace_text",
    "resume",
    "stale",
    "start",
    "write_failed_builds",
]
