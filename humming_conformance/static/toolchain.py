# SPDX-License-Identifier: Apache-2.0
"""Where the CUDA compiler and disassembler of this machine are: on PATH, in a toolkit, in installed wheels."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

#: The oldest nvcc that knows every architecture that is judged (sm_103, sm_110, sm_121).
MINIMUM_NVCC = (13, 0)


class ToolMissingError(RuntimeError):
    """A tool isn't here; the text says which and why it is needed, ``mend`` how to get it."""

    def __init__(self, text: str, mend: str) -> None:
        super().__init__(text)
        self.mend = mend


@dataclass(frozen=True)
class Toolchain:
    """Paths of nvcc and of the two readers of machine code, and nvcc's version."""

    nvcc: Path
    cuobjdump: Path
    nvdisasm: Path
    version: str


@cache
def find_toolchain() -> Toolchain:
    """The tools of this machine.

    Raises:
        ToolMissingError: one of them isn't here, or nvcc is too old.
    """
    nvcc = _find("nvcc", "compiles", "install CUDA 13 or newer and put its bin folder on PATH, or set CUDA_HOME")
    mend = "install CUDA's cuobjdump and nvdisasm, or triton, which brings both"
    readers = [_find(name, "reads machine code", mend) for name in ("cuobjdump", "nvdisasm")]
    told = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"release (\d+)\.(\d+), V([\d.]+)", told)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version < MINIMUM_NVCC:
        raise ToolMissingError(
            f"nvcc {nvcc} is of CUDA {version[0]}.{version[1]}, which doesn't know all architectures",
            "install CUDA 13 or newer and put its bin folder first on PATH",
        )
    return Toolchain(nvcc, readers[0], readers[1], found[3] if found else "")


def _find(name: str, what: str, mend: str) -> Path:
    for folder in _folders():
        if (path := folder / name).is_file() and os.access(path, os.X_OK):
            return path
    raise ToolMissingError(
        f"{name}, which {what}, is neither on PATH nor in a CUDA toolkit nor in an installed wheel", mend
    )


def _folders() -> Iterator[Path]:
    """Folders to search, the user's own choice first."""
    if home := os.environ.get("CUDA_HOME"):
        yield Path(home) / "bin"
    for name in ("nvcc", "cuobjdump", "nvdisasm"):
        if (found := shutil.which(name)) is not None:
            yield Path(found).parent
    yield Path("/usr/local/cuda/bin")
    for package, pattern in (("nvidia", "*/bin"), ("triton", "backends/nvidia/bin")):
        found_spec = importlib.util.find_spec(package)
        for folder in (found_spec and found_spec.submodule_search_locations) or ():
            yield from sorted(Path(folder).glob(pattern))
