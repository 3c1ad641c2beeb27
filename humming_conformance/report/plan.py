# SPDX-License-Identifier: Apache-2.0
"""What a plan would do on this machine, as lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from humming_conformance.protocols import Support

_WORDS = {"yes": "would be judged", "no": "unsupported", "absent": "not_run"}


def plan_lines(answers: Iterable[tuple[str, Support]]) -> list[str]:
    """Counts of (heading of the subject, support) pairs, and the reason and mend of what would not be judged here."""
    counts = Counter((kernel, support) for kernel, support in answers)
    lines = [f"conformance plan: {counts.total()} subjects"]
    for (kernel, support), count in sorted(counts.items(), key=lambda item: (item[0][0], -item[1])):
        why = f": {support.reason}" if support.reason else ""
        mend = f" (mend: {support.mend})" if support.mend else ""
        lines.append(f"  {count:5} {kernel} {_WORDS[support.answer]}{why}{mend}")
    return lines
