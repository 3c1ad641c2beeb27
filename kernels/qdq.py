# SPDX-License-Identifier: Apache-2.0
"""QDQ, the fallback for everything: dequantize to 16 bits with torch, then a plain 16-bit GEMM.

Every launch dequantizes again, as a library without a fused kernel would. Weights and quantized activations
are dequantized in fp32 and rounded to the output format; in fp64 with a second scale or a float zero point,
which could leave fp32's range or precision on the way. The GEMM is that of :mod:`.torch_gemm`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from humming_conformance.devices import Device
from humming_conformance.formats import SCALE_FORMATS, Granularity, element_format
from humming_conformance.kernels.torch_gemm import (
    CALLS,
    SIGNED_WEIGHTS,
    UNSIGNED_WEIGHTS,
    WEIGHT_GRANULARITIES,
    gemm,
    gemm_contract,
    gemm_route,
    to_device,
    use_fp32_reduction,
)
from humming_conformance.oracle.contract import Contract
from humming_conformance.problems import Case, Operands
from humming_conformance.problems.case import PROBLEM_KINDS
from humming_conformance.protocols import Claim, Library, Output, OutputBuffer, Route, Support
from humming_conformance.support import NEUTRAL_OPERANDS, support_from_claims

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class _Quantized:
    """Matrices (batch, rows, columns): codes, and in the dtype of dequantization their table and scales."""

    codes: torch.Tensor
    table: torch.Tensor
    granularity: Granularity
    scale: torch.Tensor
    zero_point: torch.Tensor | None = None
    second_scale: torch.Tensor | None = None

    def dequantize(self, index: int, dtype: torch.dtype) -> torch.Tensor:
        """Matrix `index`, rounded to `dtype`: ``(element - zero_point) * scale * second_scale``."""
        rows, columns = self.codes.shape[1:]
        block_rows, block_columns = self.granularity.block_shape(rows, columns)

        def along_columns(grid: torch.Tensor) -> torch.Tensor:
            return grid.repeat_interleave(block_columns, dim=1)[:, :columns]

        values = self.table[self.codes[index].int()]
        if self.zero_point is not None:
            values = values - along_columns(self.zero_point[index])
        values = values * along_columns(self.scale[index]).repeat_interleave(block_rows, dim=0)[:rows]
        if self.second_scale is not None:
            values = values * self.second_scale[index]
        return values.to(dtype)


@dataclass(frozen=True)
class _Share:
    """Rows of one expert in one launch: their tokens and their places in the output, as indices or slices."""

    expert: int
    token: slice | torch.Tensor
    place: slice | torch.Tensor


@dataclass(frozen=True)
class _Launch:
    """Shares of a launch, rows of its output tensor, and the place of each logical row (None: its number)."""

    shares: list[_Share]
    rows: int
    row_of: NDArray[np.int64] | None


@dataclass(frozen=True)
class _State:
    case: Case
    device: Device
    weight: _Quantized
    activation: torch.Tensor | _Quantized  # (L, M, K)
    bias: torch.Tensor | None
    launches: list[_Launch]


def _claims() -> tuple[Claim, ...]:
    sixteen_bit: dict[str, Any] = {"activations": ("bf16", "fp16")}
    quantized: dict[str, Any] = {
        "activations": ("int4", "int8", "fp4_e2m1", "fp6_e2m3", "fp6_e3m2", "fp8_e4m3", "fp8_e5m2"),
        "activation_granularities": ("tensor", "token", "g*"),
    }
    return tuple(
        Claim(
            kinds=PROBLEM_KINDS,
            weights=weights,
            granularities=WEIGHT_GRANULARITIES,
            scale_formats=SCALE_FORMATS,
            zero_points=zero_points,
            second_scales=("none", "tensor", "channel"),
            calls=CALLS,
            rules=(NEUTRAL_OPERANDS,),
            **activations,
        )
        for weights, zero_points in ((SIGNED_WEIGHTS, ("none",)), (UNSIGNED_WEIGHTS, ("integer", "float")))
        for activations in (sixteen_bit, quantized)
    )


class Qdq:
    """The adapter; its methods are described in :class:`humming_conformance.protocols.Kernel`."""

    name = "qdq"
    device_kinds: tuple[str, ...] = ("cuda", "cpu")
    claims: tuple[Claim, ...] = _claims()
    library: Library | None = None

    def support(self, case: Case, device: Device) -> Support:
        return support_from_claims(self.claims, case, device, self.device_kinds, minimum_sm=80)

    def prepare(self, case: Case, operands: Operands, device: Device) -> _State:
        use_fp32_reduction()
        bias = None if operands.bias is None else to_device(operands.bias, case.output, device)
        return _State(
            case=case,
            device=device,
            weight=_weight(case, operands, device),
            activation=_activation(case, operands, device),
            bias=bias,
            launches=[_plan(case, operands, launch, device) for launch in range(operands.launches)],
        )

    def run(self, state: _State, launch: int, buffer: OutputBuffer) -> Output:
        import torch

        case, plan = state.case, state.launches[launch]
        dtype = torch.bfloat16 if case.output == "bf16" else torch.float16
        out = buffer.allocate(plan.rows, case.problem.n, case.output)
        if isinstance(state.activation, _Quantized):
            activation = state.activation.dequantize(launch, dtype)
        else:
            activation = state.activation[launch]
        for share in plan.shares:
            weight = state.weight.dequantize(share.expert, dtype)
            bias = None if state.bias is None else state.bias[share.expert]
            rows = activation[share.token]
            if isinstance(share.place, slice):
                gemm(rows, weight, bias, out[share.place])
            else:
                scattered = torch.empty(len(rows), case.problem.n, dtype=dtype, device=out.device)
                gemm(rows, weight, bias, scattered)
                out[share.place] = scattered
        return Output(out, plan.row_of)

    def route(self, state: _State) -> Route:
        return gemm_route(state.case, state.device)

    def contract(self, case: Case, route: Route) -> Contract:
        rounded = {"weight_input": "kernels/qdq.py: dequantized weights are rounded to 16 bits before the GEMM"}
        if case.activation.granularity is not None:
            rounded["activation_input"] = "kernels/qdq.py: so are dequantized activations"
        return gemm_contract(case, route, **rounded)


def _weight(case: Case, operands: Operands, device: Device) -> _Quantized:
    scheme = case.weight
    needs_fp64 = scheme.zero_point == "float" or scheme.second_scale != "none"
    dtype = np.float64 if needs_fp64 else np.float32

    def decoded(codes: NDArray[Any], name: str) -> torch.Tensor:
        return _decoded(codes, name, dtype, device)

    zero_point = second = None
    if operands.zero_point is not None:
        zero_point = decoded(operands.zero_point, "uint8" if scheme.zero_point == "integer" else case.output)
    if operands.weight_scale_2 is not None:
        second = decoded(operands.weight_scale_2, "fp32" if scheme.second_scale == "tensor" else case.output)[..., None]
    return _Quantized(
        codes=to_device(operands.weight, scheme.element, device),
        table=decoded(np.arange(1 << scheme.format.bits), scheme.element),
        granularity=scheme.granularity,
        scale=decoded(operands.weight_scale, scheme.scale_format),
        zero_point=zero_point,
        second_scale=second,
    )


def _activation(case: Case, operands: Operands, device: Device) -> torch.Tensor | _Quantized:
    scheme = case.activation
    codes = to_device(operands.activation, scheme.element, device)
    if scheme.granularity is None or operands.activation_scale is None:
        return codes
    table = _decoded(np.arange(1 << scheme.format.bits), scheme.element, np.float32, device)
    scale = _decoded(operands.activation_scale, scheme.scale_format, np.float32, device)
    return _Quantized(codes, table, scheme.granularity, scale)


def _decoded(codes: NDArray[Any], name: str, dtype: type[np.floating[Any]], device: Device) -> torch.Tensor:
    return to_device(element_format(name).decode(codes).astype(dtype), "", device)


def _plan(case: Case, operands: Operands, launch: int, device: Device) -> _Launch:
    """Where each expert's rows go.

    In token order (indexed), one expert after the other (contiguous), or every expert from the start of its
    own slot, which is as long as the largest share (masked).
    """
    problem = case.problem
    if operands.expert is None:
        return _Launch([_Share(0, slice(None), slice(None))], problem.m, None)
    expert = operands.expert[launch].reshape(-1)
    counts = np.bincount(expert, minlength=problem.experts)
    starts, rows = np.cumsum(counts) - counts, problem.rows
    if problem.kind == "moe_grouped_masked":
        starts, rows = np.arange(problem.experts) * counts.max(), problem.experts * int(counts.max())
    shares = []
    row_of = np.zeros(problem.rows, dtype=np.int64)
    for number in np.flatnonzero(counts):
        mine = np.flatnonzero(expert == number)
        token = to_device(mine // problem.top_k, "", device)
        start = int(starts[number])
        place = slice(start, start + len(mine))
        row_of[mine] = np.arange(place.start, place.stop)
        indexed = problem.kind == "moe_indexed"
        shares.append(_Share(int(number), token, to_device(mine, "", device) if indexed else place))
    return _Launch(shares, rows, None if problem.kind == "moe_indexed" else row_of)


kernel = Qdq()
