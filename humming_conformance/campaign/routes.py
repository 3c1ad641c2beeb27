# SPDX-License-Identifier: Apache-2.0
"""Whole lists of what a library runs: recorded as a baseline, compared between releases, and shown for one case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from humming_conformance.campaign.judge import process_spec
from humming_conformance.campaign.kernels import KernelReference, find_kernels
from humming_conformance.campaign.on_profiles import claims_on, plan_on_profiles, recorded_devices
from humming_conformance.campaign.plan import PlanError, RunOptions, Task
from humming_conformance.devices import Device, load_profile, recorded_profiles
from humming_conformance.execution import KernelProcess
from humming_conformance.problems import Case
from humming_conformance.protocols import Kernel, Route
from humming_conformance.protocols_routing import Interval, Selection, Selects
from humming_conformance.store.routes import (
    LayerRoutes,
    RouteTable,
    changed_layers,
    layer_routes,
    read_routes,
    refused_layer,
    routes_path,
    write_routes,
)
from humming_conformance.verdicts.routing_evidence import describe

#: Seconds for the lists of one device.
TIME_LIMIT = 600.0
#: Our kernels in the order in which one would stand in for a library that refuses.
_FALLBACKS = ("triton_fused", "qdq", "torch_gemm")


def ask(process: KernelProcess, task: Task, asked: Sequence[tuple[str, Case]]) -> list[Any]:
    """What the library of a task says about cases on the task's device, as :func:`.select_cases.ask` answers."""
    reply = process.call(
        "humming_conformance.execution.select_cases:ask",
        timeout=TIME_LIMIT,
        kernel=task.kernel.reference,
        profile=asdict(load_profile(task.device.name)),
        questions=[(what, case.id) for what, case in asked],
    )
    answers: list[Any] = reply.value["answers"]
    return answers


def read_layer(answer: Any) -> LayerRoutes:
    """The answer to a question for ``intervals``."""
    if isinstance(answer, Mapping):
        return refused_layer(answer["refused"])
    return layer_routes([Interval(**(entry | {"route": _route(entry["route"])})) for entry in answer])


def route_tables(kernel: str, request: str | None, devices: Sequence[str] = ()) -> list[RouteTable]:
    """The lists of one library build for the layers of the routing suite, device by device.

    The layers are those of the gate's cases with M = 1.

    Raises:
        PlanError: an unknown device, a kernel that offers no selection, or a library that isn't here.
        LibraryError, KernelError: what they name can't be used.
        ExecutionError: the library's process failed.
    """
    tasks = _tasks(kernel, request, devices)
    layers = [task for task in tasks if task.case.problem.m == 1]
    tables = []
    with KernelProcess(_spec(tasks[0])) as process:
        for device in dict.fromkeys(task.device.name for task in layers):
            here = [task for task in layers if task.device.name == device]
            answers = ask(process, here[0], [("intervals", task.case) for task in here])
            found = {task.case.id: read_layer(answer) for task, answer in zip(here, answers, strict=True)}
            build = here[0].build
            name, version = here[0].subject.kernel, build.version if build else "unknown"
            tables.append(RouteTable(name, version, device, found))
    return tables


def record_routes(kernel: str, request: str | None, folder: Path, devices: Sequence[str] = ()) -> list[str]:
    """Accept what a library build does: write its routes below ``folder``; lines that say what changed.

    Raises:
        RoutesError: a file that is there can't be read.
        and what :func:`route_tables` raises.
    """
    lines = []
    for table in route_tables(kernel, request, devices):
        path = routes_path(folder, table.kernel, table.device)
        known = path.exists()
        changed = changed_layers(read_routes(path), table) if known else {name: ["+ new"] for name in table.layers}
        write_routes(path, table)
        lines += [f"{path}: {len(changed)} of {len(table.layers)} layers changed", *_listed(changed)]
    return lines


def compare_routes(kernel: str, folder: Path, request: str | None, devices: Sequence[str] = ()) -> list[str]:
    """How a library build differs from what was accepted; no lines where it doesn't.

    Raises:
        what :func:`record_routes` raises.
    """
    lines = []
    for table in route_tables(kernel, request, devices):
        accepted = read_routes(routes_path(folder, table.kernel, table.device))
        changed = changed_layers(accepted, table)
        if changed:
            lines += [f"{table.device}: {accepted.library} to {table.library}", *_listed(changed)]
    return lines


def diff_releases(kernel: str, first: str, second: str, devices: Sequence[str] = ()) -> list[str]:
    """How two library builds differ, device by device, and how many of the layers do.

    Raises:
        what :func:`route_tables` raises.
    """
    with ThreadPoolExecutor(2) as pool:
        before, after = pool.map(lambda request: route_tables(kernel, request, devices), (first, second))
    lines, count, total = [], 0, 0
    for old, new in zip(before, after, strict=True):
        changed = changed_layers(old, new)
        count, total = count + len(changed), total + len(new.layers)
        if changed:
            lines += [f"{old.device}: {len(changed)} of {len(new.layers)} layers", *_listed(changed)]
    releases = f"{before[0].library} to {after[0].library}"
    return [*lines, f"{kernel} {releases}: {count} of {total} layers differ on {len(before)} devices"]


def explain_route(case: Case, device_name: str, requests: Mapping[str, str]) -> tuple[list[str], bool]:
    """Which kernel serves a case on a recorded device, why the others don't, and which of ours would stand in.

    Raises:
        PlanError: no such device is recorded.
        LibraryError, KernelError, ExecutionError: as above.
    """
    device = _recorded(device_name)
    lines = [f"{case.id} on {device.name} (sm_{device.sm})"]
    served = []
    for reference in find_kernels():
        claim = claims_on(reference, case, device)
        name = reference.kernel.name
        answer = f"claims it{'' if claim.answer == 'yes' else f' not: {claim.reason}'}"
        if isinstance(reference.kernel, Selects):
            found = _selected(reference, case, device, requests)
            lines.append(f"  {name}: {answer}; {found[0]}")
            if found[1]:
                served.append(name)
            continue
        lines.append(f"  {name}: {answer}")
        if claim.answer == "yes":
            served.append(name)
    fallbacks = [name for name in _FALLBACKS if name in served]
    lines.append(f"served by {served[0]}" if served else "served by no kernel here")
    if fallbacks:
        lines.append(f"where a library refuses, {fallbacks[0]} would serve it")
    return lines, bool(served)


def _selected(reference: KernelReference, case: Case, device: Device, requests: Mapping[str, str]) -> tuple[str, bool]:
    """What the library says it would run, and whether it would."""
    options = RunOptions(
        kernels=(reference.kernel.name,), devices=(device.name,), cases=(case.id,), libraries=dict(requests)
    )
    task = plan_on_profiles(options, "routing", _offers)[0]
    if task.support.answer != "yes":
        return f"not asked: {task.support.reason} ({task.support.mend})", False
    with KernelProcess(_spec(task)) as process:
        selection = Selection.from_json(ask(process, task, [("production", case)])[0])
    version = task.build.version if task.build else ""
    return f"release {version}: {describe(selection)}", selection.refusal is None


def _tasks(kernel: str, request: str | None, devices: Sequence[str]) -> tuple[Task, ...]:
    for name in devices:
        _recorded(name)
    libraries = {} if request is None else {_module(kernel): request}
    options = RunOptions("gate", (kernel,), tuple(devices), libraries=libraries)
    tasks = plan_on_profiles(options, "routing", _offers)
    if not tasks:
        raise PlanError(f"kernel {kernel!r} can't be asked for its routes; name one with a selector, such as humming")
    if tasks[0].support.answer != "yes":
        raise PlanError(f"{tasks[0].support.reason}; {tasks[0].support.mend}")
    return tasks


def _module(kernel: str) -> str:
    library = find_kernels((kernel,))[0].kernel.library
    if library is None:
        raise PlanError(f"kernel {kernel!r} has no library, so no releases to compare; name one that has")
    return library.module


def _recorded(name: str) -> Device:
    found = recorded_devices((name,))
    if not found:
        raise PlanError(f"device {name!r} is not recorded; there are {', '.join(recorded_profiles())}")
    return found[0]


def _offers(kernel: Kernel) -> bool:
    return isinstance(kernel, Selects)


def _spec(task: Task) -> Any:
    return replace(process_spec(task, launches=False), name=f"{task.kernel.kernel.name} asked")


def _route(stored: Mapping[str, Any]) -> Route:
    tile = tuple(stored["tile"]) if stored["tile"] else None
    return Route(**{**stored, "tile": tile})


def _listed(changed: Mapping[str, Iterable[str]]) -> list[str]:
    return [line for layer, lines in changed.items() for line in (f"  {layer}", *(f"    {each}" for each in lines))]
