# SPDX-License-Identifier: Apache-2.0
"""The document of case ids names every call option that there is."""

import re
from pathlib import Path

from humming_conformance.problems.calls import CALL_OPTIONS

DOCUMENT = Path(__file__).parents[2] / "docs" / "case_ids.md"


def test_every_call_option_is_described():
    """The table of calls has a line for each option, in the order of the options, and no other."""
    section = DOCUMENT.read_text().split("### Calls")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(CALL_OPTIONS)
