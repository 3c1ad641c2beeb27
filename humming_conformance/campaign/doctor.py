# SPDX-License-Identifier: Apache-2.0
"""What this machine can judge, and why not the rest."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil

from humming_conformance.campaign.kernels import find_kernels
from humming_conformance.devices import detect_devices, gpu_problem
from humming_conformance.execution import LibraryError, resolve_library, state_folder

_TOOLS = {
    "nvcc": "libraries that compile when first used need it, or libnvrtc",
    "compute-sanitizer": "memory checks",
    "cuobjdump": "static evidence",
}


def doctor_lines() -> list[str]:
    """Devices, kernels with their libraries, tools and folders, one line each."""
    lines = ["devices"]
    for device in detect_devices():
        detail = f"sm_{device.sm}, {device.memory / 2**30:.0f} GiB" if device.kind == "cuda" else device.kind
        lines.append(f"  ok    {device.name}: {detail}")
    if gpu_problem():
        lines.append(f"  none  GPU: {gpu_problem()}; mend: run on a machine with an NVIDIA GPU and driver")
    lines.append("kernels")
    here = {device.kind for device in detect_devices()}
    for reference in find_kernels():
        kernel = reference.kernel
        kind = next((kind for kind in kernel.device_kinds if kind in here), None)
        problem = "" if kind else f"needs {' or '.join(kernel.device_kinds)}; mend: run where one is"
        build = "no library"
        if kernel.library is not None:
            library = kernel.library
            try:
                found = resolve_library(library.module, library.distribution, library.module, None)
                build = f"{library.distribution} {found.version} ({found.build_hash})"
            except LibraryError as error:
                build = f"{library.distribution} absent"
                problem = "; ".join(filter(None, [problem, str(error)]))
        state = "none" if problem else "ok  "
        lines.append(f"  {state}  {kernel.name}: {build}" + (f"; {problem}" if problem else f"; on {kind}"))
    lines.append("packages")
    for name in ("torch", "triton", "numpy", "ml_dtypes"):
        try:
            lines.append(f"  ok    {name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            lines.append(f"  none  {name}; mend: pip install {name}")
    lines.append("tools")
    for tool, use in _TOOLS.items():
        path = shutil.which(tool)
        lines.append(f"  ok    {tool} at {path}" if path else f"  none  {tool} ({use})")
    lines.append(f"state (locks, installed builds, JIT caches): {state_folder()}")
    return lines
