# SPDX-License-Identifier: Apache-2.0
"""All seeded faults of humming-kernels, in the order of the table."""

from __future__ import annotations

from tests.seeded_faults.arithmetic_faults import ARITHMETIC_FAULTS
from tests.seeded_faults.host_faults import HOST_FAULTS
from tests.seeded_faults.memory_faults import MEMORY_FAULTS
from tests.seeded_faults.schedule_faults import SCHEDULE_FAULTS

FAULTS = (*MEMORY_FAULTS, *ARITHMETIC_FAULTS, *SCHEDULE_FAULTS, *HOST_FAULTS)
