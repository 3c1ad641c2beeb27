# SPDX-License-Identifier: Apache-2.0
"""Run in a process of its own: ask the real library which schemes go together on a pretended device.

Prints one JSON object, case id → answer. Usage: ``python compatible_schemes.py SM CASE_ID...``; SM is 90 or that of an
older path.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from pretended_device import pretend, without_gpu

from humming_conformance.devices import Device
from humming_conformance.kernels.humming_lib import layout, pretended
from humming_conformance.problems import parse_case


def compatible(text: str) -> bool:
    """The library's rule on the weights and activations of a case."""
    import torch
    from humming.schema import BaseInputSchema, BaseWeightSchema
    from humming.schema.humming import HummingInputSchema, is_humming_schema_compatible

    case = parse_case(text)
    given = layout.input_config(case)
    activation: Any = BaseInputSchema.from_config(given) if given else HummingInputSchema()
    weight = BaseWeightSchema.from_config(layout.weight_config(case))
    return bool(is_humming_schema_compatible(activation, weight, getattr(torch, layout.TORCH_DTYPES[case.output])))


def main(sm: int, texts: list[str]) -> dict[str, bool]:
    """The answers on one device."""
    if sm == 90:
        pretend()
    else:
        without_gpu()
        pretended.install(Device(f"sm_{sm}_on_sm_90", "cuda", sm=sm, hardware_sm=90))
    return {text: compatible(text) for text in texts}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(int(sys.argv[1]), sys.argv[2:])))
