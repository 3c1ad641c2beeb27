# SPDX-License-Identifier: Apache-2.0
"""Every model kernel as an adapter, by name: ``--kernel tests.wrong_kernels.adapters:unpromoted``."""

from __future__ import annotations

from tests.wrong_kernels.correct import CORRECT_KERNELS
from tests.wrong_kernels.faults import WRONG_KERNELS
from tests.wrong_kernels.kernels import Adapter

globals().update({kernel.name: Adapter(kernel) for kernel in (*WRONG_KERNELS, *CORRECT_KERNELS)})
