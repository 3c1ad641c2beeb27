# SPDX-License-Identifier: Apache-2.0
"""The library sees an older device, once and for a whole process; the real library builds that device's code."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from humming_conformance.devices import Device
from humming_conformance.kernels.humming_lib import kernel, pretended
from humming_conformance.support import CannotJudge

H200 = Device("h200", "cuda", sm=90)
OLDER = {sm: Device(f"sm_{sm}_on_sm_90", "cuda", sm=sm, hardware_sm=90) for sm in (75, 80, 86, 89)}

#: A case of each path and what its kernel must hold: the tensor-core instructions of its SASS on sm_90.
BUILT = {
    75: ("dense-w_int4.g128.fp16-a_fp16-m16.n256.k512-readout", {"HMMA.1688.F32"}),
    80: ("dense-w_int4.g128.bf16-a_bf16-m16.n256.k512-readout", {"HMMA.16816.F32.BF16"}),
    86: ("moe_indexed-w_uint4.g32.bf16.zp-a_int8.token-m16.n256.k512.e8.top2-readout", {"IMMA.16832.S8.S8.SAT"}),
    89: ("dense-w_fp4_e2m1.g32.ue8m0-a_fp8_e4m3.token-m16.n256.k512-readout", {"HMMA.16816.F32"}),
}


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stand-ins for the modules that describe the device and compile, in a process that has served nothing yet."""
    device, runtime = ModuleType("humming.device"), ModuleType("humming.jit.runtime")
    parts: dict[str, Any] = {
        "_get_device_info_extension": lambda: None,
        "current_device": SimpleNamespace(_value=None),
        "DeviceInfo": type("DeviceInfo", (), {"_instances": {}}),
    }
    vars(device).update(parts)
    vars(runtime)["KernelRuntime"] = type("KernelRuntime", (), {"init_sm_version": lambda _kernel: None})
    for module in (ModuleType("humming"), ModuleType("humming.jit"), device, runtime):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(pretended, "_installed", [])
    return SimpleNamespace(device=device, runtime=runtime.KernelRuntime)


def test_the_library_sees_the_recorded_device(library: SimpleNamespace):
    """Every question is answered by the profile; kernels are of its generation, compiled for the GPU without "a"."""
    pretended.install(OLDER[86])
    seen = library.device._get_device_info_extension()._DeviceInfo(-1)
    assert (seen.name, seen.sm_version, seen.sm_major, seen.sm_minor) == ("NVIDIA A10", 86, 8, 6)
    assert (seen.sm_count, seen.max_smem_size, seen.max_smem_size_kb) == (72, 101376, 99)
    assert seen.tensorcore_tops["bfloat16"] > 0
    built = library.runtime()
    built.init_sm_version()
    assert (built.sm_version, built.sm_version_str) == (86, "90")


def test_a_process_serves_one_device(library: SimpleNamespace):
    """The same device again changes nothing; another one, pretended or real, is refused by its name."""
    pretended.install(OLDER[80])
    standing = library.device._get_device_info_extension
    pretended.install(OLDER[80])
    assert library.device._get_device_info_extension is standing
    for other in (OLDER[75], H200):
        with pytest.raises(pretended.PretendedDeviceError, match=f"{other.name} can't .* serves sm_80_on_sm_90"):
            pretended.install(other)


def test_a_real_device_is_left_alone(library: SimpleNamespace):
    """Nothing is replaced for it, and afterwards nothing can be."""
    before = library.device._get_device_info_extension
    pretended.install(H200)
    pretended.install(H200)
    assert library.device._get_device_info_extension is before
    with pytest.raises(pretended.PretendedDeviceError, match="serves the real device"):
        pretended.install(OLDER[80])


@pytest.mark.parametrize("through", ["current_device", "instances"])
def test_a_library_that_has_looked_is_refused(library: SimpleNamespace, through: str):
    """What was selected and cached for the real device would stay: install comes first or not at all."""
    if through == "current_device":
        library.device.current_device._value = object()
    else:
        library.device.DeviceInfo._instances[0] = object()
    with pytest.raises(pretended.PretendedDeviceError, match="has already seen this machine's GPU"):
        pretended.install(OLDER[80])


@pytest.mark.parametrize("missing", ["_get_device_info_extension", "init_sm_version"])
def test_a_release_that_describes_devices_otherwise_is_no_failure(library: SimpleNamespace, missing: str):
    """Then older paths can't be judged, and the reason names what is missing and which releases have it."""
    holder = library.runtime if missing == "init_sm_version" else library.device
    delattr(holder, missing)
    with pytest.raises(CannotJudge, match=rf"no {missing} to replace.*0\.1\.16 to 0\.1\.20"):
        pretended.install(OLDER[80])


def test_there_is_a_profile_for_each_older_path():
    """The adapter offers exactly the devices that it can pretend, each with a profile of its architecture."""
    assert kernel.older_paths == (75, 80, 86, 89)
    for sm, profile in pretended.PROFILES.items():
        assert pretended.library_properties(profile)["sm_version"] == sm


@pytest.mark.parametrize("sm", BUILT)
def test_the_real_library_builds_older_code(sm: int, build_environment: dict[str, str]):
    """Selection under the profile takes mma.sync, and nvcc builds its kernel, kSmVersion and all, for sm_90."""
    case, instructions = BUILT[sm]
    script = Path(__file__).with_name("build_older_path.py")
    command = [sys.executable, str(script), str(sm), case]
    done = subprocess.run(command, env=build_environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = json.loads(done.stdout.splitlines()[-1])
    assert (built["mma"], built["sm_version"]) == ("mma", sm)
    assert f"kSmVersion = {sm}u" in built["code"]
    assert any("sm_90" in word and "sm_90a" not in word for word in built["command"])
    if cuobjdump := _cuobjdump():
        sass = subprocess.run([cuobjdump, "-sass", built["cubin"]], capture_output=True, text=True, check=True).stdout
        assert "EF_CUDA_SM90" in sass
        assert set(re.findall(r"\b[HIQ]G?MMA[.\w]*", sass)) == instructions


def _cuobjdump() -> str | None:
    """NVIDIA's disassembler, from the path or from Triton's wheel."""
    spec = importlib.util.find_spec("triton")
    bundled = Path(spec.origin).parent / "backends/nvidia/bin/cuobjdump" if spec and spec.origin else None
    return shutil.which("cuobjdump") or (str(bundled) if bundled and bundled.exists() else None)
