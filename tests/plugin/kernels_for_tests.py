# SPDX-License-Identifier: Apache-2.0
"""Adapters for the tests of the plugin: QDQ, which is right, with one fault each on problems of two tokens."""

from __future__ import annotations

import ctypes
import os
import signal
import time

from humming_conformance.kernels.qdq import Qdq
from humming_conformance.protocols import Output


class OnTwoTokens(Qdq):
    """QDQ by another name; ``fault(output)`` happens behind its launches with two tokens."""

    device_kinds = ("cpu",)

    def __init__(self, name, fault=lambda output: output):
        self.name = name
        self.fault = fault

    def run(self, state, launch, buffer):
        """The output of QDQ, after the fault."""
        output = super().run(state, launch, buffer)
        return self.fault(output) if state.case.problem.m == 2 else output


class Unwritten(OnTwoTokens):
    """Launches nothing at all for two tokens."""

    def run(self, state, launch, buffer):
        """An output as it was allocated."""
        if state.case.problem.m != 2:
            return super().run(state, launch, buffer)
        return Output(buffer.allocate(2, state.case.problem.n, state.case.output))


class Undecided(OnTwoTokens):
    """Doesn't know what it supports."""

    def support(self, case, device):
        """Raises, which no adapter may."""
        raise LookupError(case.weight.element)


def _change_one_element(output):
    output.tensor[1, 3] = 1000.0
    return output


def _spill(output):
    """Write one element behind the output, as a kernel without a check of its tail would."""
    rows, columns = output.tensor.shape
    output.tensor.as_strided((1,), (1,), output.tensor.storage_offset() + rows * columns).fill_(0)
    return output


def _raise(_output):
    raise ArithmeticError("no configuration for this shape")


right = OnTwoTokens("right")
segfaults = OnTwoTokens("segfaults", lambda _output: ctypes.string_at(0))
aborts = OnTwoTokens("aborts", lambda _output: os.abort())
hangs = OnTwoTokens("hangs", lambda _output: time.sleep(3600))
raises = OnTwoTokens("raises", _raise)
swaps = OnTwoTokens("swaps", lambda output: Output(output.tensor.clone()))
kills_worker = OnTwoTokens("kills_worker", lambda _output: os.kill(os.getppid(), signal.SIGKILL) or time.sleep(3600))
wrong = OnTwoTokens("wrong", _change_one_element)
unwritten = Unwritten("unwritten")
undecided = Undecided("undecided")
spills = OnTwoTokens("spills", _spill)

lacking = object()
