# SPDX-License-Identifier: Apache-2.0
"""Compiling a kernel ahead of the cases that need it, in any process that sees the same device.

The library's kernel object writes its CUDA source when it is constructed, and then compiles and loads it
(``HummingKernel.init_kernel``). One that does neither gives the source alone; compiling it takes the library's own
path into the library's own cache, where each entry is locked while it is compiled (``Compiler.compile``, releases
0.1.16 to 0.1.20): processes that ask for one kernel at the same time compile it once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

from humming_conformance.devices import Device
from humming_conformance.kernels.humming_lib import pretended
from humming_conformance.protocols import BuildUnit


def build_unit(
    layer_config: Mapping[str, Any], compute: Mapping[str, Any], config: Mapping[str, Any], device: Device
) -> BuildUnit:
    """The unit of a layer's configuration, a call's and a schedule, as ``HummingKernel.prepare_kernels`` joins them.

    Its key is a hash of the source, the template instantiated and the target. The library refuses here what it would
    refuse when asked for the kernel.
    """
    parts = joined(layer_config, compute, config)
    source = unbuilt(parts)
    text = f"{source.sm_version_str}\n{source.kernel_expr}\n{source.code}"
    tile = "x".join(map(str, source.block_shape))
    return BuildUnit(
        key=hashlib.sha256(text.encode()).hexdigest(),
        description=(
            f"humming {compute['gemm_type']} N={source.shape_n} K={source.shape_k} a={source.a_dtype} "
            f"b={source.b_dtype} c={source.c_dtype} {source.mma_type.value} tile {tile} for sm_{source.sm_version_str}"
        ),
        arguments={"kernel": parts, "device": asdict(device)},
    )


def build(unit: BuildUnit) -> None:
    """Compile a unit into the library's cache unless it is there; what the compiler says is printed.

    Raises:
        RuntimeError: the compiler failed.
        what :func:`.pretended.install` raises.
    """
    from humming.kernel.humming import HummingKernel

    pretended.install(Device(**unit.arguments["device"]))
    HummingKernel.prepare(unbuilt(unit.arguments["kernel"]))


def joined(layer_config: Mapping[str, Any], compute: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the kernel object of a layer's configuration, a call's and a schedule."""
    parts = {key: value for key, value in layer_config.items() if key != "sublayer_name"} | {**compute, **config}
    parts.pop("num_sms", None)  # of the launch
    return parts


def unbuilt(arguments: Mapping[str, Any]) -> Any:
    """A kernel object of :func:`joined` arguments that has its source and is neither compiled nor loaded.

    The library's kernel checks its arguments here, and raises what it doesn't take.

    Through JSON: the library knows its objects by their arguments, and lists there are tuples elsewhere.
    """
    return _source_class()(**json.loads(json.dumps(arguments)))


@cache
def _source_class() -> type:
    from humming.kernel.humming import HummingKernel

    def nothing(_kernel: Any) -> None:
        """Stands in for compiling, and for loading."""

    return type("HummingSource", (HummingKernel,), {"prepare": nothing, "register_kernel": nothing})
