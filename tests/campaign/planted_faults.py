# SPDX-License-Identifier: Apache-2.0
"""QDQ with one more CUDA kernel behind each launch, which does something wrong that no output shows."""

from __future__ import annotations

from functools import cache

from humming_conformance.kernels.qdq import Qdq

#: Elements of the tensor that kernels read; 20 bytes, so guard pages leave 12 mapped behind it.
ELEMENTS = 5

_SOURCE = """
extern "C" __global__ void read_at(const int* memory, int index, int* sink) { sink[0] = memory[index]; }

extern "C" __global__ void exchange(int* sink) {
    __shared__ volatile int cell[64];
    cell[threadIdx.x] = threadIdx.x;
    // A barrier is missing: the other warp may not have written yet.
    sink[threadIdx.x] = cell[threadIdx.x ^ 32];
}
"""


@cache
def _compiled(name):
    import torch

    return torch.cuda._compile_kernel(_SOURCE, name)


def _integers(count):
    import torch

    return torch.zeros(count, dtype=torch.int32, device="cuda")


def _read(index):
    """Read one element of a tensor of :data:`ELEMENTS`, by an index of any sign."""
    _compiled("read_at")(args=[_integers(ELEMENTS), index, _integers(1)])


def _read_unwritten():
    import torch

    unwritten = torch.empty(ELEMENTS, dtype=torch.int32, device="cuda")
    _compiled("read_at")(args=[unwritten, 0, _integers(1)])


def _exchange():
    _compiled("exchange")(block=(64, 1, 1), args=[_integers(64)])


class Planted(Qdq):
    """QDQ by another name, with ``fault()`` behind each launch."""

    device_kinds = ("cuda",)

    def __init__(self, name, fault):
        self.name = name
        self.fault = fault

    def run(self, state, launch, buffer):
        """The output of QDQ, before the fault."""
        output = super().run(state, launch, buffer)
        self.fault()
        return output


nothing_wrong = Planted("nothing_wrong", lambda: _read(ELEMENTS - 1))
behind_the_end = Planted("behind_the_end", lambda: _read(8))  # byte 32: the first that is not mapped
in_the_slack = Planted("in_the_slack", lambda: _read(ELEMENTS))
before_the_start = Planted("before_the_start", lambda: _read(-1))
unwritten = Planted("unwritten", _read_unwritten)
race = Planted("race", _exchange)
