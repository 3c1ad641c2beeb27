# SPDX-License-Identifier: Apache-2.0
"""Times of launches side by side: captured into graphs, replayed in turn, so that drift meets all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

#: A sample is as many replays as take so long (seconds): far above the resolution of events (0.5 us), and short
#: beside the seconds in which a GPU changes its clocks.
SAMPLE_SECONDS = 300e-6

Work = Callable[[], object]


class Timer(Protocol):
    """How launches are queued and timed on a device."""

    def capture(self, launches: Sequence[Work]) -> Work:
        """What queues all of these launches, one after the other, when it is called; each has run before."""

    def sample(self, work: Work, repeats: int) -> Callable[[], float]:
        """Queue ``work`` so often; what is returned waits for it and gives the seconds that it took on the device."""

    def synchronize(self) -> None:
        """Wait until everything queued is done."""


class CudaTimer:
    """:class:`Timer` of the CUDA device in use, by CUDA graphs and events."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's stub

    def capture(self, launches: Sequence[Work]) -> Work:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for launch in launches:  # kernels compile, load and allocate on their first launch
                launch()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._stream):
            for launch in launches:
                launch()
        return graph.replay

    def sample(self, work: Work, repeats: int) -> Callable[[], float]:
        begin, end = (
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch's stub
            for _ in range(2)
        )
        begin.record()
        for _ in range(repeats):
            work()
        end.record()

        def seconds() -> float:
            end.synchronize()
            return float(begin.elapsed_time(end)) / 1e3

        return seconds

    def synchronize(self) -> None:
        torch.cuda.synchronize()


class HostTimer:
    """:class:`Timer` where there is no GPU: launches run at once, and the clock is the host's."""

    def capture(self, launches: Sequence[Work]) -> Work:
        def run() -> None:
            for launch in launches:
                launch()

        run()
        return run

    def sample(self, work: Work, repeats: int) -> Callable[[], float]:
        started = time.perf_counter()
        for _ in range(repeats):
            work()
        seconds = time.perf_counter() - started
        return lambda: seconds

    def synchronize(self) -> None:
        """Nothing is queued."""


def repeats_of(timer: Timer, work: Work, sample_seconds: float = SAMPLE_SECONDS) -> int:
    """How many times ``work`` fills a sample, by a trial after one run to warm up."""
    timer.sample(work, 1)()
    seconds = timer.sample(work, 3)() / 3
    return max(1, round(sample_seconds / max(seconds, 1e-9)))


def interleaved(
    timer: Timer, works: Mapping[str, Work], cycles: int, sample_seconds: float = SAMPLE_SECONDS
) -> dict[str, NDArray[np.float64]]:
    """Seconds of one call of each work, by name: an array (cycles,).

    A cycle samples all of them in their order and then in the reverse order (A B B A), and takes the mean of the two
    samples: a drift that is linear over the cycle is the same for all, and leaves their ratios alone.

    Raises:
        ValueError: no cycle, or nothing to time.
    """
    if cycles < 1 or not works:
        raise ValueError(f"{cycles} cycles of {len(works)} works: at least one of each is needed")
    repeats = {name: repeats_of(timer, work, sample_seconds) for name, work in works.items()}
    names = list(works)
    seconds = {name: np.empty(cycles) for name in names}
    for cycle in range(cycles):
        pending = [(name, timer.sample(works[name], repeats[name])) for name in (*names, *reversed(names))]
        both: dict[str, list[float]] = {name: [] for name in names}
        for name, wait in pending:
            both[name].append(wait() / repeats[name])
        for name, pair in both.items():
            seconds[name][cycle] = np.mean(pair)
    return seconds


def host_seconds(work: Work, timer: Timer, calls: int = 20) -> float:
    """Seconds of host time for one call that queues ``work`` without a graph: the median of ``calls``."""
    work()
    timer.synchronize()
    spent = []
    for _ in range(calls):
        started = time.perf_counter()
        work()
        spent.append(time.perf_counter() - started)
    timer.synchronize()
    return float(np.median(spent))
