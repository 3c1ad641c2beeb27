# SPDX-License-Identifier: Apache-2.0
"""A wrong kernel for CUDA devices: every launch adds one more to its output than the launch before."""

import torch

from humming_conformance.kernels.torch_gemm import TorchGemm


class Counting(TorchGemm):
    """A plain GEMM with a counter on the device, which a captured launch counts up at every replay."""

    name = "counting"

    def prepare(self, case, operands, device):
        """The GEMM's state, and the counter."""
        return super().prepare(case, operands, device), torch.zeros(1, device="cuda")

    def run(self, state, launch, buffer):
        """The GEMM's output plus the number of launches."""
        gemm, count = state
        output = super().run(gemm, launch, buffer)
        count += 1
        output.tensor.add_(count)
        return output

    def route(self, state):
        """That of the GEMM."""
        return super().route(state[0])


kernel = Counting()
