# SPDX-License-Identifier: Apache-2.0
"""Call options: how a kernel is called, beside what it is given."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

#: Every call option and what it asks for. An id lists a case's options in alphabetical order.
CALL_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "batch_invariant": "the kernel is asked for bits of a row that depend on neither M nor other rows",
        "graph": "launches are captured into a CUDA graph, which is replayed twice",
        "streams": "the case is prepared twice, and both are launched at the same time on streams of their own",
    }
)

#: What the judge does itself, on CUDA devices only; the other options are the adapter's to fulfil.
CUDA_CALLS = frozenset({"graph", "streams"})
