# SPDX-License-Identifier: Apache-2.0
"""Data regimes: one file each, found here by listing this package."""

from __future__ import annotations

import importlib
import pkgutil

from humming_conformance.problems.case import Case
from humming_conformance.problems.operands import Operands
from humming_conformance.problems.regimes.regime import Regime
from humming_conformance.problems.words import Arrays, Draw, NumpyArrays


def _find_regimes() -> dict[str, type[Regime]]:
    found: dict[str, type[Regime]] = {}
    for module in pkgutil.iter_modules(__path__):
        contents = vars(importlib.import_module(f"{__name__}.{module.name}"))
        for item in contents.values():
            if isinstance(item, type) and issubclass(item, Regime) and "name" in vars(item):
                found[item.name] = item
    return found


#: Every regime by its word in case ids.
REGIMES = _find_regimes()


def build_operands(case: Case, arrays: Arrays | None = None) -> Operands:
    """The operands of a case, bit-identical wherever they are built.

    Args:
        case: a valid case.
        arrays: the array back end; NumPy when left out.
    """
    arrays = arrays or NumpyArrays()
    return REGIMES[case.regime](case, Draw(case.id, arrays)).build()


__all__ = ["REGIMES", "Regime", "build_operands"]
