# SPDX-License-Identifier: Apache-2.0
"""The text of a numerics failure."""

from humming_conformance.oracle.comparison import WrongElement
from humming_conformance.protocols import Subject
from humming_conformance.verdicts.failure import failure_text

SUBJECT = Subject("humming_lib", "moe_indexed-w_int4.g128.bf16-a_bf16-m16.n256.k512.e8.top2-random", "h200")
FIRST = WrongElement(launch=0, row=3, column=17, token=1, slot=1, expert=5, got=1.5, expected=1.0, bound=0.0625)


def test_a_failure_says_what_where_and_why() -> None:
    """Every piece given stands in the text, in its order, the subject first."""
    place = "launch 0, row 3, column 17 (token 1, slot 1, expert 5)"
    text = failure_text(
        SUBJECT,
        first=FIRST,
        wrong=12,
        total=8192,
        where=["all in the last 3 columns"],
        fault_class="tail",
        reasons=["margin 8 is above 1"],
        route="indexed mma.sync 64x128x64",
        contract="bf16 split_k=2",
    )
    assert text.splitlines() == [
        str(SUBJECT),
        "        failed: margin 8 is above 1",
        f"   first wrong: {place}: got 1.5, expected 1, bound 0.0625",
        "      how many: 12 of 8192 elements (0.146%) outside their bounds",
        "         where: all in the last 3 columns",
        "  likely fault: tail",
        "         route: indexed mma.sync 64x128x64",
        "      contract: bf16 split_k=2",
    ]


def test_what_is_not_known_takes_no_line() -> None:
    """A failure without a wrong element (a rule on the route) shows the rule only."""
    text = failure_text(SUBJECT, first=None, wrong=0, total=0, reasons=["ran another backend"])
    assert text.splitlines() == [str(SUBJECT), "        failed: ran another backend"]


def test_a_dense_element_that_must_be_equal() -> None:
    """Without a bound the text says that equality is demanded; a dense row has no expert; NaN is shown."""
    first = WrongElement(2, 0, 1, 0, 0, None, got=float("nan"), expected=-0.1, bound=0.0)
    text = failure_text(SUBJECT, first=first, wrong=1, total=2)
    assert "launch 2, row 0, column 1: got nan, expected -0.1, must be equal" in text


def test_a_failure_with_much_to_say_stays_short() -> None:
    """With every field too long the text has fewer than 23 lines; the subject stays whole."""
    long = "word " * 300
    text = failure_text(
        SUBJECT,
        first=FIRST,
        wrong=1,
        total=3,
        where=[long] * 9,
        fault_class=long,
        reasons=[long] * 9,
        route=long,
        contract=long,
    )
    lines = text.splitlines()
    assert len(lines) < 23
    assert max(map(len, lines[1:])) <= 110
    assert "         where: and 7 more, see the ledger" in lines
    assert lines[0] == str(SUBJECT)
