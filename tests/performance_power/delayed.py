# SPDX-License-Identifier: Apache-2.0
"""Humming made slower by a known part of its time: a kernel that spins follows each launch, in the same graph."""

from __future__ import annotations

from typing import Any

from humming_conformance.devices import Device
from humming_conformance.kernels.humming_lib.adapter import HummingKernelAdapter
from humming_conformance.oracle.contract import Contract
from humming_conformance.problems import Case, Operands
from humming_conformance.protocols import Output, OutputBuffer, Route, Support

#: Cycles of the two delays that a delay's time is interpolated from.
_SHORT, _LONG = 1_000, 200_000


class _Buffer:
    """Output memory for calibration."""

    def allocate(self, rows: int, columns: int, output_format: str) -> Any:
        """A new tensor."""
        import torch

        dtype = torch.bfloat16 if output_format == "bf16" else torch.float16
        return torch.empty(rows, columns, dtype=dtype, device="cuda")


class Delayed:
    """The adapter of Humming, ``fraction`` slower; its state is (Humming's, cycles)."""

    def __init__(self, fraction: float) -> None:
        self._humming = HummingKernelAdapter()
        self._fraction = fraction
        self.name = f"humming_slower_by_{round(1000 * fraction)}"
        self.device_kinds = self._humming.device_kinds
        self.claims = self._humming.claims
        self.library = self._humming.library

    def support(self, case: Case, device: Device) -> Support:
        """As Humming's."""
        return self._humming.support(case, device)

    def prepare(self, case: Case, operands: Operands, device: Device) -> tuple[Any, int]:
        """Humming's state, and the cycles that make its launch longer by the fraction.

        A delay of c cycles takes a + b c seconds in a graph; a (a kernel node) and b come from two delays.
        """
        import torch

        from humming_conformance.measure.timing import CudaTimer, interleaved

        state = self._humming.prepare(case, operands, device)
        buffer, timer = _Buffer(), CudaTimer()
        launches = 20

        def launch(cycles: int) -> None:
            self._humming.run(state, 0, buffer)
            if cycles:
                torch.cuda._sleep(cycles)  # torch's own spinning kernel

        works = {str(cycles): timer.capture([lambda c=cycles: launch(c)] * launches) for cycles in (0, _SHORT, _LONG)}
        plain, short, long = (float(sorted(times)[2]) / launches for times in interleaved(timer, works, 5).values())
        seconds_a_cycle = (long - short) / (_LONG - _SHORT)
        cycles = _SHORT + (plain * (1 + self._fraction) - short) / seconds_a_cycle
        return state, max(round(cycles), 0)

    def run(self, state: tuple[Any, int], launch: int, buffer: OutputBuffer) -> Output:
        """Launch, and spin."""
        import torch

        output = self._humming.run(state[0], launch, buffer)
        if state[1]:
            torch.cuda._sleep(state[1])  # as above
        return output

    def route(self, state: tuple[Any, int]) -> Route:
        """As Humming's."""
        return self._humming.route(state[0])

    def contract(self, case: Case, route: Route) -> Contract:
        """As Humming's."""
        return self._humming.contract(case, route)


by_30 = Delayed(0.03)
by_50 = Delayed(0.05)
