# SPDX-License-Identifier: Apache-2.0
"""Older devices that a newer GPU stands in for."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from humming_conformance.devices import Device, names_pretended_device, pretended_devices

H200 = Device("h200", "cuda", sm=90, index=1, uuid="GPU-a", memory=141 << 30)
H100 = Device("h100", "cuda", sm=90, uuid="GPU-b")
B200 = Device("b200", "cuda", sm=100, uuid="GPU-c")
CPU = Device("cpu", "cpu")


def test_an_sm_90_gpu_stands_in_for_four():
    """All but the architecture and the name is the GPU's own: its index, its UUID (the lease), its memory."""
    found = pretended_devices([H200, CPU])
    assert [(device.name, device.sm) for device in found] == [
        ("sm_75_on_sm_90", 75),
        ("sm_80_on_sm_90", 80),
        ("sm_86_on_sm_90", 86),
        ("sm_89_on_sm_90", 89),
    ]
    assert {(d.index, d.uuid, d.memory, d.hardware_sm, d.pretended) for d in found} == {
        (1, "GPU-a", 141 << 30, 90, True)
    }


def test_every_gpu_of_the_kind_offers_them():
    """Equal GPUs share the names, as they share their own; other GPUs and CPUs stand in for nothing."""
    found = pretended_devices([H200, B200, H100, CPU])
    assert [device.uuid for device in found] == ["GPU-a", "GPU-b"] * 4
    assert pretended_devices([B200, CPU]) == ()
    assert pretended_devices([Device("h200", "cuda", present=False, sm=90)]) == ()


def test_a_real_device_executes_its_own_code():
    """Without ``hardware_sm`` a device is its own hardware; a device travels to its process as a dictionary."""
    assert (H200.hardware_sm, H200.pretended, CPU.hardware_sm, CPU.pretended) == (90, False, 0, False)
    older = pretended_devices([H200])[1]
    assert Device(**asdict(older)) == older


@pytest.mark.parametrize(("name", "is_one"), [("sm_80_on_sm_90", True), ("h200", False), ("sm_80", False)])
def test_the_name_tells(name, is_one):
    """Reports know an older path by its name, on whichever machine it was judged."""
    assert names_pretended_device(name) == is_one
