# SPDX-License-Identifier: Apache-2.0
"""``lease_holder.py KEY shared|exclusive`` waits for a lease, says ``held``, keeps it till its input ends."""

from __future__ import annotations

import sys

from humming_conformance.execution import gpu_lease

with gpu_lease(sys.argv[1], exclusive=sys.argv[2] == "exclusive", timeout=None):
    sys.stdout.write("held\n")
    sys.stdout.flush()
    sys.stdin.read()
