# SPDX-License-Identifier: Apache-2.0
"""Devices as NVML tells them, with an NVML that is made up."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from humming_conformance.devices import NO_GPU, describe_gpus, detect, detect_devices, gpu_problem

UUIDS = ("GPU-aaaa1111", "GPU-bbbb2222", "GPU-bbbb3333")


class NvmlError(Exception):
    """As NVML's."""


class Nvml(SimpleNamespace):
    """Three H200, until ``broken`` names the call that fails."""

    NVMLError = NvmlError
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    broken = ""

    def __getattribute__(self, name):
        if name.startswith("nvml") and name == super().__getattribute__("broken"):
            raise NvmlError("driver and library differ")
        return super().__getattribute__(name)


@pytest.fixture
def nvml(monkeypatch):
    """The made-up NVML in place of the real one, nothing remembered."""
    fake = Nvml(
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(UUIDS),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda handle: UUIDS[handle],
        nvmlDeviceGetName=lambda _handle: "NVIDIA H200",
        nvmlDeviceGetCudaComputeCapability=lambda _handle: (9, 0),
        nvmlDeviceGetMemoryInfo=lambda _handle: SimpleNamespace(total=141 << 30),
        nvmlSystemGetDriverVersion=lambda: "580.1",
        nvmlSystemGetCudaDriverVersion_v2=lambda: 13010,
        nvmlDeviceGetClockInfo=lambda _handle, clock: 1000 * clock,
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for remembered in (detect_devices, detect._gpus):
        remembered.cache_clear()
    yield fake
    for remembered in (detect_devices, detect._gpus):
        remembered.cache_clear()


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100_sxm4_80gb"),
        ("NVIDIA GeForce RTX 4090", "rtx_4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "rtx_4090_laptop"),
        ("Tesla T4", "t4"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx_6000_ada"),
        ("NVIDIA Graphics Device", "gpu"),
    ],
)
def test_device_names(product, name):
    """A device's name is its product's without the words that say nothing about the chip."""
    assert detect.device_name(product) == name


@pytest.mark.usefixtures("nvml")
def test_all_gpus_come_first():
    """Without CUDA_VISIBLE_DEVICES every GPU is there, in PCI order, with all that NVML says; CPUs come behind."""
    *gpus, cpu = [device for device in detect_devices() if device.kind != "cpu_interpreter"]
    assert [gpu.uuid for gpu in gpus] == list(UUIDS)
    assert [gpu.index for gpu in gpus] == [0, 1, 2]
    assert {(gpu.name, gpu.kind, gpu.sm, gpu.memory, gpu.present) for gpu in gpus} == {
        ("h200", "cuda", 90, 141 << 30, True)
    }
    assert (cpu.name, cpu.kind) == ("cpu", "cpu")
    assert gpu_problem() == ""


@pytest.mark.usefixtures("nvml")
@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        ("0", [0]),
        ("2,0", [0, 2]),
        (" 1 , 2 ", [1, 2]),
        ("GPU-bbbb2222", [1]),
        ("GPU-a", [0]),
        ("GPU-aaaa1111,2", [0, 2]),
        ("", []),
        ("-1", []),
        ("7", []),
        ("aaaa1111", []),
        ("GPU-bbbb", []),  # of two
        ("0,-1,1", [0]),  # CUDA stops at the first wrong word
    ],
)
def test_visible_gpus(monkeypatch, visible, indices):
    """CUDA_VISIBLE_DEVICES picks by index or by (the start of) a UUID; where it leaves none, the reason names it."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [device.index for device in detect_devices() if device.kind == "cuda"] == indices
    assert ("CUDA_VISIBLE_DEVICES" in gpu_problem()) == (not indices)


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetMemoryInfo"])
def test_a_broken_driver(nvml, call):
    """A driver that fails at any call means no GPU, with NVML's own words as the reason."""
    nvml.broken = call
    assert [device for device in detect_devices() if device.kind == "cuda"] == []
    assert "driver and library differ" in gpu_problem()
    if call == "nvmlInit":
        assert describe_gpus() == []


def test_no_gpu_in_the_machine(nvml):
    """A driver without GPUs is no error, and the reason blames no variable."""
    nvml.nvmlDeviceGetCount = lambda: 0
    assert "no GPU" in gpu_problem()
    assert "CUDA_VISIBLE_DEVICES" not in gpu_problem()
    assert not NO_GPU.present
    assert NO_GPU.kind == "cuda"


@pytest.mark.usefixtures("nvml")
def test_what_the_ledger_says_about_gpus(monkeypatch):
    """Driver, CUDA version and clocks of the visible GPUs."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert describe_gpus() == [
        {
            "name": "h200",
            "driver": "580.1",
            "cuda": "13.1",
            "sm": 90,
            "clocks": {"sm_mhz": 1000, "memory_mhz": 2000},
        }
    ]
