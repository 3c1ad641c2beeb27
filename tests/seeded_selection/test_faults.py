# SPDX-License-Identifier: Apache-2.0
"""The seeded faults of selection: data that a release must fit, and one of them end to end."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from humming_conformance.devices import recorded_profiles
from humming_conformance.kernels.humming_lib import kernel
from tests.seeded_faults.seeding import check_applicable
from tests.seeded_selection.__main__ import main
from tests.seeded_selection.faults import FAULTS


def test_faults_are_one_line_and_their_own():
    """Names are unique, devices are recorded, and each fault changes one line."""
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    for fault in FAULTS:
        assert set(fault.devices) <= set(recorded_profiles())
        before, after = fault.text.splitlines(), fault.replacement.splitlines()
        assert sum(one != other for one, other in zip(before, after, strict=True)) == 1


def _installed() -> Path:
    spec = importlib.util.find_spec("humming")
    if spec is None or spec.origin is None:
        pytest.skip("humming-kernels isn't installed: pip install humming-conformance[humming]")
    return Path(spec.origin).parents[1]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_fault_has_its_place(fault):
    """The text stands once in the installed release's file."""
    assert check_applicable(fault, _installed(), kernel.library, "installed")


def test_a_fault_is_reported(capsys):
    """Seeded and judged by the smoke tier: the command says which rule reports it, and is content."""
    folder = _installed()
    assert main(["--library", f"humming={folder}", "--tier", "smoke", "--fault", "h20_is_anything_with_an_h"]) == 0
    assert "| `h20_is_anything_with_an_h` |" in capsys.readouterr().out


def test_a_release_that_lacks_the_place_is_named(tmp_path, capsys):
    """A folder with another library is no case for a fault; the text names the fault and the file."""
    (tmp_path / "humming").mkdir()
    (tmp_path / "humming" / "__init__.py").write_text("")
    assert main(["--library", f"humming={tmp_path}", "--tier", "smoke", "--fault", "three_stages"]) == 2
    assert "humming" in capsys.readouterr().err
