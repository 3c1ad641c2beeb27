# SPDX-License-Identifier: Apache-2.0
"""The task of the numerics suite: rebuild a case's operands, run an adapter on them, bring back what it wrote."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from humming_conformance.devices import Device
from humming_conformance.execution.guarded import CANARY, GuardedOutput, torch_device
from humming_conformance.execution.lease import gpu_lease
from humming_conformance.problems import Case, Operands, build_operands, parse_case
from humming_conformance.protocols import Kernel


@cache
def _kernel(reference: str) -> Kernel:
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
        relations: also run what the contract declares: the same launch again (repeatable), and its first token alone
            (batch-invariant).

    Returns:
        ``output`` (L, rows, N) uint16 codes; ``digest`` of the operands; ``route`` and ``contract`` as dicts;
        ``unwritten``: elements of the owned rows never written; ``trouble``: writes outside the owned rows, as
        sentences; ``repeat`` and ``alone``: codes of the relations or
        None; ``seconds`` of prepare and run.
    """
    adapter = _kernel(kernel)
    judged = parse_case(case)
    place = Device(**device)
    operands = build_operands(judged)
    lease = gpu_lease(place.uuid, exclusive=False, timeout=lease_timeout) if place.kind == "cuda" else nullcontext()
    with lease:
        start = time.perf_counter()
        state = adapter.prepare(judged, operands, place)
        _synchronize(place)
        prepared = time.perf_counter()
        output, trouble = _launch_all(adapter, state, judged, place, operands.launches)
        ran = time.perf_counter()
        route = adapter.route(state)
        contract = adapter.contract(judged, route)
        repeat = alone = None
        if relations and contract.repeatable:
            repeat, more = _launch_all(adapter, state, judged, place, 1)
            trouble += [f"run again, {sentence}" for sentence in more]
        if relations and contract.batch_invariant and judged.problem.m > 1:
            alone, more = _first_token_alone(adapter, judged, operands, place)
            trouble += [f"first token alone, {sentence}" for sentence in more]
    return {
        "output": output,
        "digest": operands.digest(),
        "route": asdict(route),
        "contract": asdict(contract),
        "unwritten": int(np.count_nonzero(output == CANARY)),
        "trouble": trouble,
        "repeat": repeat,
        "alone": alone,
        "seconds": {"prepare": prepared - start, "run": ran - prepared},
    }


def _launch_all(
    adapter: Kernel, state: Any, case: Case, device: Device, launches: int
) -> tuple[NDArray[np.uint16], list[str]]:
    buffer = GuardedOutput(torch_device(device.kind))
    outputs = [adapter.run(state, launch, buffer) for launch in range(launches)]
    _synchronize(device)
    codes, trouble = [], []
    for launch, output in enumerate(outputs):
        written, found = buffer.codes(launch, output, case.problem.rows)
        codes.append(written)
        trouble += found
    return np.stack(codes), trouble


def _first_token_alone(
    adapter: Kernel, case: Case, operands: Operands, device: Device
) -> tuple[NDArray[np.uint16], list[str]]:
    """The first token of the first launch as a problem of one token: codes (1, top_k, N), and trouble."""
    scale = operands.activation_scale
    by_token = case.activation.granularity is not None and case.activation.granularity.kind != "tensor"
    small = replace(
        operands,
        activation=operands.activation[:1, :1],
        activation_scale=scale[:1, :1] if scale is not None and by_token else scale,
        expert=None if operands.expert is None else operands.expert[:1, :1],
    )
    single = replace(case, problem=replace(case.problem, m=1))
    return _launch_all(adapter, adapter.prepare(single, small, device), single, device, 1)


def _synchronize(device: Device) -> None:
    if device.kind == "cuda":
        torch.cuda.synchronize()
