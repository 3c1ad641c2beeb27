# SPDX-License-Identifier: Apache-2.0
"""A W8A16 GEMM in torch and its adapter: int8 weights with one scale a row, on CPU and CUDA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from humming_conformance.devices import Device
from humming_conformance.oracle.contract import Contract
from humming_conformance.problems import Case, Operands
from humming_conformance.protocols import Claim, Library, Output, OutputBuffer, Route, Support
from humming_conformance.support import NEUTRAL_OPERANDS, support_from_claims

# The kernel.


def w8a16_gemm(
    activation: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """Write ``activation @ (weight * scale[:, None]).T + bias`` to `out`, summed in fp32 and rounded once.

    activation (M, K) and out (M, N) are bf16 or fp16, weight (N, K) int8, scale and bias (N,) fp32.
    """
    total = activation.float() @ weight.float().T
    total *= scale
    if bias is not None:
        total += bias
    out.copy_(total)


# The adapter.

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "int8": torch.int8}


def to_torch(codes: NDArray[Any], element: str, device: Device) -> torch.Tensor:
    """A tensor on `device` with the bits of element codes, which come as unsigned integers."""
    signed = np.ascontiguousarray(codes).view(f"i{codes.itemsize}")
    return torch.tensor(signed, device="cuda" if device.kind == "cuda" else "cpu").view(DTYPES[element])


@dataclass(frozen=True)
class State:
    """A prepared case: activation (L, M, K), weight (N, K), scale and bias (N,)."""

    case: Case
    device: Device
    activation: torch.Tensor
    weight: torch.Tensor
    scale: torch.Tensor
    bias: torch.Tensor | None


class MyKernel:
    """What the suites call; the methods are described in ``humming_conformance.protocols.Kernel``."""

    name = "my_kernel"
    device_kinds: tuple[str, ...] = ("cuda", "cpu")
    claims: tuple[Claim, ...] = (
        Claim(
            kinds=("dense",),
            weights=("int8",),
            granularities=("channel",),
            scale_formats=("bf16", "fp16", "fp32"),
            activations=("bf16", "fp16"),
            rules=(NEUTRAL_OPERANDS,),
        ),
    )
    library: Library | None = None

    def support(self, case: Case, device: Device) -> Support:
        return support_from_claims(self.claims, case, device, self.device_kinds)

    def prepare(self, case: Case, operands: Operands, device: Device) -> State:
        torch.backends.cuda.matmul.allow_tf32 = False  # fp32 sums are what the contract says
        bias = operands.bias
        return State(
            case=case,
            device=device,
            activation=to_torch(operands.activation, case.activation.element, device),
            weight=to_torch(operands.weight[0], "int8", device),
            scale=to_torch(operands.weight_scale[0, :, 0], case.weight.scale_format, device).float(),
            bias=None if bias is None else to_torch(bias[0], case.output, device).float(),
        )

    def run(self, state: State, launch: int, buffer: OutputBuffer) -> Output:
        problem = state.case.problem
        out = buffer.allocate(problem.m, problem.n, state.case.output)
        w8a16_gemm(state.activation[launch], state.weight, state.scale, state.bias, out)
        return Output(out)

    def route(self, state: State) -> Route:
        return Route(f"torch_fp32_{state.device.kind}", activation_format=state.case.activation.element)

    def contract(self, case: Case, route: Route) -> Contract:
        return Contract(
            output_format=case.output,
            scale_application="accumulator",
            batch_invariant=False,
            sources={
                "batch_invariant": "docs.pytorch.org/docs/stable/notes/numerical_accuracy.html, 'Batched "
                "computations or slice computations': a slice may differ from the whole in bits"
            },
        )


kernel = MyKernel()
