# SPDX-License-Identifier: Apache-2.0
"""The text of a numerics failure: what is wrong, where, by which route, and how to see it again."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from humming_conformance.oracle.comparison import WrongElement
from humming_conformance.protocols import Subject

_WIDTH = 110
_LABEL_WIDTH = 14
_MAX_SENTENCES = 3


def failure_text(
    subject: Subject,
    *,
    first: WrongElement | None,
    wrong: int,
    total: int,
    where: Sequence[str] = (),
    fault_class: str = "",
    reasons: Sequence[str] = (),
    route: str = "",
    contract: str = "",
) -> str:
    """The message of a failed verdict, the subject first, in at most 22 lines.

    Args:
        subject: what failed.
        first: the first wrong element, None when a rule other than the bound failed.
        wrong: elements outside their bounds, of ``total``.
        where: sentences on where they lie ("all in the last 3 rows"), most telling first.
        fault_class: the likely fault class.
        reasons: what the failed rules say, one sentence each.
        route: text of the route really taken.
        contract: text of the contract judged by.
    """
    lines = [str(subject)]
    for reason in _limited(reasons):
        lines += _field("failed", reason)
    if first is not None:
        lines += _field("first wrong", _element_text(first))
        lines += _field("how many", f"{wrong} of {total} elements ({wrong / total:.3%}) outside their bounds")
    for sentence in _limited(where):
        lines += _field("where", sentence)
    lines += _field("likely fault", fault_class, max_lines=1)
    lines += _field("route", route)
    lines += _field("contract", contract, max_lines=3)
    return "\n".join(lines)


def _element_text(element: WrongElement) -> str:
    place = f"launch {element.launch}, row {element.row}, column {element.column}"
    if element.expert is not None:
        place += f" (token {element.token}, slot {element.slot}, expert {element.expert})"
    allowed = f"bound {element.bound:.3g}" if element.bound else "must be equal"
    return f"{place}: got {element.got:.9g}, expected {element.expected:.9g}, {allowed}"


def _limited(sentences: Sequence[str]) -> list[str]:
    if len(sentences) <= _MAX_SENTENCES:
        return list(sentences)
    shown = _MAX_SENTENCES - 1
    return [*sentences[:shown], f"and {len(sentences) - shown} more, see the ledger"]


def _field(label: str, text: str, max_lines: int = 2) -> list[str]:
    """``label: text`` in at most ``max_lines`` lines; none for an empty text."""
    if not text:
        return []
    return textwrap.wrap(
        text,
        width=_WIDTH,
        initial_indent=f"{label:>{_LABEL_WIDTH}}: ",
        subsequent_indent=" " * (_LABEL_WIDTH + 2),
        max_lines=max_lines,
        placeholder=" …",
        break_on_hyphens=False,
    )
