# SPDX-License-Identifier: Apache-2.0
"""Tier lists: cumulative, append-only, and read with one clear error for what is wrong in them."""

import subprocess
import sys

import pytest

from humming_conformance.problems import parse_case, tiers
from humming_conformance.problems.tiers import TIERS, TierError, append_to_tier, listed_kernels, load_tier

FIRST = "dense-w_int4.g32.bf16-a_bf16-m1.n64.k64-readout"
SECOND = "dense-w_int4.g32.bf16-a_bf16-m1.n64.k64-random"
THIRD = "dense-w_int4.g32.bf16-a_bf16-m1.n64.k64-random-s1"


@pytest.fixture
def lists(tmp_path, monkeypatch):
    """An empty folder of lists in place of the committed ones."""
    monkeypatch.setattr(tiers, "LISTS", tmp_path)
    load_tier.cache_clear()
    yield tmp_path
    load_tier.cache_clear()


def write(lists, tier, kernel, *lines):
    """Write a list as a person would."""
    (lists / "numerics" / tier).mkdir(parents=True, exist_ok=True)
    (lists / "numerics" / tier / f"{kernel}.txt").write_text("".join(f"{line}\n" for line in lines))


def test_tiers_are_cumulative(lists):
    """A tier holds its own list after those of the tiers below it; comments and blank lines are skipped."""
    write(lists, "smoke", "one", "# a comment", FIRST)
    write(lists, "full", "one", "", f"{THIRD}  # why")
    write(lists, "gate", "one", SECOND)
    assert [load_tier(tier, "one") for tier in TIERS] == [(FIRST,), (FIRST, SECOND), (FIRST, SECOND, THIRD)]


def test_unlisted_kernel_gets_the_union(lists):
    """A user's kernel gets every listed case once, kernel by kernel; a listed one gets its own."""
    write(lists, "smoke", "one", FIRST, SECOND)
    write(lists, "smoke", "two", THIRD, FIRST)
    assert listed_kernels() == ("one", "two")
    assert load_tier("smoke", "mine") == (FIRST, SECOND, THIRD)
    assert load_tier("smoke", "two") == (THIRD, FIRST)


def test_a_list_in_another_tier_is_a_list(lists):
    """A kernel whose only list is of a higher tier has nothing below it, rather than everybody's cases."""
    write(lists, "smoke", "one", FIRST)
    write(lists, "full", "two", SECOND)
    assert load_tier("gate", "two") == ()


@pytest.mark.usefixtures("lists")
def test_unknown_tier():
    """An unknown tier names those there are and the nearest."""
    with pytest.raises(TierError, match=r"tier 'gates' is not one of smoke, gate, full; nearest: gate"):
        load_tier("gates", "one")
    with pytest.raises(TierError, match="nearest: smoke"):
        append_to_tier("smok", "one", [FIRST])


def test_invalid_id_names_file_and_line(lists):
    """An invalid id is reported with its file, its line and the id's own error."""
    write(lists, "gate", "one", "# comment", FIRST, SECOND.replace("random", "randm"))
    with pytest.raises(TierError, match=r"gate/one.txt, line 3: case id .*regime 'randm' is not one of"):
        load_tier("gate", "one")


@pytest.mark.parametrize("tier", ["smoke", "gate"])
def test_repeated_id_names_both_places(lists, tier):
    """An id twice, in one list or in a tier and one below it, is reported with both places."""
    write(lists, "smoke", "one", FIRST, *([FIRST] if tier == "smoke" else []))
    write(lists, "gate", "one", FIRST)
    line = 2 if tier == "smoke" else 1
    with pytest.raises(TierError, match=rf"{tier}/one.txt, line {line}: .* there already \(smoke/one.txt, line 1\)"):
        load_tier(tier, "one")


def test_append_keeps_every_line(lists):
    """New cases come after the lines that are there, comments included, and are loaded at once."""
    append_to_tier("smoke", "one", [FIRST])
    before = (lists / "numerics" / "smoke" / "one.txt").read_text()
    assert load_tier("smoke", "one") == (FIRST,)
    append_to_tier("smoke", "one", [SECOND, THIRD])
    assert (lists / "numerics" / "smoke" / "one.txt").read_text() == f"{before}{SECOND}\n{THIRD}\n"
    assert load_tier("smoke", "one") == (FIRST, SECOND, THIRD)
    assert [path.name for path in (lists / "numerics" / "smoke").iterdir()] == ["one.txt"]


@pytest.mark.usefixtures("lists")
@pytest.mark.parametrize(("tier", "wrong"), [("smoke", FIRST), ("gate", FIRST), ("gate", "no-id")])
def test_append_refuses_what_would_not_load(tier, wrong):
    """A repeated or invalid id is refused and no list changes."""
    append_to_tier("smoke", "one", [FIRST])
    with pytest.raises(TierError, match=r"there already|case id 'no-id'"):
        append_to_tier(tier, "one", [wrong])
    assert load_tier("gate", "one") == (FIRST,)


def test_append_nothing_writes_nothing(lists):
    """Without new cases there is no new file."""
    append_to_tier("smoke", "one", [])
    assert list(lists.iterdir()) == []


@pytest.mark.parametrize("kernel", listed_kernels())
def test_committed_lists_load(kernel):
    """Every committed id is read back as itself, and each tier has more than the one below."""
    sizes = [len(load_tier(tier, kernel)) for tier in TIERS]
    assert 0 < sizes[0] < sizes[1] <= sizes[2]
    for case_id in load_tier("full", kernel):
        assert parse_case(case_id).id == case_id


def test_loading_imports_no_torch():
    """The lists are read where a run is planned: without torch or a library under test."""
    code = (
        "import sys; from humming_conformance.problems.tiers import load_tier; "
        "assert load_tier('full', 'mine'); "
        "print(*sorted({'torch', 'triton', 'humming'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
