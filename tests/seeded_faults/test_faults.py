# SPDX-License-Identifier: Apache-2.0
"""The faults as data, what seeding does to a library, and which cases are chosen first."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from humming_conformance.problems import parse_case
from humming_conformance.problems.tiers import load_tier
from humming_conformance.protocols import Library
from tests.seeded_faults.choice import MOST_CASES, MOST_KERNELS, first_groups, kernel_key
from tests.seeded_faults.fault import Fault
from tests.seeded_faults.faults import FAULTS
from tests.seeded_faults.seeding import NotApplicableError, check_applicable, seed

HUMMING = Library("humming-kernels", "humming")
GATE = [parse_case(case_id) for case_id in load_tier("gate", "humming")]
SMOKE = set(load_tier("smoke", "humming"))
each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A folder with a library of two files and its metadata."""
    package = tmp_path / "source" / "humming"
    (package / "__pycache__").mkdir(parents=True)
    (package / "__pycache__" / "__init__.pyc").write_bytes(b"stale")
    (package / "__init__.py").write_text("ONE = 1\nTWO = 1\n")
    (package / "data.txt").write_text("ONE = 1\n")
    metadata = tmp_path / "source" / "humming_kernels-0.9.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: humming-kernels\nVersion: 0.9\n")
    (tmp_path / "source" / "other").mkdir()
    return tmp_path / "source"


def _fault(text: str, file: str = "__init__.py") -> Fault:
    return Fault("tiny", "layout", file, text, "ONE = 2", "Changes one.", lambda _case: True)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@each_fault
def test_fault_changes_one_line(fault: Fault):
    """A fault changes, drops or adds nothing but one line, and says in a sentence what that breaks."""
    before, after = fault.text.splitlines(), fault.replacement.splitlines()
    dropped = [line for line in before if line not in after]
    added = [line for line in after if line not in before]
    assert len(dropped) == 1
    assert len(added) <= 1
    assert len(before) - len(after) == 1 - len(added)
    assert re.fullmatch(r"\S.{20,}[^.]\.", fault.breaks)


@each_fault
def test_fault_has_cases_to_show_it(fault: Fault):
    """Every fault can show on some case of the gate, and its first cases stay within their limits."""
    groups = first_groups(fault, GATE, SMOKE)
    chosen = [case for group in groups for case in group]
    assert 0 < len(chosen) <= MOST_CASES
    assert len(groups) <= MOST_KERNELS
    assert all(fault.shows(case) for case in chosen)
    assert len(set(chosen)) == len(chosen)


@each_fault
def test_fault_is_in_the_installed_library(fault: Fault):
    """What a fault replaces stands exactly once in the newest release."""
    spec = importlib.util.find_spec("humming")
    if spec is None or spec.origin is None:
        pytest.skip("humming-kernels isn't installed: pip install humming-conformance[humming]")
    check_applicable(fault, Path(spec.origin).parents[1], HUMMING, "installed")


def test_names_and_classes():
    """Names are unique words; classes are those of a diagnosis, and each of them has several faults."""
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in names)
    classes = [fault.fault_class for fault in FAULTS]
    known = {"layout", "scale index", "zero point", "tail", "wrong expert", "unowned write", "precision", "race"}
    assert set(classes) == known
    assert all(classes.count(name) >= 2 for name in known)


def test_seeding_changes_one_place_of_a_copy(tiny: Path, tmp_path: Path):
    """The copy differs in the one line, has the metadata and no compiled Python; the original is as it was."""
    before = _files(tiny)
    target = tmp_path / "target"
    seed(_fault("ONE = 1"), tiny, target, HUMMING, "0.9")
    assert _files(tiny) == before
    assert _files(target) == {
        "humming/__init__.py": b"ONE = 2\nTWO = 1\n",
        "humming/data.txt": b"ONE = 1\n",
        "humming_kernels-0.9.dist-info/METADATA": before["humming_kernels-0.9.dist-info/METADATA"],
    }


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (_fault("THREE = 1"), r"stands 0 times in humming/__init__.py of humming-kernels 0.9, not once"),
        (_fault(" = 1"), r"stands 2 times"),
        (_fault("ONE = 1", "gone.cuh"), r"humming-kernels 0.9 has no humming/gone.cuh"),
    ],
)
def test_release_without_the_line_is_named(fault: Fault, message: str, tiny: Path, tmp_path: Path):
    """Where the text isn't there exactly once, the error says so and nothing is copied."""
    with pytest.raises(NotApplicableError, match=message):
        seed(fault, tiny, tmp_path / "target", HUMMING, "0.9")
    assert not (tmp_path / "target").exists()


def test_first_cases_are_spread():
    """Cases of few kernels show all regimes that the tier has for them, from the smallest tier among others."""
    fault = _fault("")
    chosen = [case for group in first_groups(fault, GATE, SMOKE) for case in group]
    assert {case.problem.kind for case in chosen} == {case.problem.kind for case in GATE}
    assert len({case.regime for case in chosen}) >= 5
    assert any(case.id in SMOKE for case in chosen)
    assert len({kernel_key(case) for case in chosen}) <= MOST_KERNELS
