# SPDX-License-Identifier: Apache-2.0
"""The page on contracts names what the code has."""

import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import get_args

from humming_conformance.kernels.humming_lib.contracts import ScalePath
from humming_conformance.oracle.contract import Contract
from humming_conformance.oracle.quality import FLOOR_FACTOR

PAGE = (Path(__file__).parents[2] / "docs" / "contracts.md").read_text()


def _rows() -> dict[str, list[str]]:
    """Cells of every table row by its first cell, a name in backticks."""
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", PAGE, re.MULTILINE)
    return {name: [cell.strip() for cell in rest.split("|")] for name, rest in rows}


def test_every_field_is_described():
    """Each field has a row with its default and whether a weaker value needs a source."""
    for field in fields(Contract):
        default, meaning, source = _rows()[field.name]
        assert default == ("" if field.default is MISSING else f"`{field.default!r}`"), field.name
        assert meaning
        if field.name in Contract.NEEDS_SOURCE:
            assert source == "yes", field.name
        else:
            special = dict.fromkeys(("scale_application", "second_scale_application"), "for `output`") | {"sources": ""}
            assert source == special.get(field.name, "no"), field.name


def test_every_path_of_humming_is_described():
    """Each path that the adapter can report has a row."""
    assert set(get_args(ScalePath)) <= _rows().keys()


def test_the_floor_is_the_codes():
    """The page says "twice", and so does the code."""
    assert "at most twice that of QDQ" in PAGE
    assert FLOOR_FACTOR == 2
