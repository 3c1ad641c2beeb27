# SPDX-License-Identifier: Apache-2.0
# mypy: ignore-errors
"""vLLM's CUDA platform with the capability, name and memory of a recorded device. Runs in vLLM's environment."""

import os
import sys

# Functions of the stubbed libraries are bound when they are called, which is never.
sys.setdlopenflags(os.RTLD_LAZY)

from vllm.platforms.cuda import NonNvmlCudaPlatform  # noqa: E402
from vllm.platforms.interface import DeviceCapability  # noqa: E402

_SM = int(os.environ["CONFORMANCE_SM"])


class RecordedPlatform(NonNvmlCudaPlatform):
    """Answers for the device that isn't here."""

    @classmethod
    def get_device_capability(cls, device_id: int = 0) -> DeviceCapability:
        """The recorded capability."""
        return DeviceCapability(major=_SM // 10, minor=_SM % 10)

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        """The recorded name."""
        return os.environ["CONFORMANCE_PRODUCT"]

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        """What a large board has."""
        return 80 << 30

    @classmethod
    def is_fully_connected(cls, physical_device_ids: list[int]) -> bool:
        """One device is."""
        return True

    @classmethod
    def log_warnings(cls) -> None:
        """Nothing to warn of."""
