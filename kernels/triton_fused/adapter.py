# SPDX-License-Identifier: Apache-2.0
"""Adapter of the Triton kernels in :mod:`.dense` and :mod:`.moe`: claims, operands, schedule, route and contract.

With 16-bit activations they serve all weights that Humming's adapter claims, on every GPU from sm_80 on and for sizes
that Humming refuses (N that is no multiple of 8, K of no multiple of 32, cut groups and blocks).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from humming_conformance.devices import Device
from humming_conformance.formats import element_format
from humming_conformance.kernels import _moe_layout as moe_layout
from humming_conformance.kernels.torch_gemm import to_device
from humming_conformance.oracle import tensor_core
from humming_conformance.oracle.contract import Contract
from humming_conformance.problems import Case, Operands, Problem
from humming_conformance.problems.case import PROBLEM_KINDS
from humming_conformance.protocols import Claim, Library, Output, OutputBuffer, Route, Support
from humming_conformance.support import NEUTRAL_OPERANDS, CannotJudge, support_from_claims

if TYPE_CHECKING:
    import torch

#: K covered by one step of the kernel's loop, whatever the problem.
K_TILE = 128

_ROUNDING_SOURCE = "kernels/triton_fused/dense.py, step 2: dequantized in fp32, rounded once to the activation's format"

#: Elements that are stored as wider ones: 3-bit codes don't fill bytes, and as 4-bit ones they need no code of their
#: own in the kernel and half the bytes of one code a byte.
_STORED_AS = {"int3": "int4"}

_SIXTEEN_BIT = ("bf16", "fp16")
#: Groups of any size; 96 is named because it is no power of two.
_GROUPS = ("g*", "g96")
_EVERY_SECOND_SCALE = ("none", "tensor", "channel")


def _claim(
    weights: tuple[str, ...],
    granularities: tuple[str, ...],
    scale_formats: tuple[str, ...] = _SIXTEEN_BIT,
    *,
    zero_points: tuple[str, ...] = ("none",),
    second_scales: tuple[str, ...] = ("none",),
) -> Claim:
    return Claim(
        kinds=PROBLEM_KINDS,
        weights=weights,
        granularities=granularities,
        scale_formats=scale_formats,
        activations=_SIXTEEN_BIT,
        zero_points=zero_points,
        second_scales=second_scales,
        # No memory is kept between launches, and every row is summed in the same order whatever the batch.
        calls=("batch_invariant", "graph", "streams"),
        rules=(NEUTRAL_OPERANDS,),
    )


class Schedule(NamedTuple):
    """Tile (BLOCK_M, BLOCK_N), warps and pipeline stages of a launch."""

    block_m: int
    block_n: int
    warps: int
    stages: int


def choose_schedule(m: int, *, interpreted: bool, moe: bool = False) -> Schedule:
    """The schedule for `m` tokens, or with experts for `m` rows of each on average.

    On a GPU the tile is as narrow as the batch, and wide batches get tiles of 128 rows of weights. In the interpreter,
    where each program costs the same whatever its tile, tiles are large, but for experts only large enough that some
    have several blocks. They are the same for every M because BLAS may add in another order for another shape, and
    bits mustn't depend on the batch.
    """
    if interpreted:
        return Schedule(16 if moe else 64, 128, 4, 1)
    if moe and m > 32:
        return Schedule(64, 64, 8, 3)  # every gathered row has an address of its own: larger shares of a tile spill
    if m > 64:
        return Schedule(64, 128, 8, 3)
    return Schedule(max(16, 1 << (m - 1).bit_length()), 64, 4, 4)


@dataclass(frozen=True)
class _Launch:
    """What is one launch's own: activations, the output's rows, and with experts the lists of :mod:`.moe`."""

    activation: torch.Tensor
    rows: int
    row_of: NDArray[np.int64] | None = None
    row_ids: torch.Tensor | None = None
    expert_ids: torch.Tensor | None = None
    blocks: int = 0
    top_k: int = 1


@dataclass(frozen=True)
class _State:
    """Tensors on the device, in the layouts of :mod:`.dense` for each expert (a dense problem has one)."""

    case: Case
    launches: list[_Launch]
    weight: torch.Tensor
    scale: torch.Tensor
    zero_point: torch.Tensor | None
    second_scale: torch.Tensor | None
    bias: torch.Tensor | None
    scale_rows: int
    group_size: int
    schedule: Schedule
    sm: int
    mma_class: str = ""


class TritonFused:
    """The adapter; its methods are described in :class:`humming_conformance.protocols.Kernel`."""

    name = "triton_fused"
    device_kinds: tuple[str, ...] = ("cuda", "cpu_interpreter")
    claims: tuple[Claim, ...] = (
        _claim(("int3", "int4", "int8", "fp8_e4m3"), ("channel", *_GROUPS), second_scales=_EVERY_SECOND_SCALE),
        _claim(("uint4", "uint8"), ("channel", *_GROUPS), zero_points=("integer", "float")),
        _claim(("int8", "fp8_e4m3"), ("tensor", "b*"), ("fp32",)),
        _claim(("fp4_e2m1", "fp8_e4m3"), ("g32",), ("ue8m0",)),
        _claim(("fp4_e2m1",), ("g16",), ("fp8_e4m3",), second_scales=_EVERY_SECOND_SCALE),
    )
    # Products and sums are rounded as they are written: no multiply and add is fused into one rounding.
    library: Library | None = Library(
        "triton", "triton", {"TRITON_DEFAULT_FP_FUSION": "0"}, cache_variables=("TRITON_CACHE_DIR",)
    )

    def support(self, case: Case, device: Device) -> Support:
        return support_from_claims(self.claims, case, device, self.device_kinds, minimum_sm=80)

    def prepare(self, case: Case, operands: Operands, device: Device) -> _State:
        from humming_conformance.kernels.triton_fused import interpreter

        interpreted = device.kind == "cpu_interpreter"
        if interpreted and interpreter.problem():
            mend = f"use triton {' or '.join(interpreter.TRIED_VERSIONS)} in a process with TRITON_INTERPRET=1"
            raise CannotJudge(interpreter.problem(), mend)
        problem, scheme, bias = case.problem, case.weight, operands.bias
        moe = problem.kind != "dense"
        mean_rows = -(-problem.rows // problem.experts) if moe else problem.m
        schedule = choose_schedule(mean_rows, interpreted=interpreted, moe=moe)
        whole_k = -(-problem.k // K_TILE) * K_TILE
        scale_rows, _ = scheme.granularity.block_shape(problem.n, problem.k)
        state = _State(
            case=case,
            launches=_launches(case, operands, device, schedule.block_m),
            weight=to_device(_packed(operands.weight, scheme.element), "", device),
            scale=_scales_to_device(operands.weight_scale.swapaxes(1, 2), scheme.scale_format, device),
            zero_point=_zero_point(case, operands, device),
            second_scale=_second_scale(case, operands, device),
            bias=None if bias is None else to_device(bias, case.output, device),
            scale_rows=scale_rows,
            group_size=scheme.granularity.group_size or whole_k,
            schedule=schedule,
            sm=0 if interpreted else device.sm,
        )
        if interpreted:
            return state
        # Compiling here keeps it out of the launches and tells the route what was compiled.
        launch = state.launches[0]
        compiled = _start(state, launch, launch.activation.new_empty(0), compile_only=True)
        return replace(state, mma_class=mma_class(compiled.asm["ptx"]))

    def run(self, state: _State, launch: int, buffer: OutputBuffer) -> Output:
        inputs = state.launches[launch]
        out = buffer.allocate(inputs.rows, state.case.problem.n, state.case.output)
        with np.errstate(all="ignore"):  # in the interpreter, overflow and NaN are as silent as on a GPU
            _start(state, inputs, out)
        return Output(out, inputs.row_of)

    def route(self, state: _State) -> Route:
        schedule = state.schedule
        path = "dense" if state.case.problem.kind == "dense" else "moe"
        return Route(
            path=path if state.sm else f"{path}_interpreted",
            mma_class=state.mma_class,
            tile=(schedule.block_m, schedule.block_n, K_TILE),
            stages=schedule.stages,
            activation_format=state.case.activation.element,
            details={"sm": state.sm, "warps": schedule.warps},
        )

    def contract(self, case: Case, route: Route) -> Contract:
        fields: dict[str, Any] = {"weight_input": case.output}
        sources = {"weight_input": _ROUNDING_SOURCE}
        if case.weight.second_scale != "none":
            # As exact as weights can be: e2m1 * e4m3 needs 6 significant bits, which both activation formats have.
            fields["second_scale_application"] = "accumulator"
        if route.path.endswith("_interpreted"):
            # BLAS adds the products of a K tile in fp32, in some order; the accumulator gets their sum.
            fields["promotion_interval"] = K_TILE
        else:
            step = tensor_core.tensor_core_step(route.details["sm"])
            fields |= {"step_length": step.step_length, "fraction_bits": step.fraction_bits}
            sources |= {"step_length": tensor_core.SOURCE, "fraction_bits": tensor_core.SOURCE}
        return Contract(case.output, sources=sources, **fields)


def _packed(codes: NDArray[Any], element: str) -> NDArray[Any]:
    """Codes (E, N, K) as the kernels read them: 4-bit ones two to a byte, the even one low, an odd K padded."""
    if element == "int3":
        codes = codes | (codes & 4) << 1  # extends the sign
    elif element_format(element).bits == 8:
        return codes
    even = np.pad(codes, ((0, 0), (0, 0), (0, codes.shape[2] % 2)))
    return np.asarray(even[..., 0::2] | even[..., 1::2] << 4)


def _scales_to_device(codes: NDArray[Any], scale_format: str, device: Device) -> torch.Tensor:
    """Scales of 16 and 32 bits as floats, 8-bit ones as their codes."""
    return to_device(codes.view(np.float32) if scale_format == "fp32" else codes, scale_format, device)


def _zero_point(case: Case, operands: Operands, device: Device) -> torch.Tensor | None:
    if operands.zero_point is None:
        return None
    stored = case.output if case.weight.zero_point == "float" else "uint8"
    return to_device(operands.zero_point.swapaxes(1, 2), stored, device)


def _second_scale(case: Case, operands: Operands, device: Device) -> torch.Tensor | None:
    """Second-level scales (E, N): an expert's single one is repeated."""
    if operands.weight_scale_2 is None:
        return None
    codes = np.broadcast_to(operands.weight_scale_2, (len(operands.weight), case.problem.n))
    return _scales_to_device(codes, "fp32" if case.weight.second_scale == "tensor" else case.output, device)


def _launches(case: Case, operands: Operands, device: Device, block_m: int) -> list[_Launch]:
    activations = to_device(operands.activation, case.activation.element, device)  # (L, M, K)
    if operands.expert is None:
        return [_Launch(activation, case.problem.m) for activation in activations]
    return [
        _moe_launch(case.problem, activation, expert, block_m)
        for activation, expert in zip(activations, operands.expert, strict=True)
    ]


def _moe_launch(problem: Problem, activation: torch.Tensor, expert: NDArray[np.int32], block_m: int) -> _Launch:
    """Rows as the kind lays them out, those that belong to nobody full of NaN, and the list of the others."""
    import torch

    listed = moe_layout.indexed(expert, problem.experts, block_m)
    rows, row_of, row_ids = problem.rows, None, listed.sorted_ids
    if problem.kind != "moe_indexed":
        if problem.kind == "moe_grouped_contiguous":
            grouped = moe_layout.grouped_contiguous(expert, problem.experts)
        else:
            longest = int(moe_layout.expert_counts(expert, problem.experts).max())
            grouped = moe_layout.grouped_masked(expert, problem.experts, longest + moe_layout.SPARE_ROWS)
        rows, row_of = grouped.physical_rows, grouped.row_of
        row_ids = np.append(row_of, rows).astype(np.int32)[row_ids]  # the number of rows stays the filler
        token = torch.from_numpy(np.arange(problem.rows) // problem.top_k).to(activation.device)
        owned = torch.from_numpy(row_of).to(activation.device)
        by_token = activation
        activation = by_token.new_full((rows, problem.k), float("nan"))
        activation[owned] = by_token[token]
    return _Launch(
        activation=activation,
        rows=rows,
        row_of=row_of,
        row_ids=torch.from_numpy(row_ids).to(activation.device),
        expert_ids=torch.from_numpy(listed.expert_ids).to(activation.device),
        blocks=listed.num_tokens_padded // block_m,
        top_k=problem.top_k if problem.kind == "moe_indexed" else 1,
    )


def mma_class(ptx: str) -> str:
    """The tensor-core instruction in PTX: ``tcgen05.mma``, ``wgmma``, ``mma.sync``, or nothing."""
    found = re.search(r"\b(tcgen05\.mma|wgmma|mma\.sync)\b", ptx)
    return found[1] if found else ""


def _start(state: _State, launch: _Launch, out: torch.Tensor, *, compile_only: bool = False) -> Any:
    """Launch the problem's kernel, or only compile it; returns the compiled kernel on a GPU."""
    from humming_conformance.kernels.triton_fused.dense import dense_kernel
    from humming_conformance.kernels.triton_fused.moe import moe_kernel

    problem, scheme, schedule = state.case.problem, state.case.weight, state.schedule
    own: dict[str, Any]
    if problem.kind == "dense":
        kernel, blocks, own = dense_kernel, -(-problem.m // schedule.block_m), {"M": problem.m}
    else:
        kernel, blocks = moe_kernel, launch.blocks
        own = {
            "row_ids": launch.row_ids,
            "expert_ids": launch.expert_ids,
            "rows": launch.rows,
            "top_k": launch.top_k,
            "weight_stride": state.weight.stride(0),
            "scale_stride": state.scale.stride(0),
        }
    grid = (blocks, -(-problem.n // schedule.block_n))
    start = partial(kernel.warmup, grid=grid) if compile_only else kernel[grid]
    return start(
        activation=launch.activation,
        weight=state.weight,
        scale=state.scale,
        zero_point=state.zero_point,
        second_scale=state.second_scale,
        bias=state.bias,
        out=out,
        N=problem.n,
        K=problem.k,
        scale_rows=state.scale_rows,
        ELEMENT=_STORED_AS.get(scheme.element, scheme.element),
        SCALE_FORMAT=scheme.scale_format,
        GROUP_SIZE=state.group_size,
        BLOCK_M=schedule.block_m,
        BLOCK_N=schedule.block_n,
        BLOCK_K=K_TILE,
        num_warps=schedule.warps,
        num_stages=schedule.stages,
        **own,
    )
