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
    """Hands out output tensors inside canary memory: one for each launch of a case, in order, and each again."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._memory: list[torch.Tensor] = []
        self._tensors: list[torch.Tensor] = []
        self._next = 0

    def allocate(self, rows: int, columns: int, output_format: str) -> torch.Tensor:
        """A (rows, columns) contiguous tensor of ``bf16`` or ``fp16``, full of the canary when it is new.

        Raises:
            ValueError: the launch is run :meth:`again` and asks for another shape or format than before.
        """
        launch, self._next = self._next, self._next + 1
        if launch < len(self._tensors):
            return self._given_before(launch, rows, columns, output_format)
        size = rows * columns
        memory = torch.full((size + 2 * _GUARD,), CANARY, dtype=torch.int16, device=self._device)
        tensor = memory[_GUARD : _GUARD + size].view(_DTYPES[output_format]).reshape(rows, columns)
        self._memory.append(memory)
        self._tensors.append(tensor)
        return tensor

    def again(self, launch: int) -> None:
        """Let the next :meth:`allocate` give the tensor of ``launch`` once more, as it is now."""
        self._next = launch

    def refill(self, launch: int) -> None:
        """Fill the tensor of ``launch`` and its guards with the canary."""
        self._memory[launch].fill_(CANARY)

    def _given_before(self, launch: int, rows: int, columns: int, output_format: str) -> torch.Tensor:
        tensor = self._tensors[launch]
        if tensor.shape != (rows, columns) or tensor.dtype != _DTYPES[output_format]:
            raise ValueError(
                f"launch {launch}: the adapter asked for a tensor of {tuple(tensor.shape)} {tensor.dtype} at first and "
                f"for one of {(rows, columns)} {output_format} when it was run again; a launch's output keeps its shape"
            )
        return tensor

    def codes(self, launch: int, output: Output, rows: int) -> tuple[NDArray[np.uint16], list[str]]:
        """The (rows, N) codes of the logical rows a launch wrote, and what it wrote elsewhere, as sentences.

        Raises:
            ValueError: the output is not the tensor of this launch, or doesn't map every logical row to one of
                its own.
        """
        if launch >= len(self._tensors) or not _same(output.tensor, self._tensors[launch]):
            raise ValueError(
                f"launch {launch}: the adapter returned another tensor than the one it was given for this launch; "
                "call buffer.allocate once in each run and return that tensor as it is"
            )
        whole = self._memory[launch].cpu().numpy().view(np.uint16)
        physical = whole[_GUARD:-_GUARD].reshape(output.tensor.shape)
        row_of = np.arange(rows) if output.row_of is None else np.asarray(output.row_of)
        if row_of.shape != (rows,) or len(np.unique(row_of)) != rows or not _within(row_of, len(physical)):
            raise ValueError(
                f"launch {launch}: the case has {rows} rows and the adapter's tensor {len(physical)}; "
                f"each must be mapped to a row of its own, not by {row_of.shape} numbers {row_of[:8]}…"
            )
        trouble = []
        before, behind = whole[:_GUARD] != CANARY, whole[-_GUARD:] != CANARY
        if before.any():
            nearest = _GUARD - np.flatnonzero(before)[-1]
            trouble.append(
                f"launch {launch}: {before.sum()} elements written before the output, nearest {nearest} away"
            )
        if behind.any():
            nearest = np.flatnonzero(behind)[0] + 1
            trouble.append(
                f"launch {launch}: {behind.sum()} elements written behind the output, nearest {nearest} away"
            )
        unowned = np.ones(len(physical), dtype=bool)
        unowned[row_of] = False
        touched = np.flatnonzero(unowned & (physical != CANARY).any(axis=1))
        if touched.size:
            trouble.append(
                f"launch {launch}: {touched.size} rows that belong to nobody were written, first {touched[0]}"
            )
        return physical[row_of], trouble


def _same(returned: object, given: torch.Tensor) -> bool:
    """Whether two tensors are the same elements in the same shape; a view of all is as good."""
    return (
        isinstance(returned, torch.Tensor)
        and (returned.data_ptr(), returned.dtype) == (given.data_ptr(), given.dtype)
        and (returned.shape, returned.stride()) == (given.shape, given.stride())
    )


def _within(row_of: NDArray[np.int64], rows: int) -> bool:
    return bool((row_of >= 0).all() and (row_of < rows).all())


def torch_device(kind: str) -> torch.device:
    """The torch device of a device kind; a kernel process sees one GPU only."""
    return torch.device("cuda", 0) if kind == "cuda" else torch.device("cpu")
