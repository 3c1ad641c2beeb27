# SPDX-License-Identifier: Apache-2.0
"""What a model kernel is: operands as it reads them, arithmetic as it does it, and its contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from humming_conformance.oracle.contract import Contract
from humming_conformance.problems import REGIMES, Case, Operands, parse_case
from humming_conformance.problems.ids import CaseIdError
from tests.wrong_kernels import model

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Launched:
    """What a fault that acts on finished sums may use.

    Attributes:
        case, operands: as given to the kernel, before it misreads anything.
        call: how many times the kernel ran before.
        first_half: sums (L, rows, N) over the first half of K alone.
    """

    case: Case
    operands: Operands
    call: int
    first_half: Callable[[], Array]


def _read_rightly(case: Case, operands: Operands) -> Operands:  # noqa: ARG001
    return operands


def _finish_rightly(sums: Array, launched: Launched) -> Array:  # noqa: ARG001
    return sums


def _regime_word(case_id: str, regime: str) -> Case | None:
    try:
        return parse_case(f"{case_id}-{regime}")
    except CaseIdError:
        return None


@dataclass(frozen=True)
class ModelKernel:
    """A kernel made of :mod:`tests.wrong_kernels.model` and at most one fault.

    Attributes:
        name: as in subjects.
        what: what it does, in words for a table.
        base: the case it is tried on, without a regime.
        declared: its contract.
        executed: the arithmetic it performs, of the number of tokens; None for what it declares.
        read: the operands as it (mis)reads them.
        spoil: what it makes of the sums before bias and rounding.
        truncate: whether it truncates instead of rounding its output.
        fault_class: design's word for the fault, empty for correct kernels.
        violates: the contract field that it violates alone, or empty.
        shown_by: what can show the fault: the regimes, a repeated call, fewer tokens, guarded memory.
    """

    name: str
    what: str
    base: str
    declared: Contract
    executed: Callable[[int], Contract] | None = None
    read: Callable[[Case, Operands], Operands] = _read_rightly
    spoil: Callable[[Array, Launched], Array] = _finish_rightly
    truncate: bool = False
    fault_class: str = ""
    violates: str = ""
    shown_by: Literal["regimes", "repeat", "fewer", "guard"] = "regimes"

    def cases(self) -> dict[str, Case]:
        """The cases it is tried on, by regime."""
        found = {regime: _regime_word(self.base, regime) for regime in REGIMES}
        return {regime: case for regime, case in found.items() if case is not None}

    def output(self, case: Case, operands: Operands, call: int = 0) -> NDArray:
        """Output codes (L, rows, N) of its ``call``-th call."""
        contract = self.executed(case.problem.m) if self.executed else self.declared
        read = self.read(case, operands)

        def first_half() -> Array:
            codes = read.activation.copy()
            codes[..., case.problem.k // 2 :] = 0
            return model.accumulate(case, replace(read, activation=codes), contract)

        sums = model.accumulate(case, read, contract)
        spoiled = self.spoil(sums, Launched(case, operands, call, first_half))
        return model.finish(case, read, contract, spoiled, truncate=self.truncate)


def first_tokens_alone(kernel: ModelKernel, case: Case, operands: Operands, tokens: int) -> NDArray:
    """Codes (1, tokens, N) of the first tokens of a dense problem as a problem of their own."""
    scale = operands.activation_scale
    granularity = case.activation.granularity
    by_token = granularity is not None and granularity.kind != "tensor"
    small = replace(
        operands,
        activation=operands.activation[:1, :tokens],
        activation_scale=scale[:, :tokens] if scale is not None and by_token else scale,
    )
    return kernel.output(replace(case, problem=replace(case.problem, m=tokens)), small)


class Adapter:
    """A model kernel as the judge takes kernels: see :class:`humming_conformance.protocols.Kernel`.

    Its output has one row more than the case, which belongs to nobody; kernels whose fault the guard shows
    write it.
    """

    device_kinds = ("cpu",)
    library = None

    def __init__(self, kernel: ModelKernel) -> None:
        self.kernel = kernel
        self.name = kernel.name

    @cached_property
    def claims(self) -> tuple[Any, ...]:
        from humming_conformance.protocols import Claim

        case = next(iter(self.kernel.cases().values()))
        granularity = case.activation.granularity
        return (
            Claim(
                kinds=(case.problem.kind,),
                weights=(case.weight.element,),
                granularities=(str(case.weight.granularity),),
                scale_formats=(case.weight.scale_format,),
                activations=(case.activation.element,),
                activation_granularities=("none" if granularity is None else str(granularity),),
                outputs=(case.output,),
                zero_points=(case.weight.zero_point,),
                second_scales=(case.weight.second_scale,),
                bias=(case.problem.bias,),
            ),
        )

    def support(self, case: Case, device: Any) -> Any:
        from humming_conformance.support import support_from_claims

        return support_from_claims(self.claims, case, device, self.device_kinds)

    def prepare(self, case: Case, operands: Operands, device: Any) -> dict[str, Any]:
        return {"case": case, "operands": operands, "calls": 0}

    def run(self, state: dict[str, Any], launch: int, buffer: Any) -> Any:
        import torch

        from humming_conformance.protocols import Output

        case, operands = state["case"], state["operands"]
        one = replace(
            operands,
            activation=operands.activation[launch : launch + 1],
            activation_scale=None
            if operands.activation_scale is None
            else operands.activation_scale[launch : launch + 1],
            expert=None if operands.expert is None else operands.expert[launch : launch + 1],
        )
        codes = self.kernel.output(case, one, call=state["calls"])[0]
        state["calls"] += 1
        tensor = buffer.allocate(len(codes) + 1, case.problem.n, case.output)
        tensor[: len(codes)] = torch.from_numpy(codes.view(np.int16)).view(tensor.dtype)
        if self.kernel.shown_by == "guard":
            tensor[len(codes)] = 0
        return Output(tensor, np.arange(len(codes)))

    def route(self, state: dict[str, Any]) -> Any:
        from humming_conformance.protocols import Route

        return Route("numpy_model")

    def contract(self, case: Case, route: Any) -> Contract:
        return self.kernel.declared
