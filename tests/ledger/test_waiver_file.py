# SPDX-License-Identifier: Apache-2.0
"""Waiver files are read strictly."""

import datetime as dt
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

import humming_conformance
from humming_conformance.ledger import Waiver, WaiverError, read_waivers

GOOD = {
    "query": '"humming_lib:moe_*-w_int4*:h200"',
    "finding": '"HC-001"',
    "reason": '"drops the last group"',
    "kind": '"tolerate"',
    "library": '">=0.1.16,<0.1.20"',
    "expires": "2030-12-31",
}


def write(path: Path, *entries: dict[str, str | None]) -> Path:
    """Write one [[waiver]] an entry; a value of None leaves the key out."""
    text = "".join(
        "[[waiver]]\n" + "".join(f"{key} = {value}\n" for key, value in entry.items() if value is not None)
        for entry in entries
    )
    path.write_text(text)
    return path


def test_a_whole_entry_is_read(tmp_path: Path) -> None:
    """Every key reaches its field, in canonical form."""
    entry = GOOD | {
        "finding": None,
        "issue": '"inclusionAI/humming#12"',
        "kind": '"quarantine"',
        "suites": '["routing", "numerics"]',
        "architecture": '["sm_120", "sm_90"]',
        "expires": '"library >= 0.1.21"',
    }
    assert read_waivers([write(tmp_path / "w.toml", entry)]) == (
        Waiver(
            query="humming_lib:moe_*-w_int4*:h200",
            reference="inclusionAI/humming#12",
            reason="drops the last group",
            kind="quarantine",
            library=SpecifierSet(">=0.1.16,<0.1.20"),
            expires=SpecifierSet(">=0.1.21"),
            suites=("numerics", "routing"),
            architectures=(90, 120),
        ),
    )


def test_any_version_and_a_date(tmp_path: Path) -> None:
    """`*` is any version, a kernel without a library included, and a TOML date is the last day."""
    (waiver,) = read_waivers([write(tmp_path / "w.toml", GOOD | {"library": '"*"'})])
    assert waiver.library is None
    assert waiver.expires == dt.date(2030, 12, 31)
    assert waiver.kernel == "humming_lib"


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"quary": '"x"'}, r"unknown key 'quary'; did you mean query\?"),
        ({"zzz": '"x"'}, "unknown key 'zzz'; the keys are query"),
        ({"query": None}, "the key 'query' is missing; add it"),
        ({"reason": None}, "the key 'reason' is missing"),
        ({"kind": None}, "the key 'kind' is missing"),
        ({"library": None}, "the key 'library' is missing"),
        ({"expires": None}, "the key 'expires' is missing"),
        ({"finding": None}, "needs either issue or finding"),
        ({"issue": '"a/b#1"'}, "needs either issue or finding"),
        ({"finding": None, "issue": '"#12"'}, "issue '#12' is not owner/repository#number"),
        ({"finding": '"HC-1"'}, "finding 'HC-1' is not HC- and at least three digits"),
        ({"reason": '"  "'}, "must be a string that says something"),
        ({"query": '"humming_lib:moe_*"'}, "is not kernel:case:device"),
        ({"query": '"*:moe_*:h200"'}, "with a whole kernel name"),
        ({"kind": '"ignore"'}, "kind 'ignore' is not tolerate or quarantine"),
        ({"library": '"0.1.16"'}, "library '0.1.16' is not a version range"),
        ({"library": '">=0.1.x"'}, "is not a version range"),
        ({"expires": '"2030-12-31"'}, "date without quotes"),
        ({"expires": "2030-12-31T00:00:00"}, "neither a date"),
        ({"expires": '"library>=new"'}, "is not a version range"),
        ({"expires": '"library>=1"', "library": '"*"'}, "needs a library version range"),
        ({"suites": '["numeric"]'}, "suite 'numeric' is not one of numerics"),
        ({"suites": "[]"}, "must be a list of strings, or left out"),
        ({"architecture": '"sm_90"'}, "must be a list of strings"),
        ({"architecture": '["90"]'}, "architecture '90' is not sm_ and a number"),
    ],
)
def test_each_broken_rule_names_file_entry_and_mend(tmp_path: Path, change: dict[str, str | None], rule: str) -> None:
    """A second entry that breaks one rule raises one error with file, entry number, rule and mend."""
    other = GOOD | {"query": '"humming_lib:dense-*:h200"'}
    path = write(tmp_path / "w.toml", other, GOOD | change)
    with pytest.raises(WaiverError, match=rf"w\.toml, waiver 2: .*{rule}"):
        read_waivers([path])


def test_an_impossible_date_is_no_toml(tmp_path: Path) -> None:
    """A day that doesn't exist is refused with the file's name."""
    with pytest.raises(WaiverError, match=r"w\.toml: is not TOML"):
        read_waivers([write(tmp_path / "w.toml", GOOD | {"expires": "2030-02-30"})])


def test_a_finding_must_be_written(tmp_path: Path) -> None:
    """With the findings' folder, a finding without its file (`HC-001.md`, `HC-001-title.md`) is an error."""
    path = write(tmp_path / "w.toml", GOOD)
    findings = tmp_path / "findings"
    findings.mkdir()
    (findings / "HC-0012.md").write_text("")
    with pytest.raises(WaiverError, match=r"HC-001 is not written in .*findings; write it up"):
        read_waivers([path], findings)
    for name in ("HC-001.md", "HC-001-drops-a-group.md"):
        (findings / name).write_text("")
        assert len(read_waivers([path], findings)) == 1
        (findings / name).unlink()


def test_one_scope_has_one_waiver(tmp_path: Path) -> None:
    """The same scope twice is an error across files; another version range is another scope."""
    first = write(tmp_path / "a.toml", GOOD)
    other_range = write(tmp_path / "b.toml", GOOD | {"library": '">=0.1.20"'})
    assert len(read_waivers([first, other_range])) == 2
    second = write(tmp_path / "c.toml", GOOD | {"finding": '"HC-002"', "library": '"<0.1.20,>=0.1.16"'})
    with pytest.raises(WaiverError, match=r"c\.toml, waiver 1: has the scope of .*a\.toml, waiver 1; keep one"):
        read_waivers([first, second])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("waiver = 3", "holds more than"),
        ('owner = "me"', "remove owner"),
        ("waiver = [3]", "waiver 1: is not a table"),
        ("[[waiver]", "is not TOML"),
    ],
)
def test_a_file_that_is_something_else_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """Other tables, other types and broken TOML are errors that name the file."""
    path = tmp_path / "w.toml"
    path.write_text(text)
    with pytest.raises(WaiverError, match=rf"w\.toml.*{message}"):
        read_waivers([path])


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """A path that leads nowhere is one clear error."""
    with pytest.raises(WaiverError, match=r"none\.toml: cannot be read \(No such file"):
        read_waivers([tmp_path / "none.toml"])


def test_the_shipped_waivers_and_the_documented_one_are_valid(tmp_path: Path) -> None:
    """The shipped file reads, and so do the entries that its comment and docs/waivers.md show."""
    root = Path(humming_conformance.__file__).parents[1]
    shipped = root / "baselines" / "waivers.toml"
    read_waivers([shipped])
    commented = [line[2:] for line in shipped.read_text().splitlines() if line.startswith("# ")]
    start = commented.index("[[waiver]]")
    documented = (root / "docs" / "waivers.md").read_text().split("```toml\n")[1].split("```")[0]
    for number, text in enumerate(["\n".join(commented[start:]), documented]):
        path = tmp_path / f"{number}.toml"
        path.write_text(text)
        assert len(read_waivers([path])) == 1
