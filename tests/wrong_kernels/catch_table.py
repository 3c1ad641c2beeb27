# SPDX-License-Identifier: Apache-2.0
"""Which check catches which model kernel.

``python -m tests.wrong_kernels.catch_table`` writes docs/catch_table.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from humming_conformance.formats import element_format
from humming_conformance.oracle.comparison import Comparison, compare, differing_bits, is_exact
from humming_conformance.oracle.contract import Contract
from humming_conformance.oracle.reference import reference
from humming_conformance.problems import REGIMES, Case, Operands, build_operands
from tests.wrong_kernels.correct import CORRECT_KERNELS, UNSEEN_KERNELS
from tests.wrong_kernels.faults import WRONG_KERNELS
from tests.wrong_kernels.flat_oracles import FLAT_ORACLES
from tests.wrong_kernels.kernels import ModelKernel, first_tokens_alone

PATH = Path(__file__).parents[2] / "docs" / "catch_table.md"
#: Regimes in the order of the table's columns.
COLUMNS = tuple(sorted(REGIMES))


@dataclass(frozen=True)
class Row:
    """What was found on one kernel.

    Attributes:
        comparisons: its output judged in each regime that its case allows.
        relations: the checks beside the regimes that caught it: repeat, fewer, guard.
        flat: whether each flat oracle rejects its output on ``random`` data.
        strict: whether ``random`` data judged by the strictest contract catch it.
    """

    kernel: ModelKernel
    comparisons: dict[str, Comparison]
    relations: tuple[str, ...]
    flat: dict[str, bool]
    strict: bool

    @property
    def regimes(self) -> dict[str, bool]:
        """Whether each regime caught it."""
        return {regime: not comparison.passed for regime, comparison in self.comparisons.items()}

    @property
    def caught(self) -> bool:
        """Whether any check of ours caught it."""
        return any(self.regimes.values()) or bool(self.relations)


@cache
def operands_of(case: Case) -> Operands:
    """Operands of a case, built once."""
    return build_operands(case)


def judged(kernel: ModelKernel, case: Case) -> Comparison:
    """A kernel's output on a case, judged by its own contract as the numerics suite does."""
    operands, regime = operands_of(case), REGIMES[case.regime]
    exact = is_exact(kernel.declared, regime.exact_bits)
    output = kernel.output(case, operands)
    return compare(case, operands, kernel.declared, output, exact=exact, floor=regime.has_floor)


def try_kernel(kernel: ModelKernel) -> Row:
    """Judge a kernel in every way that the table shows."""
    cases = kernel.cases()
    case = cases["random"]
    operands = operands_of(case)
    output = kernel.output(case, operands)
    got = element_format(case.output).decode(output)
    exact = reference(case, operands, Contract(case.output)).value
    strict = compare(case, operands, Contract(case.output), output, exact=False)
    return Row(
        kernel,
        {regime: judged(kernel, cases[regime]) for regime in cases},
        tuple(_relations(kernel, case)),
        {name: not accepts(got, exact) for name, accepts in FLAT_ORACLES.items()},
        not strict.passed,
    )


def _relations(kernel: ModelKernel, case: Case) -> Iterable[str]:
    operands = operands_of(case)
    first = kernel.output(case, operands)
    if kernel.declared.repeatable and len(differing_bits(first, kernel.output(case, operands, call=1))):
        yield "repeat"
    if kernel.declared.batch_invariant and case.problem.kind == "dense":
        sizes = {1, -(-case.problem.m // 2)}
        if any(len(differing_bits(first[:, :m], first_tokens_alone(kernel, case, operands, m))) for m in sizes):
            yield "fewer"
    if _writes_unowned_rows(kernel, case):
        yield "guard"


def _writes_unowned_rows(kernel: ModelKernel, case: Case) -> bool:
    """Run the kernel's adapter on guarded memory, as the execution of every case does."""
    import torch

    from humming_conformance.execution.guarded import GuardedOutput
    from tests.wrong_kernels.kernels import Adapter

    adapter = Adapter(kernel)
    buffer = GuardedOutput(torch.device("cpu"))
    output = adapter.run(adapter.prepare(case, operands_of(case), None), 0, buffer)
    _, trouble = buffer.codes(0, output, case.problem.rows)
    return bool(trouble)


def wrong_line(row: Row) -> str:
    """A wrong kernel's line of the first table."""
    kernel = row.kernel
    marks = [_mark(row.regimes.get(regime)) for regime in COLUMNS]
    return _line([kernel.name, kernel.what, kernel.fault_class, kernel.violates, *marks, " ".join(row.relations)])


def flat_line(row: Row) -> str:
    """A wrong kernel's line of the second table."""
    return _line([row.kernel.name, *(_mark(row.flat[name]) for name in FLAT_ORACLES)])


def correct_line(row: Row) -> str:
    """A correct kernel's line of the third table."""
    marks = [_mark(mark) for mark in (*row.flat.values(), row.strict, row.caught)]
    return _line([row.kernel.name, row.kernel.what, *marks])


def unseen_line(row: Row) -> str:
    """A line of the table of violations that no output shows."""
    caught_by = ", ".join(regime for regime in COLUMNS if row.regimes.get(regime)) or "nothing"
    return _line([row.kernel.name, row.kernel.what, row.kernel.violates, caught_by])


_HEAD = """\
# Which check catches which wrong kernel

Written by `python -m tests.wrong_kernels.catch_table`; a test keeps it up to date. The kernels are NumPy
models that really execute their arithmetic (tests/wrong_kernels). Each has one fault, is tried on one
scheme and shape, and is judged by the contract that it declares.

`x`: caught. `.`: not caught. Empty: the regime doesn't apply to its case. *Field*: the contract field that
it alone violates. *Beside*: caught by running it twice (`repeat`), by the first token or the first half of
the tokens alone (`fewer`), or by guarded memory (`guard`).
"""

_FLAT_HEAD = """\
## The same kernels, judged by flat oracles on `random` data

Each flat oracle compares the output with the exact result. *97 % within .1 + .85* is the check of
FlashInfer's MoE tests, *mean ratio* that of vLLM's Marlin tests, *max .02* an error of at most 2 % of the
largest result.
"""

_CORRECT_HEAD = """\
## Correct kernels, most with looser contracts

All pass every regime by the contract that they declare. `x`: rejected, by a flat oracle or by our bound for
the strictest contract, on `random` data.
"""

_UNSEEN_HEAD = """\
## What no output shows

Two contract fields only say how finely the bound may count. A kernel that violates one of them alone stays
within any worst-case bound.
"""


def render(wrong: Sequence[Row], correct: Sequence[Row], unseen: Sequence[Row]) -> str:
    """The whole document."""
    caught = sum(row.caught for row in wrong)
    by_regime = [str(sum(row.regimes.get(regime, False) for row in wrong)) for regime in COLUMNS]
    by_flat = [str(sum(row.flat[name] for row in wrong)) for name in FLAT_ORACLES]
    beside = str(sum(bool(row.relations) for row in wrong))
    rejected = [str(sum(row.flat[name] for row in correct)) for name in FLAT_ORACLES]
    rejected += [str(sum(row.strict for row in correct)), str(sum(row.caught for row in correct))]
    lines = [
        _HEAD,
        f"## {caught} of {len(wrong)} wrong kernels are caught, by data regime",
        "",
        *_head("kernel", "what it does", "fault class", "field", *COLUMNS, "beside"),
        *map(wrong_line, wrong),
        _line(["**caught**", "", "", "", *by_regime, beside]),
        "",
        _FLAT_HEAD,
        *_head("kernel", *FLAT_ORACLES),
        *map(flat_line, wrong),
        _line([f"**caught of {len(wrong)}**", *by_flat]),
        "",
        _CORRECT_HEAD,
        *_head("kernel", "what it does", *FLAT_ORACLES, "strictest contract", "declared contract"),
        *map(correct_line, correct),
        _line([f"**rejected of {len(correct)}**", "", *rejected]),
        "",
        _UNSEEN_HEAD,
        *_head("kernel", "what it does", "field", "caught by"),
        *map(unseen_line, unseen),
        "",
    ]
    return "\n".join(lines)


def _mark(caught: bool | None) -> str:  # noqa: FBT001
    if caught is None:
        return ""
    return "x" if caught else "."


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _head(*cells: str) -> list[str]:
    return [_line(cells), _line(["---"] * len(cells))]


def main() -> None:
    """Write the document."""
    kernels = (WRONG_KERNELS, CORRECT_KERNELS, UNSEEN_KERNELS)
    text = render(*([try_kernel(kernel) for kernel in group] for group in kernels))
    draft = PATH.with_suffix(".new")
    draft.write_text(text, encoding="utf-8")
    draft.replace(PATH)


if __name__ == "__main__":
    main()
