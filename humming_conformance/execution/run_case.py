# SPDX-License-Identifier: Apache-2.0
"""The task of the numerics suite: rebuild a case's operands, run an adapter on them, bring back what it wrote."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from humming_conformance.devices import Device
from humming_conformance.execution.calls import CudaStreams, Launched, launch_on_streams
from humming_conformance.execution.guard_pages import guard_pages
from humming_conformance.execution.guarded import CANARY, GuardedOutput, torch_device
from humming_conformance.execution.lease import gpu_lease
from humming_conformance.problems import Case, Operands, build_operands, parse_case
from humming_conformance.problems.calls import CUDA_CALLS
from humming_conformance.protocols import Kernel
from humming_conformance.support import CannotJudge

#: How often the first launch is run again. Triton's interpreter runs programs one after another, and slowly.
REPEATS = {"cuda": 8, "cpu": 8, "cpu_interpreter": 1}


@cache
def load_adapter(reference: str) -> Kernel:
    """The adapter ``module:attribute``, once for this process."""
    module, _, attribute = reference.partition(":")
    kernel: Kernel = getattr(import_module(module), attribute)
    return kernel


def run_case(
    *, kernel: str, case: str, device: dict[str, Any], relations: bool, lease_timeout: float = 60.0
) -> dict[str, Any]:
    """Run one case through an adapter; called in a kernel process.

    Args:
        kernel: ``module:attribute`` of the adapter.
        case: case id.
        device: fields of the :class:`~humming_conformance.devices.Device`.
        relations: also run what the contract declares: the same launch again and again (repeatable), and its first
            token and the first half of its tokens alone (batch-invariant).

    Returns:
        ``output`` (L, rows, N) uint16 codes; ``digest`` of the operands; ``route`` and ``contract`` as dicts;
        ``unwritten``: elements of the owned rows never written; ``trouble``: writes outside the owned rows, as
        sentences; ``repeat``: codes (1, rows, N) of the first launch run again, of several the first that differ
        from it, or None; ``fewer``: codes (1, rows, N) of its first tokens alone, by number of tokens; ``replayed`` and
        ``concurrent``: see :class:`.calls.Launched`; ``guard_pages``: whether each CUDA tensor ended at an unmapped
        page; ``seconds`` of prepare and run.

    Raises:
        CannotJudge: the call needs a CUDA device, and this is none.
        BehindTheEndError: with guard pages, an access behind a tensor.
    """
    adapter = load_adapter(kernel)
    judged = parse_case(case)
    place = Device(**device)
    operands = build_operands(judged)
    lease = gpu_lease(place.uuid, exclusive=False, timeout=lease_timeout) if place.kind == "cuda" else nullcontext()
    if CUDA_CALLS.intersection(judged.call) and place.kind != "cuda":
        raise CannotJudge(f"{place.name} has neither CUDA graphs nor streams", "judge it on a CUDA device")
    with lease, guard_pages() as guarded:
        start = time.perf_counter()
        # States share nothing: a kernel's locks and workspaces serve one stream at a time.
        states = [adapter.prepare(judged, operands, place) for _ in range(2 if "streams" in judged.call else 1)]
        _synchronize(place)
        prepared = time.perf_counter()
        if CUDA_CALLS.intersection(judged.call):
            streams = CudaStreams(len(states), torch_device(place.kind))
            launched = launch_on_streams(adapter, states, judged, operands.launches, streams)
        else:
            launched = Launched(*_launch_all(adapter, states[0], judged, place, range(operands.launches)))
        ran = time.perf_counter()
        output, trouble = launched.output, launched.trouble
        route = adapter.route(states[0])
        contract = adapter.contract(judged, route)
        repeat, fewer = None, []
        if relations and contract.repeatable:
            repeats, more = _launch_all(adapter, states[0], judged, place, [0] * REPEATS[place.kind])
            repeat = next((codes for codes in repeats if (codes != output[0]).any()), repeats[-1])[None]
            trouble += [f"run again, {sentence}" for sentence in more]
        if relations and contract.batch_invariant:
            for tokens in sorted({1, -(-judged.problem.m // 2)} - {judged.problem.m}):
                codes, more = _first_tokens(adapter, judged, operands, place, tokens)
                fewer.append(codes)
                trouble += [f"first {tokens} tokens alone, {sentence}" for sentence in more]
    return {
        "output": output,
        "digest": operands.digest(),
        "route": asdict(route),
        "contract": asdict(contract),
        "unwritten": sum(
            int(np.count_nonzero(codes == CANARY)) for codes in (output, *launched.replayed, *launched.concurrent)
        ),
        "trouble": trouble,
        "repeat": repeat,
        "fewer": fewer,
        "replayed": launched.replayed,
        "concurrent": launched.concurrent,
        "guard_pages": guarded,
        "seconds": {"prepare": prepared - start, "run": ran - prepared},
    }


def _launch_all(
    adapter: Kernel, state: Any, case: Case, device: Device, launches: Sequence[int]
) -> tuple[NDArray[np.uint16], list[str]]:
    """Codes (len(launches), rows, N) of these launches, all queued before any is waited for, and trouble."""
    buffer = GuardedOutput(torch_device(device.kind))
    outputs = [adapter.run(state, launch, buffer) for launch in launches]
    _synchronize(device)
    codes, trouble = [], []
    for launch, output in enumerate(outputs):
        written, found = buffer.codes(launch, output, case.problem.rows)
        codes.append(written)
        trouble += found
    return np.stack(codes), trouble


def _first_tokens(
    adapter: Kernel, case: Case, operands: Operands, device: Device, tokens: int
) -> tuple[NDArray[np.uint16], list[str]]:
    """The first tokens of the first launch as a problem of their own: codes (1, tokens * top_k, N), and trouble."""
    scale = operands.activation_scale
    by_token = case.activation.granularity is not None and case.activation.granularity.kind != "tensor"
    few = replace(
        operands,
        activation=operands.activation[:1, :tokens],
        activation_scale=scale[:1, :tokens] if scale is not None and by_token else scale,
        expert=None if operands.expert is None else operands.expert[:1, :tokens],
    )
    smaller = replace(case, problem=replace(case.problem, m=tokens))
    return _launch_all(adapter, adapter.prepare(smaller, few, device), smaller, device, [0])


def _synchronize(device: Device) -> None:
    if device.kind == "cuda":
        torch.cuda.synchronize()
