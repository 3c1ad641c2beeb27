# SPDX-License-Identifier: Apache-2.0
"""vLLM's selection: requests are honoured, refusals speak, and automatic choice finds what there is."""

from __future__ import annotations

from humming_conformance.pytest_plugin import Judged


def test_selection_keeps_its_promises(judged: Judged) -> None:
    """Whichever backend is asked for, vLLM serves the layer with it, or says clearly why not."""
    judged.require_pass()
