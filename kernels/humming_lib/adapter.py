# SPDX-License-Identifier: Apache-2.0
"""The adapter: a ``HummingLayer`` for a case, run with the one schedule that production would choose."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from humming_conformance.devices import Device
from humming_conformance.kernels import _moe_layout as moe_layout
from humming_conformance.kernels.humming_lib import build, contracts, layout, pretended, reproduction
from humming_conformance.kernels.humming_lib.claims import CLAIMS, unsupported_on
from humming_conformance.kernels.humming_lib.selection import compute_config, production_config
from humming_conformance.kernels.humming_lib.selector import HummingSelector
from humming_conformance.kernels.humming_lib.stream_k import MAX_SLICES, StreamK, stream_k
from humming_conformance.oracle.contract import Contract
from humming_conformance.problems import Case, Operands
from humming_conformance.protocols import BuildUnit, Claim, Library, Output, OutputBuffer, Route, Support
from humming_conformance.support import support_from_claims

if TYPE_CHECKING:
    import torch


class LayerError(RuntimeError):
    """The library's layer doesn't have the tensors that it documents."""


@dataclass
class LaunchInputs:
    """The tensors of one launch.

    Attributes:
        arguments: keyword arguments of ``HummingLayer.forward``.
        rows: rows of the output tensor.
        row_of: physical row of each logical row, None for identity.
    """

    arguments: dict[str, Any]
    rows: int
    row_of: NDArray[np.int64] | None = None


@dataclass
class HummingState:
    """A prepared case: the transformed layer, its schedule, the activations of all launches."""

    case: Case
    layer: Any
    expert: NDArray[np.int32] | None
    activation: torch.Tensor
    activation_scale: torch.Tensor | None
    config: dict[str, Any]
    layer_config: dict[str, Any]
    compute_text: str
    tuning_text: str
    kernel_name: str
    mma_class: str
    warp_shape: tuple[int, int, int]
    #: Inputs of the launch that ran last, so that a repeated (or captured) launch copies nothing.
    last: tuple[int, LaunchInputs] | None = field(default=None)

    @property
    def block_m(self) -> int:
        """M tile, to which ``indexed`` pads each expert."""
        return int(self.config["block_shape"][0])

    @cached_property
    def max_tokens(self) -> int:
        """Rows for each expert in ``grouped_masked``: the longest list of any launch, and some unowned."""
        if self.expert is None:
            return 0
        counts = [moe_layout.expert_counts(expert, self.case.problem.experts) for expert in self.expert]
        return int(np.max(counts)) + moe_layout.SPARE_ROWS

    @cached_property
    def stream_k(self) -> StreamK:
        """The division of the launch with the most slices."""
        import torch

        problem = self.case.problem
        if self.expert is None:
            m_tiles = {-(-problem.m // self.block_m)}
        else:
            m_tiles = {
                int((-(-moe_layout.expert_counts(expert, problem.experts) // self.block_m)).sum())
                for expert in self.expert
            }
        divisions = [
            stream_k(
                self.config,
                n=self.layer_config["shape_n"],
                k=self.layer_config["shape_k"],
                group_size=self.layer_config["weight_scale_group_size"],
                m_tiles=tiles,
                sm=self.layer_config["sm_version"],
                sm_count=torch.cuda.get_device_properties(self.activation.device).multi_processor_count,
                output_format=self.case.output,
                max_slices=None if _library_version() == "0.1.16" else MAX_SLICES,
            )
            for tiles in m_tiles
        ]
        return max(divisions, key=lambda division: (division.slices, division.unordered))


class HummingKernelAdapter:
    """Humming as a :class:`~humming_conformance.protocols.Kernel`. Releases 0.1.16 to 0.1.20."""

    name = "humming"
    device_kinds: tuple[str, ...] = ("cuda",)
    older_paths: tuple[int, ...] = tuple(pretended.PROFILES)
    claims: tuple[Claim, ...] = CLAIMS
    library: Library | None = Library(
        distribution="humming-kernels",
        module="humming",
        environment={
            # Under pytest the library's heuristics would choose other schedules than in production.
            "HUMMING_TEST_TUNING_SOURCE": "none",
            # Importing humming would start a build process of its own.
            "HUMMING_DISABLE_PARALLEL_BUILD": "1",
        },
        cache_variables=("HUMMING_CACHE_DIR",),
    )

    def support(self, case: Case, device: Device) -> Support:
        """From the claims, and from what the library serves on the device's architecture."""
        support = support_from_claims(self.claims, case, device, self.device_kinds)
        refusal = unsupported_on(case, device.sm) if device.sm else ""
        return Support("no", refusal) if support.answer != "no" and refusal else support

    def prepare(self, case: Case, operands: Operands, device: Device) -> HummingState:
        """Load and transform the weights, choose and compile the schedule for this M, upload activations.

        Raises LayerError if the layer's tensors aren't the documented ones, SelectionError if the library
        has no schedule, what :func:`.pretended.install` raises, and whatever the library raises itself.
        """
        import torch
        from humming.kernel.humming import HummingKernel

        pretended.install(device)
        layer = _transformed_layer(case, operands)
        index = torch.cuda.current_device()
        compute, config = _schedule(case, layer, index)
        layer_text = layer.humming_config.to_str()
        compute_text = json.dumps(compute)
        tuning_text = json.dumps(config)
        rows = HummingKernel.prepare_kernels(layer_text, compute_text, tuning_text, index)
        kernel = HummingKernel._id2kernel[int(rows[2])]  # noqa: SLF001  # the only way to the selected object
        scale = operands.activation_scale
        return HummingState(
            case=case,
            layer=layer,
            expert=operands.expert,
            activation=layout.as_torch(operands.activation, case.activation.element).cuda(),
            activation_scale=None if scale is None else layout.as_torch(scale, "fp32").cuda(),
            config=config,
            layer_config=json.loads(layer_text),
            compute_text=compute_text,
            tuning_text=tuning_text,
            kernel_name=str(kernel.kernel_name),
            mma_class=str(kernel.mma_type.value),
            warp_shape=tuple(kernel.warp_shape),
        )

    def build_unit(self, case: Case, operands: Operands, device: Device) -> BuildUnit:
        """The kernel that ``prepare`` would compile: :mod:`.build`. Raises what ``prepare`` raises until then."""
        import torch

        pretended.install(device)
        layer = _transformed_layer(case, operands)
        compute, config = _schedule(case, layer, torch.cuda.current_device())
        return build.build_unit(json.loads(layer.humming_config.to_str()), compute, config, device)

    def build(self, unit: BuildUnit) -> None:
        """Compile a unit into the library's cache: :mod:`.build`."""
        build.build(unit)

    def run(self, state: HummingState, launch: int, buffer: OutputBuffer) -> Output:
        """One call of the layer, into the judge's buffer."""
        if state.last is None or state.last[0] != launch:
            state.last = (launch, _launch_inputs(state, launch))
        inputs = state.last[1]
        output = buffer.allocate(inputs.rows, state.case.problem.n, state.case.output)
        state.layer(
            outputs=output,
            compute_config=state.compute_text,
            tuning_config=state.tuning_text,
            **inputs.arguments,
        )
        return Output(output, inputs.row_of)

    def route(self, state: HummingState) -> Route:
        """The selected kernel; ``details`` hold the library's own configurations and the contract's needs."""
        import torch

        major, minor = torch.cuda.get_device_capability(state.activation.device)
        scale_path = contracts.scale_path(state.case, state.layer_config)
        executed = {name: ours for ours, name in layout.DTYPES.items()} | {"int8": "int8"}
        tile = state.config["block_shape"]
        return Route(
            path=f"{state.mma_class}_{scale_path}",
            mma_class=state.mma_class,
            tile=(int(tile[0]), int(tile[1]), int(tile[2])),
            stages=int(state.config.get("num_stages", 2)),
            split_k=state.stream_k.slices,
            activation_format=executed.get(state.layer_config["a_dtype"], state.layer_config["a_dtype"]),
            details={
                "library": _library_version(),
                "kernel_name": state.kernel_name,
                "tuning_config": state.config,
                "layer_config": state.layer_config,
                "scale_path": scale_path,
                "executed_weight": state.layer_config["b_dtype"],
                "warp_shape": list(state.warp_shape),
                "unordered": state.stream_k.unordered,
                "hardware_sm": major * 10 + minor,
            },
        )

    def contract(self, case: Case, route: Route) -> Contract:
        """The arithmetic of that route: :mod:`.contracts`."""
        return contracts.contract(case, route)

    def selector(self) -> HummingSelector:
        """What asks the library for its choices on recorded devices: :mod:`.selector`."""
        return HummingSelector()

    def reproduction(self, case: Case, route: Mapping[str, Any] | None, device: Device) -> str:
        """Source of one launch that needs numpy, torch and humming alone: :mod:`.reproduction`."""
        return reproduction.source(case, route, layout.padding(case), device)


def _library_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("humming-kernels")
    except PackageNotFoundError:
        return "unknown"


def _transformed_layer(case: Case, operands: Operands) -> Any:
    import torch
    from humming.layer import HummingLayer

    pad_n, pad_k = layout.padding(case)
    layer = HummingLayer(
        shape_n=case.problem.n,
        shape_k=case.problem.k,
        weight_config=layout.weight_config(case),
        input_config=layout.input_config(case),
        pad_n_to_multiple=pad_n,
        pad_k_to_multiple=pad_k,
        num_experts=case.problem.experts or None,
        has_bias=case.problem.bias,
        torch_dtype=getattr(torch, layout.TORCH_DTYPES[case.output]),
    )
    tensors = layout.weight_tensors(case, operands)
    check_tensors(tensors, layer.state_dict())
    layer.load_from_tensors(tensors)
    layer = layer.cuda()
    layer.transform()
    return layer


def _schedule(case: Case, layer: Any, index: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The call's and the schedule's configuration of a transformed layer on the CUDA device ``index``."""
    compute = compute_config(case)
    config = production_config(
        layer.humming_config,
        compute["gemm_type"],
        case.problem.rows,
        index,
        batch_invariant=compute.get("use_batch_invariant", False),
    )
    return compute, config


def check_tensors(given: dict[str, torch.Tensor], documented: dict[str, torch.Tensor]) -> None:
    """Raise LayerError unless ``given`` is exactly what the layer holds, but for its stream-K locks.

    The library loads with ``strict=False``: a missing tensor would stay uninitialised memory, an unknown
    one be ignored, another dtype be converted.
    """
    wanted = {name: (tuple(t.shape), t.dtype) for name, t in documented.items() if name != "locks"}
    have = {name: (tuple(t.shape), t.dtype) for name, t in given.items()}
    if wanted != have:
        differences = [
            f"{name}: the layer has {wanted.get(name, 'none')}, the operands {have.get(name, 'none')}"
            for name in sorted(wanted.keys() | have.keys())
            if wanted.get(name) != have.get(name)
        ]
        raise LayerError(f"tensors don't fit the layer's: {'; '.join(differences)}")


def _launch_inputs(state: HummingState, launch: int) -> LaunchInputs:
    import torch

    problem = state.case.problem
    device = state.activation.device
    activation = state.activation[launch]
    # A copy: the launcher wants 16-byte aligned scales, and a launch's are 4 * M bytes behind the last one's.
    scale = None if state.activation_scale is None else state.activation_scale[launch].clone()
    if state.expert is None:
        return LaunchInputs({"inputs": activation, "input_scale": scale}, problem.m)
    expert = state.expert[launch]
    if problem.kind == "moe_indexed":
        index = moe_layout.indexed(expert, problem.experts, state.block_m)
        arguments = {
            "inputs": activation,
            "input_scale": scale,
            "sorted_ids": torch.from_numpy(index.sorted_ids).to(device),
            "expert_ids": torch.from_numpy(index.expert_ids).to(device),
            "num_tokens_padded": torch.tensor([index.num_tokens_padded], dtype=torch.int32, device=device),
            "top_k": problem.top_k,
        }
        return LaunchInputs(arguments, problem.rows)
    if problem.kind == "moe_grouped_contiguous":
        grouped = moe_layout.grouped_contiguous(expert, problem.experts)
    else:
        grouped = moe_layout.grouped_masked(expert, problem.experts, state.max_tokens)
    physical = torch.from_numpy(grouped.row_of).to(device)
    token = torch.arange(problem.rows, device=device) // problem.top_k
    inputs = _poisoned(activation, grouped.physical_rows, layout.POISON_CODES[state.case.activation.element])
    _as_bits(inputs)[physical] = _as_bits(activation)[token]
    if scale is not None:
        scale_rows = torch.full((grouped.physical_rows, scale.shape[1]), float("nan"), device=device)
        scale_rows[physical] = scale[token]
        scale = scale_rows
    arguments = {
        "inputs": inputs,
        "input_scale": scale,
        "expert_layout": torch.from_numpy(grouped.expert_layout).to(device),
        "valid_shape_m": problem.rows,
    }
    return LaunchInputs(arguments, grouped.physical_rows, grouped.row_of)


def _as_bits(tensor: torch.Tensor) -> torch.Tensor:
    """A view as integers, which torch can index whatever the format."""
    import torch

    return tensor.view(torch.int16 if tensor.element_size() == 2 else torch.uint8)


def _poisoned(like: torch.Tensor, rows: int, code: int) -> torch.Tensor:
    """(rows, K) elements of one code."""
    bits = _as_bits(like)
    return bits.new_full((rows, like.shape[1]), code).view(like.dtype)
