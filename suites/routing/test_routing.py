# SPDX-License-Identifier: Apache-2.0
"""Routing: what a library would run on each recorded device is legal, the right path, and what its neighbours get.

One item is one subject of the plan: a kernel, a case of the tier and a recorded device. No GPU takes part.
"""

from __future__ import annotations

from humming_conformance.pytest_plugin import Judged


def test_choice_keeps_every_rule(judged: Judged) -> None:
    """The library's choice, or its refusal, breaks no rule of routing."""
    judged.require_pass()
