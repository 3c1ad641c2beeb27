# SPDX-License-Identifier: Apache-2.0
"""Adapter of the Triton kernel in :mod:`.dense`: claims, weight packing, schedule, route and contract."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from humming_conformance.devices import Device
from humming_conformance.kernels.torch_gemm import to_device
from humming_conformance.oracle import tensor_core
from humming_conformance.oracle.contract import Contract
from humming_conformance.problems import Case, Operands
from humming_conformance.protocols import Claim, Library, Output, OutputBuffer, Route, Support
from humming_conformance.support import PLAIN_CALL, CannotJudge, support_from_claims

#: K covered by one step of the kernel's loop, whatever the problem.
K_TILE = 128

_ROUNDING_SOURCE = "kernels/triton_fused/dense.py, step 2: dequantized in fp32, rounded once to the activation's format"


def _group_fits(case: Case) -> bool:
    size = case.weight.granularity.group_size
    return size is None or K_TILE % size == 0 or size % K_TILE == 0


_RULES = ((f"the group size divides {K_TILE} or is a multiple of it", _group_fits), PLAIN_CALL)


def _integers(weights: tuple[str, ...], zero_point: str) -> Claim:
    return Claim(
        kinds=("dense",),
        weights=weights,
        granularities=("g*", "channel"),
        scale_formats=("bf16", "fp16"),
        activations=("bf16", "fp16"),
        zero_points=(zero_point,),
        rules=_RULES,
    )


class Schedule(NamedTuple):
    """Tile (BLOCK_M, BLOCK_N), warps and pipeline stages of a launch."""

    block_m: int
    block_n: int
    warps: int
    stages: int


def choose_schedule(m: int, *, interpreted: bool) -> Schedule:
    """The schedule for `m` tokens.

    On a GPU the tile is as narrow as the batch, and wide batches get tiles of 128 rows of weights. In the
    interpreter, where each program costs the same whatever its tile, tiles are large; they are the same for
    every M because BLAS may add in another order for another shape, and bits mustn't depend on the batch.
    """
    if interpreted:
        return Schedule(64, 128, 4, 1)
    if m > 64:
        return Schedule(64, 128, 8, 3)
    return Schedule(max(16, 1 << (m - 1).bit_length()), 64, 4, 4)


@dataclass(frozen=True)
class _State:
    """Tensors on the device, in the layouts of :mod:`.dense`; activations (L, M, K) of all launches."""

    case: Case
    activation: Any
    weight: Any
    scale: Any
    zero_point: Any
    bias: Any
    group_size: int
    schedule: Schedule
    sm: int
    mma_class: str = ""


class TritonFused:
    """The adapter; its methods are described in :class:`humming_conformance.protocols.Kernel`."""

    name = "triton_fused"
    device_kinds: tuple[str, ...] = ("cuda", "cpu_interpreter")
    claims: tuple[Claim, ...] = (
        _integers(("int4", "int8"), "none"),
        _integers(("uint4", "uint8"), "integer"),
        Claim(
            kinds=("dense",),
            weights=("fp4_e2m1",),
            granularities=("g32",),
            scale_formats=("ue8m0",),
            activations=("bf16", "fp16"),
            rules=(PLAIN_CALL,),
        ),
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
        zero_point, bias = operands.zero_point, operands.bias
        whole_k = -(-case.problem.k // K_TILE) * K_TILE
        state = _State(
            case=case,
            activation=to_device(operands.activation, case.activation.element, device),
            weight=to_device(_packed(operands.weight[0], case.weight.format.bits), "", device),
            scale=to_device(operands.weight_scale[0].T, case.weight.scale_format, device),
            zero_point=None if zero_point is None else to_device(zero_point[0].T, "", device),
            bias=None if bias is None else to_device(bias[0], case.output, device),
            group_size=case.weight.granularity.group_size or whole_k,
            schedule=choose_schedule(case.problem.m, interpreted=interpreted),
            sm=0 if interpreted else device.sm,
        )
        if interpreted:
            return state
        # Compiling here keeps it out of the launches and tells the route what was compiled.
        compiled = _launch(state, 0, state.activation.new_empty(0), compile_only=True)
        return replace(state, mma_class=mma_class(compiled.asm["ptx"]))

    def run(self, state: _State, launch: int, buffer: OutputBuffer) -> Output:
        out = buffer.allocate(state.case.problem.m, state.case.problem.n, state.case.output)
        with np.errstate(all="ignore"):  # in the interpreter, overflow and NaN are as silent as on a GPU
            _launch(state, launch, out)
        return Output(out)

    def route(self, state: _State) -> Route:
        schedule = state.schedule
        return Route(
            path="dense" if state.sm else "dense_interpreted",
            mma_class=state.mma_class,
            tile=(schedule.block_m, schedule.block_n, K_TILE),
            stages=schedule.stages,
            activation_format=state.case.activation.element,
            details={"sm": state.sm, "warps": schedule.warps},
        )

    def contract(self, case: Case, route: Route) -> Contract:
        sources = {"weight_input": _ROUNDING_SOURCE}
        if route.path == "dense_interpreted":
            # BLAS adds the products of a K tile in fp32, in some order; the accumulator gets their sum.
            return Contract(case.output, weight_input=case.output, promotion_interval=K_TILE, sources=sources)
        step = tensor_core.tensor_core_step(route.details["sm"])
        return Contract(
            case.output,
            weight_input=case.output,
            step_length=step.step_length,
            fraction_bits=step.fraction_bits,
            sources=sources | {"fraction_bits": tensor_core.SOURCE},
        )


def _packed(codes: NDArray[Any], bits: int) -> NDArray[Any]:
    """Codes (N, K) as the kernel reads them: 4-bit ones two to a byte, the even one low, an odd K padded."""
    if bits == 8:
        return codes
    even = np.pad(codes, ((0, 0), (0, codes.shape[1] % 2)))
    return np.asarray(even[:, 0::2] | even[:, 1::2] << 4)


def mma_class(ptx: str) -> str:
    """The tensor-core instruction in PTX: ``tcgen05.mma``, ``wgmma``, ``mma.sync``, or nothing."""
    found = re.search(r"\b(tcgen05\.mma|wgmma|mma\.sync)\b", ptx)
    return found[1] if found else ""


def _launch(state: _State, launch: int, out: Any, *, compile_only: bool = False) -> Any:
    """Launch the kernel, or only compile it; returns the compiled kernel on a GPU."""
    from humming_conformance.kernels.triton_fused.dense import dense_kernel

    problem, schedule = state.case.problem, state.schedule
    grid = (-(-problem.m // schedule.block_m), -(-problem.n // schedule.block_n))
    start = partial(dense_kernel.warmup, grid=grid) if compile_only else dense_kernel[grid]
    return start(
        state.activation[launch],
        state.weight,
        state.scale,
        state.zero_point,
        state.bias,
        out,
        problem.m,
        problem.n,
        problem.k,
        ELEMENT=state.case.weight.element,
        GROUP_SIZE=state.group_size,
        BLOCK_M=schedule.block_m,
        BLOCK_N=schedule.block_n,
        BLOCK_K=K_TILE,
        num_warps=schedule.warps,
        num_stages=schedule.stages,
    )
