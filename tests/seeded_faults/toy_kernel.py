# SPDX-License-Identifier: Apache-2.0
"""A kernel with a library of a few lines, into which the tests seed faults."""

from __future__ import annotations

from typing import Any

from humming_conformance.kernels.qdq import Qdq
from humming_conformance.protocols import Library, Output, OutputBuffer

#: ``toy_gemm/epilogue.py``.
EPILOGUE = '''\
STEP = 1


def finish(rows):
    """Leave all rows as they are."""
    first = rows.shape[0]
    rows[:first] *= STEP
'''


class Toy(Qdq):
    """QDQ on the CPU, whose results pass through the library. Wrong for N = 24, whatever the library does."""

    name = "toy"
    device_kinds: tuple[str, ...] = ("cpu",)
    library: Library | None = Library("toy-gemm", "toy_gemm")

    def run(self, state: Any, launch: int, buffer: OutputBuffer) -> Output:
        """The output of QDQ, after the library's epilogue."""
        from toy_gemm.epilogue import finish  # type: ignore[import-not-found]  # written by the tests

        output = super().run(state, launch, buffer)
        finish(output.tensor)
        if state.case.problem.n == 24:
            output.tensor[0, 0] = 1000.0
        return output


toy = Toy()
