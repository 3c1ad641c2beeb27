# SPDX-License-Identifier: Apache-2.0
"""How much of their bounds kernels use: the margins of a ledger as a Markdown table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from humming_conformance.ledger import LedgerError
from humming_conformance.problems import Case, parse_case
from humming_conformance.protocols import Verdict

_HEAD = ("kernel", "path", "weights", "activations")
_TAIL = (
    *("contract", "exact cases", "bounded cases"),
    *("median margin", "largest", "median before rounding", "largest before rounding"),
)


@dataclass
class _Group:
    """The verdicts of one row: contracts as words, margins as (margin, margin before rounding)."""

    contracts: list[list[str]] = field(default_factory=list)
    margins: list[tuple[float, float]] = field(default_factory=list)

    def cells(self) -> list[str]:
        """The row's cells behind those that name it."""
        # Those of one path differ in how often they split K.
        shared = [word for word in self.contracts[0] if all(word in words for words in self.contracts)]
        cells = [" ".join(shared), str(len(self.contracts) - len(self.margins)), str(len(self.margins))]
        if not self.margins:
            return [*cells, "", "", "", ""]
        return cells + [f"{of(column):.3g}" for column in zip(*self.margins, strict=True) for of in (median, max)]


def margin_lines(verdicts: Sequence[Verdict], *, by_regime: bool = False) -> list[str]:
    """A Markdown table of the numerics verdicts that passed; empty where none did.

    A row is a kernel, the path of its route, and the kinds of weights and activations, with ``by_regime`` also the
    regime. Its contract is what all contracts of the row say; ``output`` stands there for the output format. A margin
    is a case's largest error over its bound; before rounding, without the output's
    rounding in either. Cases judged by equality have none and are counted apart.

    Raises:
        LedgerError: evidence that no judge of numerics writes; names the subject.
        CaseIdError: a subject's case is none.
    """
    head = (*_HEAD, "regime", *_TAIL) if by_regime else (*_HEAD, *_TAIL)
    groups: dict[tuple[str, ...], _Group] = {}
    for verdict in {verdict.subject: verdict for verdict in verdicts if verdict.suite == "numerics"}.values():
        evidence = verdict.evidence
        if verdict.outcome != "pass" or "margin" not in evidence:
            continue
        case = parse_case(verdict.subject.case_id)
        try:
            path, contract, exact = str(evidence["route"]["path"]), str(evidence["contract"]), evidence["exact"]
            margins = float(evidence["margin"]), float(evidence["margin_before_rounding"])
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(verdict, error) from error
        key = (verdict.subject.heading, path, _weights(case), _activations(case))
        group = groups.setdefault((*key, case.regime) if by_regime else key, _Group())
        group.contracts.append(_arithmetic(contract, case.output))
        if not exact:
            group.margins.append(margins)
    if not groups:
        return []
    rows = [[*key, *group.cells()] for key, group in sorted(groups.items())]
    return [_line(head), "|" + "---|" * len(head), *map(_line, rows)]


def damaged(verdict: Verdict, error: Exception) -> LedgerError:
    """What to raise where a verdict's evidence lacks a number, or holds something else in its place."""
    return LedgerError(
        f"{verdict.subject}: its evidence in the ledger is damaged ({type(error).__name__}: {error}); "
        "restore the ledger, or judge again in a new folder with --ledger"
    )


def _arithmetic(contract: str, output: str) -> list[str]:
    """The words of a contract's text but its output format, which is called `output` in the others."""
    return [re.sub(f"={output}$", "=output", word) for word in contract.split()[1:]]


def _weights(case: Case) -> str:
    """What decides how a weight is dequantized: the kind of its element, and its zero point."""
    kind = "integer" if case.weight.element.startswith(("int", "uint", "e0m")) else "float"
    return kind if case.weight.zero_point == "none" else f"{kind}, {case.weight.zero_point} zero point"


def _activations(case: Case) -> str:
    return "16-bit" if case.activation.granularity is None else case.activation.element


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
