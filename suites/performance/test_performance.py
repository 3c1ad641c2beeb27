# SPDX-License-Identifier: Apache-2.0
"""Performance: as fast as the baseline, no slow path. All cases were timed before the first item runs."""

from __future__ import annotations

from humming_conformance.pytest_plugin import Judged


def test_speed_keeps_the_baseline(judged: Judged) -> None:
    """The case is within its budget of the stored ratio, and none of the slow-path rules speaks against it."""
    judged.require_pass()
