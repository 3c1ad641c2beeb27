# SPDX-License-Identifier: Apache-2.0
"""A kernel whose choices can be asked for, without any library: what it would run depends on M and the device alone."""

from __future__ import annotations

from dataclasses import replace

from humming_conformance.devices import DeviceProfile
from humming_conformance.kernels.torch_gemm import kernel as torch_gemm
from humming_conformance.protocols import Route
from humming_conformance.protocols_routing import Interval, Refusal, Selection


class Selector:
    """A tile of 64 rows up to M = 128, then of 128; refuses what no tensor core of the device multiplies."""

    profile: DeviceProfile

    def install_profile(self, profile):
        """Remember the device."""
        self.profile = profile

    def select(self, case, asked):
        """By M; a device of sm_75 has no bf16."""
        if self.profile.sm < 80:
            return Selection(None, Refusal("layer", "ValueError", "bf16 needs sm_80", "select.py:1 select", True))
        return Selection(_route(64 if case.problem.m <= 128 else 128))

    def compatible(self, case):
        """As it selects."""
        return self.profile.sm >= 80

    def intervals(self, case):
        """Two."""
        if self.profile.sm < 80:
            raise ValueError("bf16 needs sm_80")
        return (Interval(0, 128, _route(64)), Interval(128, 1 << 30, _route(128)))

    def shared(self, case):
        """Nothing."""
        return ""


def _route(rows):
    details = {
        "threads": 256,
        "shared_memory_bytes": 48_000,
        "blocks_per_sm": 1,
        "tuning_config": {"block_shape": [rows, 128, 64]},
    }
    return Route("mma", "mma", (rows, 128, 64), 4, details=details)


class SelectingKernel(type(torch_gemm)):
    """torch's matrix product by another name, with a selector."""

    name = "selecting"

    def selector(self):
        """One that has seen nothing."""
        return Selector()

    def support(self, case, device):
        """As the base, on any device of sm_80 and newer, present or not."""
        return replace(super().support(case, replace(device, present=True)))


kernel = SelectingKernel()
