# SPDX-License-Identifier: Apache-2.0
"""Run in a process of its own: select and compile a case's kernel on a pretended older device, without a GPU.

Prints one JSON object as its last line. Usage: ``python build_older_path.py SM CASE_ID``
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from humming_conformance.devices import Device
from humming_conformance.kernels.humming_lib import adapter, layout, pretended, selection
from humming_conformance.problems import parse_case


class NoDevice:
    """Stands in for ``torch.cuda.device``."""

    def __init__(self, _index: int) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def build(sm: int, text: str) -> dict[str, Any]:
    """Path, source, cubin and compiler command of the kernel that production would run for a case."""
    if torch.version.cuda is None:
        torch.version.cuda = "13.0"  # type: ignore[assignment]
    torch.cuda.current_device = lambda: 0
    torch.cuda.device = NoDevice  # type: ignore[assignment,misc]
    pretended.install(Device(f"sm_{sm}_on_sm_90", "cuda", sm=sm, hardware_sm=90))
    from humming.kernel.humming import HummingKernel
    from humming.schema import BaseInputSchema, BaseWeightSchema
    from humming.transform import prepare_layer_config

    HummingKernel.register_kernel = lambda _kernel: None  # it would load the launcher, which needs a driver
    case = parse_case(text)
    bits = case.activation.format.bits
    unquantized = {"quant_method": "humming", "dtype": layout.DTYPES.get(case.activation.element)}
    config = prepare_layer_config(
        shape_n=case.problem.n,
        shape_k=case.problem.k,
        weight_schema=BaseWeightSchema.from_config(layout.weight_config(case)),
        input_schema=BaseInputSchema.from_config(layout.input_config(case) or unquantized),
        num_experts=case.problem.experts or None,
        pad_n_to_multiple=adapter.PAD_N[bits],
        pad_k_to_multiple=512 // bits,
        has_bias=case.problem.bias,
        torch_dtype=getattr(torch, layout.TORCH_DTYPES[case.output]),
    )
    compute = selection.compute_config(case)
    schedule = selection.production_config(config, compute["gemm_type"], case.problem.rows)
    schedule.pop("num_sms", None)
    kernel: Any = HummingKernel(**json.loads(config.to_str()), **compute, **schedule)
    cubin = Path(kernel.kernel_filename)
    return {
        "mma": kernel.mma_type.value,
        "sm_version": kernel.sm_version,
        "code": kernel.code,
        "cubin": str(cubin),
        "command": json.loads(cubin.with_name("cmdline.json").read_text()),
    }


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(build(int(sys.argv[1]), sys.argv[2])))
