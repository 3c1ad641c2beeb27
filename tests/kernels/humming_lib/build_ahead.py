# SPDX-License-Identifier: Apache-2.0
"""Run in a process of its own: build units with the real library on a pretended H100, without a GPU.

Prints one JSON object as its last line. Usage: ``python build_ahead.py CASE_ID...``
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from pretended_device import layer_config, pretend

from humming_conformance.devices import Device
from humming_conformance.kernels.humming_lib import build, selection
from humming_conformance.problems import parse_case

DEVICE = Device("h100", "cuda", sm=90)


def configurations(text: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The layer's, the call's and the schedule's configuration of a case."""
    case = parse_case(text)
    layer = layer_config(case)
    compute = selection.compute_config(case)
    config = selection.production_config(layer, compute["gemm_type"], case.problem.rows)
    return layer.to_str(), compute, config


def main(texts: list[str]) -> dict[str, Any]:
    """Find the units of all cases, build that of the first, then prepare the first as a layer does."""
    pretend()
    from humming.jit.compiler import NVCCCompiler
    from humming.kernel.humming import HummingKernel

    compiled = []
    original = NVCCCompiler._compile.__func__

    def counted(cls: Any, *arguments: Any, **more: Any) -> Any:
        compiled.append(arguments)
        return original(cls, *arguments, **more)

    NVCCCompiler._compile = classmethod(counted)
    HummingKernel.register_kernel = lambda kernel: setattr(kernel, "kernel_id", 0)  # loading needs a driver
    units = []
    for text in texts:
        layer, compute, config = configurations(text)
        units.append(build.build_unit(json.loads(layer), compute, config, DEVICE))
    before = len(compiled)
    unit = type(units[0])(**json.loads(json.dumps(vars(units[0]))))
    build.build(unit)
    built = len(compiled)
    layer, compute, config = configurations(texts[0])
    HummingKernel.prepare_kernels(layer, json.dumps(compute), json.dumps(config), 0)
    return {
        "keys": [unit.key for unit in units],
        "descriptions": [unit.description for unit in units],
        "before": before,
        "built": built,
        "prepared": len(compiled),
    }


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(sys.argv[1:])))
