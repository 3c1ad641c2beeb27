# SPDX-License-Identifier: Apache-2.0
"""The anchor: a plain 16-bit GEMM on weights that were dequantized once, before anything is timed.

Weights are dequantized in float64 NumPy and rounded once to the output format; this shares nothing with
:mod:`.qdq`, which uses the same GEMM. On CUDA that is cuBLAS's, told to add partial sums in fp32; on CPU an
fp32 GEMM of the same 16-bit operands, rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from humming_conformance.devices import Device
from humming_conformance.formats import SCALE_FORMATS, element_format
from humming_conformance.oracle import tensor_core
from humming_conformance.oracle.contract import Contract
from humming_conformance.problems import Case, Operands
from humming_conformance.protocols import Claim, Library, Output, OutputBuffer, Route, Support
from humming_conformance.support import NEUTRAL_OPERANDS, support_from_claims

if TYPE_CHECKING:
    import torch

_SHORT_FLOATS = [f"e{x}m{y}" for x in range(1, 8) for y in range(7) if 2 <= x + y <= 7]
#: Weight elements of at most 8 bits: those with a sign, and those that come with a zero point.
SIGNED_WEIGHTS = (
    *(f"int{bits}" for bits in range(1, 9)),
    *(f"e0m{bits}" for bits in range(1, 8)),
    *(element_format(name).name for name in _SHORT_FLOATS),
)
UNSIGNED_WEIGHTS = tuple(f"uint{bits}" for bits in range(1, 9))
WEIGHT_GRANULARITIES = ("tensor", "channel", "g*", "b*")
#: torch gives each stream a cuBLAS workspace and temporary memory of its own, and captures both.
CALLS = ("graph", "streams")

_SPLIT_SOURCE = "cuBLAS does not say how it splits K: 32 slices are assumed to be the most"
_BATCH_SOURCE = "docs.pytorch.org/docs/stable/notes/numerical_accuracy.html: a slice of a batch may differ in bits"


def to_device(codes: NDArray[Any], element: str, device: Device) -> torch.Tensor:
    """A contiguous copy of `codes` on `device`: bf16 and fp16 codes as floats, others in their own dtype."""
    import torch

    place = "cuda" if device.kind == "cuda" else "cpu"
    contiguous = np.ascontiguousarray(codes)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(element)
    if dtype is None:
        return torch.tensor(contiguous, device=place)
    # torch has few operations on uint16, so the bits travel as int16.
    return torch.tensor(contiguous.view(np.int16), device=place).view(dtype)


def use_fp32_reduction() -> None:
    """Tell cuBLAS, for this process, to add the partial sums of a split 16-bit GEMM in fp32."""
    import torch

    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def gemm(activation: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor) -> None:
    """Write ``activation @ weight.T`` to `out`, rounded, and add the bias there, which rounds again.

    Shapes: activation (M, K), weight (N, K), bias (N,), out (M, N); all of one 16-bit dtype.
    """
    import torch

    if out.is_cuda:
        torch.mm(activation, weight.T, out=out)
    else:
        out.copy_(activation.float() @ weight.float().T)
    if bias is not None:
        out += bias


def gemm_route(case: Case, device: Device) -> Route:
    """The route of :func:`gemm` on `device`."""
    path = "cublas" if device.kind == "cuda" else "cpu_fp32"
    return Route(path, activation_format=case.output, details={"sm": device.sm})


def gemm_contract(case: Case, route: Route, **rounded: str) -> Contract:
    """The contract of :func:`gemm` on inputs that were rounded to the output format.

    `rounded` maps ``weight_input``, ``activation_input`` or both to the source of that rounding.
    """
    fields: dict[str, Any] = dict.fromkeys(rounded, case.output)
    sources = {**rounded, "batch_invariant": _BATCH_SOURCE}
    if case.problem.bias:
        fields["bias_application"] = "after_rounding"
        sources["bias_application"] = "kernels/torch_gemm.py, gemm: the bias is added to the rounded product"
    if route.path == "cublas":
        step = tensor_core.tensor_core_step(route.details["sm"])
        fields |= {"step_length": step.step_length, "fraction_bits": step.fraction_bits, "split_k": 32}
        sources |= {"step_length": tensor_core.SOURCE, "fraction_bits": tensor_core.SOURCE, "split_k": _SPLIT_SOURCE}
    return Contract(case.output, batch_invariant=False, sources=sources, **fields)


@dataclass(frozen=True)
class _State:
    case: Case
    device: Device
    activation: torch.Tensor  # (L, M, K)
    weight: torch.Tensor  # (N, K)
    bias: torch.Tensor | None


class TorchGemm:
    """The adapter; its methods are described in :class:`humming_conformance.protocols.Kernel`."""

    name = "torch_gemm"
    device_kinds: tuple[str, ...] = ("cuda", "cpu")
    claims: tuple[Claim, ...] = tuple(
        Claim(
            kinds=("dense",),
            weights=weights,
            granularities=WEIGHT_GRANULARITIES,
            scale_formats=SCALE_FORMATS,
            activations=("bf16", "fp16"),
            zero_points=zero_points,
            second_scales=("none", "tensor", "channel"),
            calls=CALLS,
            rules=(NEUTRAL_OPERANDS,),
        )
        for weights, zero_points in ((SIGNED_WEIGHTS, ("none",)), (UNSIGNED_WEIGHTS, ("integer", "float")))
    )
    library: Library | None = None

    def support(self, case: Case, device: Device) -> Support:
        return support_from_claims(self.claims, case, device, self.device_kinds, minimum_sm=80)

    def prepare(self, case: Case, operands: Operands, device: Device) -> _State:
        use_fp32_reduction()
        bias = None if operands.bias is None else to_device(operands.bias[0], case.output, device)
        return _State(
            case=case,
            device=device,
            activation=to_device(operands.activation, case.output, device),
            weight=to_device(_rounded_weight(case, operands), case.output, device),
            bias=bias,
        )

    def run(self, state: _State, launch: int, buffer: OutputBuffer) -> Output:
        problem = state.case.problem
        out = buffer.allocate(problem.m, problem.n, state.case.output)
        gemm(state.activation[launch], state.weight, state.bias, out)
        return Output(out)

    def route(self, state: _State) -> Route:
        return gemm_route(state.case, state.device)

    def contract(self, case: Case, route: Route) -> Contract:
        source = "kernels/torch_gemm.py: prepare rounds dequantized weights to 16 bits"
        return gemm_contract(case, route, weight_input=source)


def _rounded_weight(case: Case, operands: Operands) -> NDArray[Any]:
    """Codes (N, K), in the output format, of ``(element - zero_point) * scale * second_scale``."""
    scheme, problem, output = case.weight, case.problem, element_format(case.output)
    values = scheme.format.decode(operands.weight[0])
    if operands.zero_point is not None:
        stored = element_format("uint8") if scheme.zero_point == "integer" else output
        _, group = scheme.granularity.block_shape(problem.n, problem.k)
        values = values - np.repeat(stored.decode(operands.zero_point[0]), group, axis=1)[:, : problem.k]
    scale = element_format(scheme.scale_format).decode(operands.weight_scale[0])
    with np.errstate(invalid="ignore"):  # 0 * inf is NaN
        values = values * scheme.granularity.expand(scale, problem.n, problem.k)
        if operands.weight_scale_2 is not None:
            stored = element_format("fp32") if scheme.second_scale == "tensor" else output
            values = values * stored.decode(operands.weight_scale_2[0])[:, None]
    return output.encode(values, overflow="native")


kernel = TorchGemm()
