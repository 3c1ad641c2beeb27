# SPDX-License-Identifier: Apache-2.0
"""Run in a process of its own: select and compile a case's kernel on a pretended older device, without a GPU.

Prints one JSON object as its last line. Usage: ``python build_older_path.py SM CASE_ID``
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from pretended_device import layer_config, without_gpu

from humming_conformance.devices import Device
from humming_conformance.kernels.humming_lib import pretended, selection
from humming_conformance.problems import parse_case


def build(sm: int, text: str) -> dict[str, Any]:
    """Path, source, cubin and compiler command of the kernel that production would run for a case."""
    without_gpu()
    pretended.install(Device(f"sm_{sm}_on_sm_90", "cuda", sm=sm, hardware_sm=90))
    from humming.kernel.humming import HummingKernel

    HummingKernel.register_kernel = lambda _kernel: None  # it would load the launcher, which needs a driver
    case = parse_case(text)
    config = layer_config(case)
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
