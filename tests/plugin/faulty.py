# SPDX-License-Identifier: Apache-2.0
"""A kernel that the plugin's tests copy into their folder: right, but for the fault that a case's seed asks for."""

import os
import signal
import time
from enum import IntEnum
from pathlib import Path

from humming_conformance.kernels.torch_gemm import TorchGemm
from humming_conformance.protocols import Output
from humming_conformance.support import CannotJudge


class Fault(IntEnum):
    """What goes wrong for a case of this seed; all other seeds go well."""

    SEGFAULT = 101
    ABORT = 102
    HANG = 103
    RAISE = 104
    OTHER_TENSOR = 105
    WRONG = 106
    CANNOT_JUDGE = 107
    KILL_WORKER = 108
    INTERRUPT_ONCE = 109


def case_id(seed: int) -> str:
    """The id of the case with this seed: 2x16x32, bit-equal."""
    return f"dense-w_int8.channel.bf16-a_bf16-m2.n16.k32-exact_grid-s{int(seed)}"


class Faulty(TorchGemm):
    """Keeps a list of the cases it was given in ``launched.txt``."""

    name = "faulty"
    device_kinds = ("cpu",)

    def prepare(self, case, operands, device):
        with Path("launched.txt").open("a") as file:
            file.write(f"{case.id}\n")
        if case.seed == Fault.CANNOT_JUDGE:
            raise CannotJudge("this process has no such thing", "get one")
        return super().prepare(case, operands, device)

    def run(self, state, launch, buffer):
        output = super().run(state, launch, buffer)
        seed = state.case.seed
        if seed == Fault.SEGFAULT:
            os.kill(os.getpid(), signal.SIGSEGV)
        elif seed == Fault.ABORT:
            os.abort()
        elif seed == Fault.HANG:
            time.sleep(3600)
        elif seed == Fault.RAISE:
            raise RuntimeError("no schedule for this shape")
        elif seed == Fault.OTHER_TENSOR:
            return Output(output.tensor.clone())
        elif seed == Fault.WRONG:
            output.tensor[1, 3] += 1
        elif seed == Fault.KILL_WORKER:
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(3600)
        elif seed == Fault.INTERRUPT_ONCE and not Path("interrupted").exists():
            Path("interrupted").touch()
            os.kill(os.getppid(), signal.SIGINT)
            time.sleep(3600)
        return output


kernel = Faulty()
