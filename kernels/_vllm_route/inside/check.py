# SPDX-License-Identifier: Apache-2.0
# mypy: ignore-errors
"""Imports what vLLM's selection imports of Humming, in vLLM's environment; fails with what is missing.

vLLM takes a Humming that fails to import for one that isn't installed, and then chooses without it: an environment
that lacks one package of Humming's would give other answers, and no error.
"""

import torch  # noqa: F401  # as every process of vLLM does first
from vllm.platforms import current_platform
from vllm.utils import humming

if type(current_platform).__name__ != "RecordedPlatform":
    raise ImportError(f"vLLM chose {type(current_platform).__name__}, not the recorded platform")
for name in humming._EXPORTS:  # noqa: SLF001  # all that vLLM uses of Humming, by name
    getattr(humming, name)
