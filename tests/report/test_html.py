# SPDX-License-Identifier: Apache-2.0
"""The HTML report and the JUnit properties."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from humming_conformance.ledger import Head, LedgerError
from humming_conformance.protocols import Ruling, Subject, Verdict
from humming_conformance.report import junit_properties, write_html

EVIL = "</script><script>alert(1)</script>\"'&<b>"
VERDICTS = [
    Verdict(Subject("qdq", "dense-a", "cpu"), "numerics", "pass", evidence={"margin": 0.25}),
    Verdict(
        Subject("qdq", "dense-b", "cpu"),
        "numerics",
        "fail",
        reason=f"reason {EVIL}",
        message=f"message {EVIL}",
        rulings=(Ruling("bound", "fail", f"ruling {EVIL}"),),
        evidence={"route": {"path": f"route {EVIL}"}, "margin": float("inf")},
        waiver=f"HC-001 {EVIL}",
    ),
]
HEAD = Head({"gpu": f"H200 {EVIL}"}, f"gate {EVIL}", ("pytest", EVIL))


class Reader(HTMLParser):
    """Collects tags, attributes and the text outside scripts and styles, and checks that tags nest."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a tag; `meta` and `input` have no end."""
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the innermost tag."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep what a reader sees."""
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data


def read(path: Path) -> Reader:
    """Parse a written report."""
    reader = Reader()
    reader.feed(path.read_text())
    reader.close()
    assert reader.open == []
    return reader


def test_the_report_shows_every_verdict_and_escapes_all_of_it(tmp_path: Path) -> None:
    """All texts appear as text, none as markup, and there is one script: our own."""
    path = tmp_path / "report.html"
    write_html(path, HEAD, VERDICTS)
    reader = read(path)
    for text in (
        *(f"{place} {EVIL}" for place in ("reason", "message", "ruling", "HC-001", "gate")),
        "qdq:dense-a:cpu",
        "qdq:dense-b:cpu",
        "1 pass, 1 fail, 0 error",
        '"margin": "inf"',
    ):
        assert text in reader.text
    assert reader.tags.count("script") == 1
    assert reader.tags.count("b") == 0
    assert reader.tags.count("tr") == 1 + len(VERDICTS)


def test_the_report_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """No link, source or style refers to another file."""
    path = tmp_path / "report.html"
    write_html(path, HEAD, VERDICTS)
    assert not {"src", "href", "srcset"} & {name for name, _ in read(path).attributes}
    assert not re.search(r"https?:|url\(|@import|fetch\(", path.read_text())


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    """Evidence that is no JSON stops the report before the file is touched."""
    path = tmp_path / "report.html"
    write_html(path, HEAD, VERDICTS)
    before = path.read_text()
    broken = Verdict(Subject("qdq", "c", "cpu"), "numerics", "fail", evidence={"x": object()})
    with pytest.raises(LedgerError, match=r"value\.x is a object"):
        write_html(path, HEAD, [broken])
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


def test_junit_properties_are_strings_by_name() -> None:
    """Subject and its parts, outcome, rulings and evidence; a waiver only where there is one."""
    properties = dict(junit_properties(VERDICTS[1]))
    assert properties["subject"] == "qdq:dense-b:cpu"
    assert (properties["kernel"], properties["case"], properties["device"]) == ("qdq", "dense-b", "cpu")
    assert (properties["suite"], properties["outcome"]) == ("numerics", "fail")
    assert properties["ruling.bound"] == f"fail: ruling {EVIL}"
    assert properties["evidence.margin"] == '"inf"'
    assert properties["evidence.route"].startswith('{"path": "route')
    assert properties["waiver"].startswith("HC-001")
    assert "waiver" not in dict(junit_properties(VERDICTS[0]))
    assert all(isinstance(value, str) for value in properties.values())
