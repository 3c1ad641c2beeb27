# SPDX-License-Identifier: Apache-2.0
"""The CUDA source of the kernel that Humming would run on a recorded device, and how its nvcc is called.

``NVCCCompiler._compile`` (jit/compiler.py) appends the instantiation to the source and calls nvcc with ``get_flags``;
the cubin that it then patches (csrc/patch_cubin.cpp) is not patched here. Releases 0.1.17 to 0.1.20.
"""

from __future__ import annotations

from typing import Any

from humming_conformance.protocols_routing import SourceCode


def source_code(kernel: Any) -> SourceCode:
    """The source of a kernel object that is neither compiled nor loaded (:func:`.build.unbuilt`)."""
    from humming.jit.compiler import NVCCCompiler

    flags = NVCCCompiler.get_flags(kernel.sm_version_str, kernel.disable_fast_math)
    includes = [flag for flag in flags if flag.startswith("-I")]
    return SourceCode(
        code=f"{kernel.code}\nauto ptr = reinterpret_cast<void*>(&{kernel.kernel_expr});\n",
        arguments=tuple(flag for flag in flags if flag not in includes),
        includes=tuple(flag.removeprefix("-I") for flag in includes),
    )
