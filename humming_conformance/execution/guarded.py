# SPDX-License-Identifier: Apache-2.0
"""Output memory that notices: pre-filled, guarded on both sides, checked after the run."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from humming_conformance.protocols import Output

#: A NaN that no kernel computes: both 16-bit formats read it as a quiet NaN with an odd payload.
CANARY = 0x7FE5
#: Elements guarded on each side of an output; a multiple of every alignment kernels ask for.
_GUARD = 4096
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class GuardedOutput:
    """Hands out output tensors inside canary memory; one instance serves all launches of a case."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._memory: list[torch.Tensor] = []

    def allocate(self, rows: int, columns: int, output_format: str) -> torch.Tensor:
        """A (rows, columns) contiguous tensor of ``bf16`` or ``fp16``, full of the canary."""
        size = rows * columns
        memory = torch.full((size + 2 * _GUARD,), CANARY, dtype=torch.int16, device=self._device)
        self._memory.append(memory)
        return memory[_GUARD : _GUARD + size].view(_DTYPES[output_format]).reshape(rows, columns)

    def codes(self, launch: int, output: Output, rows: int) -> tuple[NDArray[np.uint16], list[str]]:
        """The (rows, N) codes of the logical rows a launch wrote, and what it wrote elsewhere, as sentences.

        Raises:
            ValueError: the output is not the tensor of this launch, or doesn't map every logical row.
        """
        memory = self._memory[launch]
        if output.tensor.data_ptr() != memory[_GUARD:].data_ptr():
            raise ValueError("the adapter returned another tensor than the one allocated for this launch")
        whole = memory.cpu().numpy().view(np.uint16)
        physical = whole[_GUARD : whole.size - _GUARD].reshape(output.tensor.shape)
        row_of = np.arange(rows) if output.row_of is None else np.asarray(output.row_of)
        if row_of.shape != (rows,) or len(np.unique(row_of)) != rows:
            raise ValueError(f"the adapter maps {row_of.shape} rows; the case has {rows}, each its own")
        trouble = []
        for side, guard in (("before", whole[:_GUARD]), ("behind", whole[-_GUARD:])):
            hit = np.flatnonzero(guard != CANARY)
            if hit.size:
                trouble.append(f"launch {launch}: {hit.size} elements written {side} the output, first at {hit[0]}")
        unowned = np.ones(len(physical), dtype=bool)
        unowned[row_of] = False
        touched = np.flatnonzero(unowned & (physical != CANARY).any(axis=1))
        if touched.size:
            trouble.append(
                f"launch {launch}: {touched.size} rows that belong to nobody were written, first {touched[0]}"
            )
        return physical[row_of], trouble


def torch_device(kind: str) -> torch.device:
    """The torch device of a device kind; a kernel process sees one GPU only."""
    return torch.device("cuda", 0) if kind == "cuda" else torch.device("cpu")
