# SPDX-License-Identifier: Apache-2.0
"""The page on routing says what the code has."""

from __future__ import annotations

from pathlib import Path

import pytest

from humming_conformance.verdicts.routing import RULES

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "routing.md").read_text()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_is_in_the_table(rule):
    """Name, what must hold and why, word for word."""
    assert f"| `{rule.name}` | {rule.must} | {rule.why} |" in PAGE


def test_findings_that_are_named_are_written():
    """Every link to a finding has its page."""
    linked = [part.partition(")")[0] for part in PAGE.split("](findings/")[1:]]
    assert len(linked) >= 13
    assert all((DOCS / "findings" / name).is_file() for name in linked)
