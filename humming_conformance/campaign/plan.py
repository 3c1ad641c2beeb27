# SPDX-License-Identifier: Apache-2.0
"""The plan: every subject of a run and whether it can be judged here, made from data alone (no CUDA, no library)."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from humming_conformance.campaign.kernels import KernelError, KernelReference, find_kernels
from humming_conformance.devices import (
    NO_GPU,
    Device,
    detect_devices,
    gpu_problem,
    names_pretended_device,
    pretended_devices,
)
from humming_conformance.execution import LibraryBuild, LibraryError, resolve_library
from humming_conformance.problems import Case, parse_case
from humming_conformance.problems.tiers import TIERS, load_tier
from humming_conformance.protocols import Subject, Support


class PlanError(ValueError):
    """An option of the run can't be used; the text names it, the rule and the mend."""


@dataclass(frozen=True)
class RunOptions:
    """What a run is asked for.

    Attributes:
        tier: which committed lists of cases.
        kernels: names or references; empty for all.
        devices: names of devices to judge on; empty for the best one that each kernel can use here and, one tier
            lower, the kernel's older code paths that a GPU here executes.
        cases: ids to judge instead of the tier's; on older paths only where ``devices`` names them.
        libraries: library name → version, wheel or folder.
    """

    tier: str = "gate"
    kernels: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    libraries: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """One subject of the plan."""

    subject: Subject
    case: Case
    kernel: KernelReference
    device: Device
    support: Support
    build: LibraryBuild | None = None
    #: The request that ``build`` answers, as ``--library`` was given it; empty for the installed build.
    request: str = ""


def make_plan(options: RunOptions, suite: str = "numerics") -> tuple[Task, ...]:
    """Every subject of a suite that runs here, kernel by kernel and device by device, in tier order.

    Raises:
        PlanError: unknown device or library name, or nothing to judge.
        TierError, KernelError, CaseIdError, LibraryError: what they name can't be used.
    """
    references = find_kernels(options.kernels)
    check_libraries(options.libraries, references)
    devices = _chosen_devices(options.devices)
    names = [reference.kernel.name for reference in references]
    listed = {name: load_tier(options.tier, name, suite) for name in names}
    given = [parse_case(case_id, chain(*listed.values())) for case_id in dict.fromkeys(options.cases)]
    plan: list[Task] = []
    for reference in references:
        build, missing = library_of(reference, options.libraries)
        library = reference.kernel.library
        request = options.libraries.get(library.module, "") if library else ""
        for device, tier in _places(reference, devices, options):
            for case in given or map(parse_case, load_tier(tier, reference.kernel.name, suite)):
                support = _support(reference, case, device, missing)
                subject = Subject(reference.kernel.name, case.id, device.name)
                plan.append(Task(subject, case, reference, device, support, build, request))
    if not plan:
        here = ", ".join(dict.fromkeys(device.name for device in devices))
        kinds = dict.fromkeys(chain(*(reference.kernel.device_kinds for reference in references)))
        older = any(device.pretended for device in devices)
        raise PlanError(
            f"nothing to judge: {', '.join(names)} can't run on {here}; needed is a device of the kind "
            f"{' or '.join(kinds)}{', or a kernel with these older_paths' if older else ''}"
        )
    return tuple(plan)


def _support(reference: KernelReference, case: Case, device: Device, missing: Support | None) -> Support:
    """The adapter's answer, and all that is missing here where it claims the case."""
    try:
        support = reference.kernel.support(case, device)
    except Exception as error:
        raise KernelError(
            f"kernel {reference.reference!r}: support() raised {type(error).__name__} on {case.id}: {error}; it "
            "answers from the claims alone and never raises"
        ) from error
    if not isinstance(support, Support):
        raise KernelError(f"kernel {reference.reference!r}: support() returned {support!r}, which is no Support")
    if support.answer == "absent" and device is NO_GPU and gpu_problem():
        support = replace(support, reason=f"{support.reason} ({gpu_problem()})")
    if missing is None or support.answer == "no":
        return support
    if support.answer == "yes":
        return missing
    return Support("absent", f"{support.reason}; {missing.reason}", f"{support.mend}; {missing.mend}")


def _chosen_devices(names: tuple[str, ...]) -> tuple[Device, ...]:
    real = detect_devices()
    devices = (*real, *pretended_devices(real))
    found = {device.name: device for device in devices}
    for name in names:
        if name not in found:
            near = difflib.get_close_matches(name, found, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            if names_pretended_device(name):
                hint = "; older paths are judged on an sm_90 GPU"
            raise PlanError(f"device {name!r} is not here; this machine has {', '.join(found)}{hint}")
    return tuple(device for device in devices if not names or device.name in names)


def _places(
    reference: KernelReference, devices: tuple[Device, ...], options: RunOptions
) -> Iterator[tuple[Device, str]]:
    """Where a kernel is judged, and by which tier's list.

    The first of the devices that is of a kind the kernel prefers; where there is none, the GPU that the machine lacks
    stands for it, unless the user chose among the devices. Then the kernel's older paths: chosen ones by the tier that
    was asked for, else by the tier below, of which ``smoke`` has none.
    """
    kernel = reference.kernel
    real = [
        device for kind in kernel.device_kinds for device in devices if device.kind == kind and not device.pretended
    ]
    if not real and "cuda" in kernel.device_kinds and not options.devices:
        real = [NO_GPU]
    for device in real[:1]:
        yield device, options.tier
    tiers = (options.tier,) if options.devices else TIERS[: TIERS.index(options.tier)][-1:]
    older = _older_devices(reference, devices) if options.devices or not options.cases else []
    for tier in tiers:
        for device in older:
            yield device, tier


def _older_devices(reference: KernelReference, devices: tuple[Device, ...]) -> list[Device]:
    """The pretended devices that the kernel has a path for, one of each name: workers share equal GPUs."""
    paths = getattr(reference.kernel, "older_paths", ())
    if not isinstance(paths, tuple):
        raise KernelError(
            f"kernel {reference.reference!r}: older_paths is {paths!r}; give compute capabilities as a tuple, "
            "as in (80,)"
        )
    found: dict[str, Device] = {}
    for device in devices:
        if device.pretended and device.sm in paths:
            found.setdefault(device.name, device)
    return list(found.values())


def library_of(reference: KernelReference, requests: Mapping[str, str]) -> tuple[LibraryBuild | None, Support | None]:
    """The build of a kernel's library that is asked for, and what is missing where there is none.

    Raises:
        LibraryError: a build that was asked for can't be used.
    """
    library = reference.kernel.library
    if library is None:
        return None, None
    request = requests.get(library.module)
    try:
        return resolve_library(library.module, library.distribution, library.module, request), None
    except LibraryError as error:
        if request is not None:
            raise
        return None, Support("absent", f"{library.distribution} is not installed", str(error))


def check_libraries(requests: Mapping[str, str], references: tuple[KernelReference, ...]) -> None:
    """Raise PlanError for a library that belongs to no kernel of the run."""
    modules = {reference.kernel.library.module for reference in references if reference.kernel.library}
    for name in requests:
        if name not in modules:
            raise PlanError(
                f"library {name!r} belongs to no kernel of this run; there are {', '.join(sorted(modules)) or 'none'}"
            )


def share_of(device: Device, number: int) -> Device:
    """The device of that name that the worker of a number uses: workers take turns over equal GPUs."""
    real = detect_devices()
    alike = [found for found in (*real, *pretended_devices(real)) if found.name == device.name]
    return alike[number % len(alike)]
