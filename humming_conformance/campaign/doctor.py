# SPDX-License-Identifier: Apache-2.0
"""What this machine can judge, and why not the rest."""

from __future__ import annotations

import importlib.metadata
import shutil
from collections.abc import Iterator

from humming_conformance.campaign.kernels import KernelReference, find_kernels
from humming_conformance.devices import detect_devices, gpu_problem, pretended_devices
from humming_conformance.execution import LibraryError, resolve_library, state_folder

_TOOLS = {
    "nvcc": "libraries that compile when first used need it, or libnvrtc",
    "compute-sanitizer": "memory checks",
    "cuobjdump": "static evidence",
}


def doctor_lines() -> list[str]:
    """Devices, kernels with their libraries, packages, tools and the state folder, one line each."""
    return [
        "devices",
        *_devices(),
        "kernels",
        *map(_kernel, find_kernels()),
        "packages",
        *map(_package, ("torch", "triton", "numpy", "ml_dtypes")),
        "tools",
        *(_tool(name, use) for name, use in _TOOLS.items()),
        f"state (locks, JIT caches): {state_folder()}",
    ]


def _devices() -> Iterator[str]:
    for device in detect_devices():
        detail = f"sm_{device.sm}, {device.memory / 2**30:.0f} GiB" if device.kind == "cuda" else device.kind
        yield f"  ok    {device.name}: {detail}"
    for name in dict.fromkeys(device.name for device in pretended_devices(detect_devices())):
        yield f"  ok    {name}: older code path, for kernels that have it"
    if gpu_problem():
        yield f"  none  GPU: {gpu_problem()}; mend: run on a machine with an NVIDIA GPU and driver"


def _kernel(reference: KernelReference) -> str:
    kernel = reference.kernel
    here = {device.kind for device in detect_devices()}
    kind = next((kind for kind in kernel.device_kinds if kind in here), None)
    problems = [] if kind else [f"needs {' or '.join(kernel.device_kinds)}; mend: run where one is"]
    build = "no library"
    if kernel.library is not None:
        library = kernel.library
        try:
            found = resolve_library(library.module, library.distribution, library.module, None)
            build = f"{library.distribution} {found.version} ({found.build_hash})"
        except LibraryError as error:
            build = f"{library.distribution} absent"
            problems.append(str(error))
    if problems:
        return f"  none  {kernel.name}: {build}; {'; '.join(problems)}"
    return f"  ok    {kernel.name}: {build}; on {kind}"


def _package(name: str) -> str:
    try:
        return f"  ok    {name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return f"  none  {name}; mend: pip install {name}"


def _tool(name: str, use: str) -> str:
    path = shutil.which(name)
    return f"  ok    {name} at {path}" if path else f"  none  {name} ({use})"
