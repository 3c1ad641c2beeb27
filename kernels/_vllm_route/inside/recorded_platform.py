# SPDX-License-Identifier: Apache-2.0
"""vLLM's plugin for platforms: the recorded device, where the environment names one. Runs in vLLM's environment."""

import os


def register() -> str | None:
    """The platform's class, or None where vLLM is used for something else."""
    return "recorded_platform_class.RecordedPlatform" if "CONFORMANCE_SM" in os.environ else None
