# SPDX-License-Identifier: Apache-2.0
"""One round of a campaign: every case timed beside its anchors, once, in this process, with the GPU held alone."""

from __future__ import annotations

import copy
import gc
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch

from humming_conformance.devices import Device
from humming_conformance.execution.guarded import torch_device
from humming_conformance.execution.lease import gpu_lease
from humming_conformance.execution.run_case import load_adapter
from humming_conformance.measure.clocks import Meter, NvmlMeter, Reading, disturbances
from humming_conformance.measure.roofs import measure_roofs
from humming_conformance.measure.timing import CudaTimer, HostTimer, Timer, Work, host_seconds, interleaved
from humming_conformance.measure.work import work_of
from humming_conformance.problems import Case, Operands, build_operands, parse_case
from humming_conformance.problems.torch_arrays import TorchArrays, to_numpy
from humming_conformance.protocols import Kernel, Output

#: Cycles of a case in a round.
CYCLES = 10
#: Operand sets rotate through so many times the L2 cache, so that a launch finds nothing of its own there.
COLD_FACTOR = 2.0
#: Of small operands no more sets than this, and of any at least two.
MOST_SETS = 48
#: How far an output may be from QDQ's, in norm: both round their weights to 16 bits. A check that the timed kernel did
#: its work, not one of its precision.
FAR_OFF = 0.05
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class PlainOutput:
    """Output memory without guards: the same tensor for every launch."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._tensor: torch.Tensor | None = None

    def allocate(self, rows: int, columns: int, output_format: str) -> torch.Tensor:
        """A (rows, columns) tensor, zero when it is new."""
        if self._tensor is None:
            self._tensor = torch.zeros(rows, columns, dtype=_DTYPES[output_format], device=self._device)
        return self._tensor


@dataclass
class Prepared:
    """Operand sets of one kernel on one case, each with an output of its own."""

    adapter: Kernel
    states: list[Any]
    buffers: list[PlainOutput]
    outputs: list[Output | None]

    def launches(self) -> list[Work]:
        """One launch for each operand set."""

        def launch(number: int) -> Work:
            def run() -> None:
                self.outputs[number] = self.adapter.run(self.states[number], 0, self.buffers[number])

            return run

        return [launch(number) for number in range(len(self.states))]

    def values(self, number: int, rows: int) -> torch.Tensor:
        """The (rows, N) logical rows that set ``number`` wrote, fp32."""
        output = self.outputs[number]
        if output is None:
            raise RuntimeError("nothing was launched yet")
        tensor: torch.Tensor = output.tensor
        if output.row_of is not None:
            tensor = tensor[torch.from_numpy(np.asarray(output.row_of)).to(tensor.device)]
        return tensor[:rows].float()


@dataclass(frozen=True)
class Bench:
    """Where and how a round measures.

    Attributes:
        place: the device.
        timer, meter: of that device; no meter without a GPU.
        cycles: of A B B A, see :func:`.timing.interleaved`.
        cold: whether operand sets rotate; else the same set is launched again and again.
    """

    place: Device
    timer: Timer
    meter: Meter | None
    cycles: int
    cold: bool

    @classmethod
    def on(cls, place: Device, cycles: int, *, cold: bool) -> Bench:
        """The bench of a device of this process."""
        if place.kind == "cuda":
            return cls(place, CudaTimer(), NvmlMeter(place.uuid), cycles, cold)
        return cls(place, HostTimer(), None, cycles, cold)

    def read(self) -> list[Reading]:
        """The state of the GPU, if there is one."""
        return [self.meter.read()] if self.meter else []


def measure_round(
    *,
    subjects: Sequence[Mapping[str, str]],
    anchors: Mapping[str, str],
    device: dict[str, Any],
    seconds: float,
    cycles: int = CYCLES,
    cold: bool = True,
    lease_timeout: float = 600.0,
) -> dict[str, Any]:
    """Time each subject beside its anchors; called in a fresh kernel process.

    Args:
        subjects: ``kernel`` (``module:attribute``) and ``case`` of each, in the order in which they are timed.
        anchors: adapters timed on the same case, by name, where they claim it; ``gemm`` (a 16-bit product of the same
            rows, N and K) and ``copy`` (a device copy that moves the same bytes) are always there.
        device: fields of the :class:`~humming_conformance.devices.Device`.
        seconds: after which, once the GPU is held, no subject is begun.
        cycles: of A B B A, see :func:`.timing.interleaved`.
        cold: whether operand sets rotate; else the same set is launched again and again.
        lease_timeout: seconds to wait until the GPU can be held alone.

    Returns:
        ``roofs`` (fields of :class:`.roofs.Roofs`) and ``measured``: for each subject that was begun ``kernel``,
        ``case`` and either ``error``, a sentence, or ``seconds`` by name (the kernel's own is ``kernel``; a list with
        a value for each cycle), ``host_seconds``, ``prepare_seconds``, ``sets``, ``bytes`` and ``operations`` of
        :func:`.work.work_of`, ``route``, ``wrong`` (why the output isn't right, or empty), ``disturbances``,
        ``readings``.
    """
    place = Device(**device)
    _import_libraries({*(subject["kernel"] for subject in subjects), *anchors.values()})
    measured = []
    with gpu_lease(place.uuid or place.name, exclusive=True, timeout=lease_timeout):
        deadline = time.monotonic() + seconds
        bench = Bench.on(place, cycles, cold=cold)
        small = {} if place.kind == "cuda" else {"buffer_bytes": 1 << 16, "size": 16}
        roofs = measure_roofs(bench.timer, torch_device(place.kind), **small)
        for subject in subjects:
            if time.monotonic() >= deadline:
                break
            try:
                found = measure(subject, anchors, bench)
            except torch.cuda.OutOfMemoryError as error:
                found = {"error": f"device memory ran out: {error}"}
            except Exception as error:  # noqa: BLE001  # costs this subject its round, not the others
                found = {"error": f"{type(error).__name__}: {error}"}
            measured.append({**subject, **found})
            gc.collect()
            if place.kind == "cuda":
                torch.cuda.empty_cache()
    return {"roofs": asdict(roofs), "measured": measured}


def _import_libraries(references: Iterable[str]) -> None:
    """Import what adapters will need, so that nobody waits for it with the GPU held."""
    for reference in references:
        library = load_adapter(reference).library
        if library is not None:
            import_module(library.module)


def measure(subject: Mapping[str, str], anchors: Mapping[str, str], bench: Bench) -> dict[str, Any]:
    """What :func:`measure_round` returns of one subject."""
    case, place, timer = parse_case(subject["case"]), bench.place, bench.timer
    device = torch_device(place.kind)
    started = time.monotonic()
    operands = to_numpy(build_operands(case, TorchArrays(str(device))))
    prepared = prepare(load_adapter(subject["kernel"]), case, operands, bench)
    prepare_seconds = time.monotonic() - started
    others = {
        name: prepare(load_adapter(reference), case, operands, bench)
        for name, reference in anchors.items()
        if load_adapter(reference).support(case, place).answer == "yes"
    }
    work = work_of(case)
    launches = {"kernel": prepared.launches(), **{name: other.launches() for name, other in others.items()}}
    launches["gemm"] = _gemm(case, device, cold=bench.cold)
    launches["copy"] = _copy(work.bytes, device, cold=bench.cold)
    host = host_seconds(launches["kernel"][0], timer)
    captured = {name: timer.capture(each) for name, each in launches.items()}
    before = [prepared.values(number, case.problem.rows) for number in range(len(prepared.states))]
    readings = bench.read()
    seconds = interleaved(timer, captured, bench.cycles)
    readings += bench.read()
    return {
        "seconds": {name: list(times / len(launches[name])) for name, times in seconds.items()},
        "host_seconds": host,
        "prepare_seconds": prepare_seconds,
        "sets": len(prepared.states),
        "bytes": work.bytes,
        "operations": work.operations,
        "route": asdict(prepared.adapter.route(prepared.states[0])),
        "wrong": _wrong(prepared, before, others.get("qdq"), case.problem.rows),
        "disturbances": disturbances(readings),
        "readings": [asdict(reading) for reading in readings],
    }


def prepare(adapter: Kernel, case: Case, operands: Operands, bench: Bench) -> Prepared:
    """Prepare a case, as often as its operands must rotate to be cold: once, and then copies of all tensors."""
    device = torch_device(bench.place.kind)
    held = torch.cuda.memory_allocated() if device.type == "cuda" else 0
    state = adapter.prepare(case, operands, bench.place)
    size = torch.cuda.memory_allocated() - held if device.type == "cuda" else 0
    sets = sets_of(max(size, work_of(case).weight_bytes), device) if bench.cold else 1
    states = [state, *(copy.deepcopy(state) for _ in range(sets - 1))]
    buffers = [PlainOutput(device) for _ in states]
    return Prepared(adapter, states, buffers, [None] * len(states))


def sets_of(size: int, device: torch.device) -> int:
    """How many operand sets of ``size`` bytes rotate through :data:`COLD_FACTOR` times the device's L2 cache."""
    if device.type != "cuda":
        return 2
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    return min(max(2, math.ceil(COLD_FACTOR * cache / max(size, 1))), MOST_SETS)


def _gemm(case: Case, device: torch.device, *, cold: bool) -> list[Work]:
    """Plain products of random 16-bit operands: all rows of the case with one weight matrix."""
    problem, dtype = case.problem, _DTYPES[case.output]
    sets = sets_of(2 * problem.n * problem.k, device) if cold else 1
    generator = torch.Generator(device).manual_seed(0)

    def random(rows: int) -> torch.Tensor:
        return torch.randn(rows, problem.k, device=device, generator=generator).to(dtype)

    def launch() -> Work:
        activation, weight = random(problem.rows), random(problem.n)
        output = torch.empty(problem.rows, problem.n, dtype=dtype, device=device)
        return partial(torch.mm, activation, weight.T, out=output)

    return [launch() for _ in range(sets)]


def _copy(size: int, device: torch.device, *, cold: bool) -> list[Work]:
    """Copies that read half of ``size`` bytes and write the other half."""
    sets = sets_of(size, device) if cold else 1
    pairs = [torch.zeros(2, max(size // 2, 1), dtype=torch.uint8, device=device) for _ in range(sets)]
    return [partial(pair[1].copy_, pair[0]) for pair in pairs]


def _wrong(prepared: Prepared, before: Sequence[torch.Tensor], qdq: Prepared | None, rows: int) -> str:
    """Why the timed kernel's outputs aren't those of its work; empty where they are."""
    for number, first in enumerate(before):
        after = prepared.values(number, rows)
        if not torch.isfinite(after).all():
            return f"operand set {number}: the output is not finite after timing"
        norm = float(torch.linalg.vector_norm(first))
        if float(torch.linalg.vector_norm(after - first)) > FAR_OFF * norm:
            return f"operand set {number}: the output after timing is another than before"
        if float(torch.linalg.vector_norm(first - before[0])) > FAR_OFF * norm:
            return f"operand set {number}: equal operands gave another output than set 0"
    if qdq is None:
        return ""
    reference = qdq.values(0, rows)
    off = float(torch.linalg.vector_norm(before[0] - reference) / torch.linalg.vector_norm(reference))
    return f"the output is {off:.2g} off QDQ's, in norm" if off > FAR_OFF else ""
