# SPDX-License-Identifier: Apache-2.0
"""The questions that suites ask: one file each, found here by listing this package."""

from __future__ import annotations

import importlib
import pkgutil

from humming_conformance.campaign.questions.question import BASELINES, Question, Setting


def _find_questions() -> dict[str, type[Question]]:
    found: dict[str, type[Question]] = {}
    for module in pkgutil.iter_modules(__path__):
        contents = vars(importlib.import_module(f"{__name__}.{module.name}"))
        for item in contents.values():
            if isinstance(item, type) and issubclass(item, Question) and "suite" in vars(item):
                found[item.suite] = item
    return found


#: Every question by the name of its suite.
QUESTIONS = _find_questions()

__all__ = ["BASELINES", "QUESTIONS", "Question", "Setting"]
