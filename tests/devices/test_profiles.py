# SPDX-License-Identifier: Apache-2.0
"""Recorded device profiles."""

from __future__ import annotations

import json

import pytest

from humming_conformance.devices import ProfileError, load_profile
from humming_conformance.devices.profiles import PROFILES, recorded_profiles

#: NVIDIA's tuning guides: shared memory of one block, KiB.
SHARED_MEMORY = {75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99}

#: Transfers for each cycle of the memory clock: GB10's driver gives the data rate itself.
TRANSFERS = {121: 1}

#: The devices that routing is judged on.
DEVICES = ["a10", "a100", "b200", "b300", "gb10", "h100", "h20", "h200", "l40s", "orin", "rtx5090", "t4", "thor"]


@pytest.mark.parametrize("name", sorted(path.stem for path in PROFILES.glob("*.json")))
def test_profiles_agree_with_themselves(name):
    """Bandwidth follows from clock and bus, the limits are the architecture's, and somebody answers for the numbers."""
    profile = load_profile(name)
    transfers = TRANSFERS.get(profile.sm, 2) * profile.memory_clock_khz * 1e3
    assert profile.memory_bandwidth_gbps == pytest.approx(transfers * profile.memory_bus_bits / 8e9)
    assert profile.max_shared_memory_per_block_bytes == SHARED_MEMORY[profile.sm] * 1024
    assert profile.max_shared_memory_per_block_bytes < profile.l1_cache_bytes < profile.l2_cache_bytes
    assert ("bfloat16" in profile.tensor_core_tops) == (profile.sm >= 80)
    assert ("float8e4m3" in profile.tensor_core_tops) == (profile.sm >= 89)
    assert ("float4e2m1" in profile.tensor_core_tops) == (profile.sm >= 100)
    assert profile.provenance


def test_every_architecture_is_recorded():
    """Thirteen devices, two or three of an architecture where they differ in more than their numbers."""
    assert recorded_profiles() == tuple(DEVICES)
    assert {load_profile(name).sm for name in DEVICES} == SHARED_MEMORY.keys()


def test_an_unknown_profile_is_named():
    """The text names what was asked for, what there is, and the nearest."""
    with pytest.raises(ProfileError, match=r"'a10o' is not recorded; there are a10, a100, .*, thor; did you mean a10"):
        load_profile("a10o")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"schema": 2}, "schema is 2; this version reads 1"),
        ({"sm_cuont": 40}, "sm_cuont missing or unknown"),
        (b"{", "no JSON"),
        (b"\xff", "no JSON"),
    ],
)
def test_a_damaged_profile_is_named(tmp_path, change, told):
    """Another schema, a misspelt field and a file that is no JSON are errors that name the file."""
    stored = json.loads((PROFILES / "t4.json").read_text())
    path = tmp_path / "t4.json"
    path.write_bytes(change if isinstance(change, bytes) else json.dumps(stored | change).encode())
    with pytest.raises(ProfileError, match=f"t4.json: .*{told}"):
        load_profile("t4", tmp_path)
