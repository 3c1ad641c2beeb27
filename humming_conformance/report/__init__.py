# SPDX-License-Identifier: Apache-2.0
"""What people and CI systems read: terminal summary, HTML report, JUnit properties, comparisons."""

from __future__ import annotations

from humming_conformance.report.compare import compare_ledgers
from humming_conformance.report.html import write_html
from humming_conformance.report.junit import junit_properties
from humming_conformance.report.margins import margin_lines
from humming_conformance.report.plan import plan_lines
from humming_conformance.report.terminal import summary_lines

__all__ = ["compare_ledgers", "junit_properties", "margin_lines", "plan_lines", "summary_lines", "write_html"]
