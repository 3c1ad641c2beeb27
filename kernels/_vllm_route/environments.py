# SPDX-License-Identifier: Apache-2.0
"""Environments that hold one vLLM each: what its selection code imports, and the torch of the running interpreter.

``requirements/VERSION.txt`` pins the packages. They are installed without their dependencies, which would bring a CUDA
build of torch. vLLM's compiled files load over stubs of the driver and of torch's CUDA libraries, whose functions are
bound when they are first called, and none is: selection only asks what they were compiled for. ``inside/check.py`` is
run before an environment counts as built.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import venv
from dataclasses import dataclass
from pathlib import Path

REQUIREMENTS = Path(__file__).parent / "requirements"
_INSIDE = Path(__file__).parent / "inside"
_PLATFORM = ("recorded_platform.py", "recorded_platform_class.py")
#: Answers the driver's questions about a device by the environment's variable; everything else is never asked.
_DRIVER = """
#include <stdlib.h>
#include <string.h>
static int sm(void) { const char *value = getenv("CONFORMANCE_SM"); return value ? atoi(value) : 0; }
int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int length, int device) { strncpy(name, "recorded", length); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? sm() / 10 : attribute == 76 ? sm() % 10 : attribute == 16 ? 132 : 0;
  return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)80 << 30; return 0; }
int cuGetProcAddress_v2(const char *name, void **address, int version, unsigned long long flags, void *status) {
  *address = 0;
  return 500;
}
"""


class EnvironmentMissingError(RuntimeError):
    """A vLLM can't be asked here; the text says why, ``mend`` what to do."""

    def __init__(self, text: str, mend: str) -> None:
        super().__init__(text)
        self.mend = mend


@dataclass(frozen=True)
class Environment:
    """A built environment: its version, its interpreter, and where its processes look for libraries first."""

    version: str
    python: Path
    libraries: tuple[Path, ...]

    def variables(self, sm: int, product: str) -> dict[str, str]:
        """What a process of it sees: a device of a compute capability (90) and a product's name, and no real one."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        return {
            **kept,
            "CUDA_VISIBLE_DEVICES": "",
            "LD_LIBRARY_PATH": ":".join(map(str, self.libraries)),
            "VLLM_PLUGINS": "recorded",
            "VLLM_NO_USAGE_STATS": "1",
            "HUMMING_DISABLE_PARALLEL_BUILD": "1",
            "CONFORMANCE_SM": str(sm),
            "CONFORMANCE_PRODUCT": product,
        }


def supported_versions() -> tuple[str, ...]:
    """The vLLM versions that have a requirements file, oldest first."""
    names = [path.stem for path in REQUIREMENTS.glob("*.txt")]
    return tuple(sorted(names, key=lambda name: tuple(map(int, name.split(".")))))


def default_versions() -> tuple[str, ...]:
    """The first and the last of them."""
    versions = supported_versions()
    return (versions[0], versions[-1])


def find_environment(version: str, root: Path) -> Environment:
    """The environment of a version among those below ``root``.

    Raises:
        EnvironmentMissingError: it isn't built, or not from the requirements of today.
    """
    folder = root / version
    if not (folder / "built.json").exists():
        raise EnvironmentMissingError(
            f"the environment of vLLM {version} isn't built", f"humming-conformance vllm build {version}"
        )
    stored = json.loads((folder / "built.json").read_text(encoding="utf-8"))
    if stored.get("contents") != _contents(version):
        raise EnvironmentMissingError(
            f"the environment of vLLM {version} was built from other requirements",
            f"humming-conformance vllm build {version}",
        )
    return Environment(version, folder / "bin" / "python", (folder / "stubs", Path(stored["cudart"])))


def build_environment(version: str, root: Path) -> Environment:
    """Build the environment of a version below ``root``, or find it built; takes about 40 s and 1.3 GB.

    Raises:
        EnvironmentMissingError: no such version, or a tool or package is missing; what was begun is removed.
    """
    requirements = REQUIREMENTS / f"{version}.txt"
    if not requirements.exists():
        raise EnvironmentMissingError(
            f"vLLM {version} has no requirements file", f"name one of {', '.join(supported_versions())}"
        )
    try:
        return find_environment(version, root)
    except EnvironmentMissingError:
        folder = root / version
    started = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)  # left by a build that was killed, or of other requirements
    try:
        cudart, shared = _cudart(), _shared_packages()
        venv.create(folder, with_pip=True)
        packages = next((folder / "lib").glob("python*")) / "site-packages"
        (packages / "shared.pth").write_text(f"{shared}\n", encoding="utf-8")
        _run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps", "-r", str(requirements)])
        _add_platform(packages)
        _add_stubs(folder / "stubs")
        made = Environment(version, folder / "bin" / "python", (folder / "stubs", cudart))
        _run([str(made.python), str(_INSIDE / "check.py")], made.variables(90, "NVIDIA H100"))
        built = {
            "seconds": round(time.monotonic() - started),
            "python": sys.version.split()[0],
            "cudart": str(cudart),
            "contents": _contents(version),
        }
        (folder / "built.tmp").write_text(json.dumps(built), encoding="utf-8")
        (folder / "built.tmp").replace(folder / "built.json")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return find_environment(version, root)


def _contents(version: str) -> str:
    """A digest of what an environment is made of: its requirements, and what is copied into it."""
    files = [REQUIREMENTS / f"{version}.txt", *(_INSIDE / name for name in _PLATFORM)]
    return hashlib.sha256(b"".join([*(file.read_bytes() for file in files), _DRIVER.encode()])).hexdigest()


def _add_platform(packages: Path) -> None:
    """Let vLLM find the recorded platform through its own entry point for platforms."""
    for name in _PLATFORM:
        shutil.copy(_INSIDE / name, packages / name)
    about = packages / "recorded_platform-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: recorded-platform\nVersion: 1\n", encoding="utf-8")
    points = "[vllm.platform_plugins]\nrecorded = recorded_platform:register\n"
    (about / "entry_points.txt").write_text(points, encoding="utf-8")


def _add_stubs(folder: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise EnvironmentMissingError("no C compiler is on PATH, and stubs are compiled", "install gcc")
    folder.mkdir()
    for name, source in (
        ("libcuda.so.1", _DRIVER),
        ("libtorch_cuda.so", "int torch_cuda_stub;"),
        ("libc10_cuda.so", "int c10_cuda_stub;"),
    ):
        file = folder / f"{name}.c"
        file.write_text(source, encoding="utf-8")
        _run([compiler, "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(folder / name), str(file)])


def _cudart() -> Path:
    """A folder that holds CUDA 13's runtime library."""
    candidates = [Path(home) / "lib64" for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if home]
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations if spec else None) or ():
        candidates += sorted(Path(root).glob("*/lib"))
    for folder in candidates:
        if (folder / "libcudart.so.13").exists():
            return folder
    raise EnvironmentMissingError("libcudart.so.13 isn't here", "install CUDA 13, or its runtime's wheel")


def _shared_packages() -> Path:
    """The folder that the running interpreter's torch lies in."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise EnvironmentMissingError("torch isn't installed", "install torch for the running interpreter")
    return Path(spec.origin).parents[1]


def _run(command: list[str], variables: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise EnvironmentMissingError(
            f"{Path(command[0]).name} failed ({done.returncode}): {said[-1] if said else 'no output'}",
            "see that pip can install the packages of the requirements file, and that the file names all of them",
        )
