# SPDX-License-Identifier: Apache-2.0
"""Run in a process of its own: ask the real library, on a pretended GPU, what selection and layout rest on.

Prints one JSON object. Usage: ``python pretended_device.py CASE_ID...``
"""

import json
import sys
from types import SimpleNamespace
from typing import Any

import torch

from humming_conformance.kernels.humming_lib import adapter, layout, selection
from humming_conformance.problems import Case, build_operands, parse_case

#: An H100 as the library describes it.
H100 = SimpleNamespace(
    index=0,
    name="NVIDIA H100 80GB HBM3",
    is_ppu=False,
    sm_count=132,
    max_threads_per_block=1024,
    max_threads_per_sm=2048,
    max_registers_per_sm=65536,
    sm_major=9,
    sm_minor=0,
    sm_version=90,
    l2_cache_size=52428800,
    l2_cache_size_mb=50.0,
    l1_cache_size=262144,
    l1_cache_size_kb=256.0,
    default_smem_size=49152,
    max_smem_size=232448,
    max_smem_size_kb=227.0,
    memory_clock_khz=2619000,
    memory_bus_width=5120,
    sm_clock_khz=1980000,
    memory_bandwidth_gbps=3352.32,
    tensorcore_tops={
        "float16": 1070.53,
        "bfloat16": 1070.53,
        "float8e4m3": 2141.06,
        "float8e5m2": 2141.06,
        "int8": 2141.06,
        "int4": 4282.12,
    },
)


class NoDevice:
    """Stands in for ``torch.cuda.device``."""

    def __init__(self, _index: int) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def without_gpu() -> None:
    """Let torch answer the library's questions about CUDA on a machine without it."""
    if torch.version.cuda is None:
        torch.version.cuda = "13.0"  # type: ignore[assignment]
    torch.cuda.current_device = lambda: 0
    torch.cuda.device = NoDevice  # type: ignore[assignment,misc]


def pretend() -> None:
    """Make the library see an H100."""
    without_gpu()
    import humming.device
    import humming.utils.device

    extension = SimpleNamespace(_DeviceInfo=lambda _index: H100)
    humming.utils.device._get_device_info_extension = lambda: extension
    humming.device._get_device_info_extension = lambda: extension


def layer_config(case: Case) -> Any:
    """The library's ``LayerConfig`` of a case, from its own schemas."""
    from humming.schema import BaseInputSchema, BaseWeightSchema
    from humming.transform import prepare_layer_config

    pad_n, pad_k = layout.padding(case)
    unquantized = {"quant_method": "humming", "dtype": layout.DTYPES.get(case.activation.element)}
    return prepare_layer_config(
        shape_n=case.problem.n,
        shape_k=case.problem.k,
        weight_schema=BaseWeightSchema.from_config(layout.weight_config(case)),
        input_schema=BaseInputSchema.from_config(layout.input_config(case) or unquantized),
        num_experts=case.problem.experts or None,
        pad_n_to_multiple=pad_n,
        pad_k_to_multiple=pad_k,
        has_bias=case.problem.bias,
        torch_dtype=getattr(torch, layout.TORCH_DTYPES[case.output]),
    )


def examine(text: str) -> dict[str, Any]:
    """Compare the one-M selection with the library's list, and our tensors with the documented ones."""
    from humming.schema import BaseWeightSchema
    from humming.tune import get_heuristics_config

    case = parse_case(text)
    dtype = getattr(torch, layout.TORCH_DTYPES[case.output])
    weight_schema = BaseWeightSchema.from_config(layout.weight_config(case))
    config = layer_config(case)
    gemm_type = selection.GEMM_TYPES[case.problem.kind]
    intervals = get_heuristics_config(config, gemm_type=gemm_type)  # what a layer left alone uses
    edges = {edge + step for entry in intervals for edge in entry[:2] for step in (-1, 0, 1)}
    sizes = sorted(m for m in edges | set(range(1, 140)) | {9000, 1 << 20} if 0 < m < 1 << 30)
    entries = {m: next(entry[2] for entry in intervals if entry[0] < m <= entry[1]) for m in sizes}
    differ = [m for m in sizes if selection.production_config(config, gemm_type, m) != entries[m]]

    attrs = weight_schema.get_tensors_attrs(
        shape_n=case.problem.n,
        shape_k=case.problem.k,
        param_dtype=dtype,
        num_experts=case.problem.experts or None,
        has_bias=case.problem.bias,
    )
    documented = {name: torch.empty(item["shape"], dtype=item["dtype"]) for name, item in attrs.items()}
    try:
        adapter.check_tensors(layout.weight_tensors(case, build_operands(case)), documented)
        tensors = ""
    except adapter.LayerError as error:
        tensors = str(error)
    try:
        selection.production_config(config, gemm_type, 0)
        refusal = ""
    except selection.SelectionError as error:
        refusal = str(error)
    return {
        "intervals": len(intervals),
        "sizes": len(sizes),
        "differ": differ,
        "tensors": tensors,
        "refusal": refusal,
    }


if __name__ == "__main__":
    pretend()
    sys.stdout.write(json.dumps({text: examine(text) for text in sys.argv[1:]}))
