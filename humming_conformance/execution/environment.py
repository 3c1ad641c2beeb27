# SPDX-License-Identifier: Apache-2.0
"""The environment of a kernel process: only what is named here, so that a verdict depends on nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

#: Variables a kernel process inherits: where things are, how text is written, how to build, and which code
#: path the CPU libraries take.
INHERITED = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG", "LANGUAGE",
        "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CC", "CXX",
        "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "HUMMING_CONFORMANCE_STATE",
        "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX",
        "ATEN_CPU_CAPABILITY", "BLIS_ARCH_TYPE", "DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA",
        "GLIBC_TUNABLES", "NPY_DISABLE_CPU_FEATURES",
    }
)  # fmt: skip

#: Families of variables that are inherited whole.
INHERITED_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "OPENBLAS_", "NVPL_", "MKL_")

#: Set in every kernel process: one thread per numeric library, the same hashes each time, and no output held
#: back in a buffer that a crash would lose.
FIXED = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
}


def process_environment(
    python_path: Sequence[str], extra: Mapping[str, str], parent: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The whole environment of a kernel process.

    Args:
        python_path: folders searched before everything else, first one first.
        extra: variables of this process alone; they win over inherited and fixed ones.
        parent: what to inherit from; this process's environment by default.

    ``PYTHONPATH`` is ``python_path``, then the parent's own entries made absolute. An empty entry means the
    current folder and is dropped: what lies there by chance must not be imported.
    """
    parent = os.environ if parent is None else parent
    inherited = {
        name: value for name, value in parent.items() if name in INHERITED or name.startswith(INHERITED_PREFIXES)
    }
    folders = [*python_path, *parent.get("PYTHONPATH", "").split(os.pathsep)]
    search_path = os.pathsep.join(str(Path(folder).absolute()) for folder in folders if folder)
    return {**inherited, **FIXED, **extra, **({"PYTHONPATH": search_path} if search_path else {})}
