# SPDX-License-Identifier: Apache-2.0
"""Launches by way of CUDA graphs and of concurrent streams: the call options ``graph`` and ``streams``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from humming_conformance.execution.guarded import GuardedOutput
from humming_conformance.problems import Case
from humming_conformance.protocols import Kernel, Output

Codes = NDArray[np.uint16]

#: How often each launch is run, or replayed, with its output brought back each time.
ROUNDS = 2
#: Launches in a row on each of several streams, so that more than their beginnings meet.
BURST = 4
#: bf16 matrix products (4096 x 4096 x 4096; 0.2 ms each on an H200) that hold streams back while work is queued.
_HOLDING_PRODUCTS, _HOLDING_SIZE = 16, 4096


@dataclass(frozen=True, eq=False)
class Launched:
    """What the launches of a case wrote.

    Attributes:
        output: (L, rows, N) codes; of several rounds the last.
        trouble: what was written outside the owned rows, as sentences.
        replayed: codes of the same shape from earlier replays of the same graphs.
        concurrent: codes of the same shape from launches beside those of ``output``.
    """

    output: Codes
    trouble: list[str]
    replayed: tuple[Codes, ...] = ()
    concurrent: tuple[Codes, ...] = ()


class Streams(Protocol):
    """Streams of a device, by number."""

    device: torch.device

    def run(self, stream: int, work: Callable[[], None]) -> None:
        """Let ``work`` queue what it launches on a stream."""

    def capture(self, stream: int, work: Callable[[], None]) -> Callable[[], None]:
        """Capture what ``work`` launches, without running it; returns what queues all of it on the current stream."""

    def hold(self) -> None:
        """Hold all streams back for a while, so that what is queued meanwhile starts together."""

    def synchronize(self) -> None:
        """Wait until everything queued is done."""


class CudaStreams:
    """:class:`Streams` of a CUDA device, none of them its default stream."""

    def __init__(self, count: int, device: torch.device) -> None:
        self.device = device
        self._gate, *self._streams = (
            torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's stub
            for _ in range(1 + count)
        )
        size = _HOLDING_SIZE if count > 1 else 0
        self._factor = torch.zeros(size, size, dtype=torch.bfloat16, device=device)
        self._product = torch.empty_like(self._factor)
        torch.cuda.synchronize()

    def run(self, stream: int, work: Callable[[], None]) -> None:
        with torch.cuda.stream(self._streams[stream]):
            work()

    def capture(self, stream: int, work: Callable[[], None]) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._streams[stream]):
            work()
        return graph.replay

    def hold(self) -> None:
        with torch.cuda.stream(self._gate):
            for _ in range(_HOLDING_PRODUCTS):
                torch.mm(self._factor, self._factor, out=self._product)
        opened = self._gate.record_event()
        for stream in self._streams:
            stream.wait_event(opened)

    def synchronize(self) -> None:
        torch.cuda.synchronize()


class _Lane:
    """One prepared state with a stream and output memory of its own."""

    def __init__(self, adapter: Kernel, state: Any, streams: Streams, number: int) -> None:
        self._adapter = adapter
        self._state = state
        self._streams = streams
        self._number = number
        self._buffer = GuardedOutput(streams.device)
        self._work: Callable[[], None] = self._run
        self._launch = 0
        self._output: Output | None = None

    def aim(self, launch: int, *, captured: bool) -> None:
        """Make ``launch`` the one to start.

        It is run once, because kernels compile, load and allocate on their first launch, and then captured where
        asked. An adapter may keep the inputs of its last launch alone: nothing else is launched in between.
        """
        self._launch = launch
        self._work = self._run
        self.start()
        self._streams.synchronize()
        if captured:
            self._work = self._streams.capture(self._number, self._run)

    def start(self) -> None:
        """Queue the launch on the lane's stream."""
        self._streams.run(self._number, self._work)

    def refill(self) -> None:
        """Forget what the launch wrote."""
        self._buffer.refill(self._launch)

    def codes(self, rows: int) -> tuple[Codes, list[str]]:
        """What the launch wrote, as :meth:`GuardedOutput.codes` says."""
        if self._output is None:
            raise RuntimeError("nothing was launched yet")
        written, trouble = self._buffer.codes(self._launch, self._output, rows)
        return written, [f"on stream {self._number}, {sentence}" for sentence in trouble]

    def _run(self) -> None:
        self._buffer.again(self._launch)
        self._output = self._adapter.run(self._state, self._launch, self._buffer)


def launch_on_streams(adapter: Kernel, states: Sequence[Any], case: Case, launches: int, streams: Streams) -> Launched:
    """Launch every state on a stream of its own, all at once, :data:`ROUNDS` times.

    Args:
        adapter: the kernel.
        states: one prepared state, or several that must not disturb one another.
        case: its call says whether launches are captured into graphs and replayed.
        launches: how many the case has (L); each is finished before the next begins.
        streams: as many as there are states.

    Output memory is filled anew before each round.
    """
    captured = "graph" in case.call
    lanes = [_Lane(adapter, state, streams, number) for number, state in enumerate(states)]
    found: list[list[list[Codes]]] = [[[] for _ in range(ROUNDS)] for _ in lanes]
    trouble = []
    for launch in range(launches):
        for lane in lanes:
            lane.aim(launch, captured=captured)
        for number in range(ROUNDS):
            for lane in lanes:
                lane.refill()
            streams.synchronize()
            if len(lanes) > 1:
                streams.hold()
            for lane in lanes * (BURST if len(lanes) > 1 else 1):
                lane.start()
            streams.synchronize()
            for lane, rounds in zip(lanes, found, strict=True):
                written, sentences = lane.codes(case.problem.rows)
                rounds[number].append(written)
                trouble += sentences
    (*earlier, output), *beside = [[np.stack(launched) for launched in rounds] for rounds in found]
    others = [codes for rounds in beside for codes in rounds]
    if not captured:
        return Launched(output, trouble, concurrent=(*earlier, *others))
    return Launched(output, trouble, replayed=tuple(earlier), concurrent=tuple(others))
