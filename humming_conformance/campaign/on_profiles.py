# SPDX-License-Identifier: Apache-2.0
"""The plan of what is judged on recorded devices, without any of them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from humming_conformance.campaign.judge import process_spec
from humming_conformance.campaign.kernels import KernelReference, find_kernels
from humming_conformance.campaign.plan import PlanError, RunOptions, Task, check_libraries, library_of
from humming_conformance.devices import (
    Device,
    DeviceProfile,
    detect_devices,
    load_profile,
    pretended_devices,
    recorded_profiles,
)
from humming_conformance.execution import ProcessPool
from humming_conformance.problems import Case, parse_case
from humming_conformance.problems.tiers import load_tier
from humming_conformance.protocols import Kernel, Subject, Support


def plan_on_profiles(options: RunOptions, suite: str, offers: Callable[[Kernel], bool]) -> tuple[Task, ...]:
    """Every subject of a suite: each kernel that ``offers`` what is asked, each recorded device, each case of the tier.

    A case that a kernel doesn't claim is planned too: how it is refused is judged. With none of the kernels asked for,
    or with devices of this machine alone, the plan is empty.

    Raises:
        PlanError: an unknown device or library.
        TierError, KernelError, CaseIdError, LibraryError: what they name can't be used.
    """
    references = [found for found in find_kernels(options.kernels) if offers(found.kernel)]
    check_libraries(options.libraries, tuple(references))
    plan = []
    for reference in references:
        build, missing = library_of(reference, options.libraries)
        library = reference.kernel.library
        request = options.libraries.get(library.module, "") if library else ""
        listed = load_tier(options.tier, reference.kernel.name, suite)
        cases = [parse_case(case_id, listed) for case_id in dict.fromkeys(options.cases)] or list(
            map(parse_case, listed)
        )
        for device in recorded_devices(options.devices):
            for case in cases:
                subject = Subject(reference.kernel.name, case.id, device.name)
                plan.append(Task(subject, case, reference, device, missing or Support("yes"), build, request))
    return tuple(plan)


def recorded_devices(names: tuple[str, ...] = ()) -> tuple[Device, ...]:
    """The recorded devices, or those of them that are named, in alphabetical order.

    A device of this machine may be named too: other suites of a run are asked about it.

    Raises:
        PlanError: a name is of neither.
        ProfileError: a profile is damaged.
    """
    recorded, here = recorded_profiles(), detect_devices()
    known = {*recorded, *(device.name for device in (*here, *pretended_devices(here)))}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, recorded, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise PlanError(f"device {name!r} is not recorded; there are {', '.join(recorded)}{hint}")
    return tuple(
        Device(name=name, kind="profile", present=False, sm=load_profile(name).sm)
        for name in recorded
        if not names or name in names
    )


def claims_on(reference: KernelReference, case: Case, device: Device) -> Support:
    """The adapter's answer for a case on a device of the profile's kind, if one were here."""
    return reference.kernel.support(case, Device(name=device.name, kind="cuda", sm=device.sm))


def ask_library(
    pool: ProcessPool, task: Task, profile: DeviceProfile, asked: Sequence[tuple[str, Case]], time_limit: float
) -> list[Any]:
    """What a task's library answers about cases on a recorded device, as ``execution.select_cases.ask`` does.

    Raises:
        ExecutionError: the process gave no answer.
    """
    # One process for all devices: each call answers in a child of it.
    spec = replace(process_spec(task, launches=False), name=f"{task.kernel.kernel.name} asked")
    reply = pool.call(
        spec,
        "humming_conformance.execution.select_cases:ask",
        timeout=time_limit,
        kernel=task.kernel.reference,
        profile=asdict(profile),
        questions=[(what, case.id) for what, case in asked],
    )
    answers: list[Any] = reply.value["answers"]
    return answers
