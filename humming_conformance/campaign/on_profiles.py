# SPDX-License-Identifier: Apache-2.0
"""The plan of what is judged on recorded devices, without any of them."""

from __future__ import annotations

from collections.abc import Callable

from humming_conformance.campaign.kernels import KernelReference, find_kernels
from humming_conformance.campaign.plan import RunOptions, Task, check_libraries, library_of
from humming_conformance.devices import Device, load_profile, recorded_profiles
from humming_conformance.problems import Case, parse_case
from humming_conformance.problems.tiers import load_tier
from humming_conformance.protocols import Kernel, Subject, Support


def plan_on_profiles(options: RunOptions, suite: str, offers: Callable[[Kernel], bool]) -> tuple[Task, ...]:
    """Every subject of a suite: each kernel that ``offers`` what is asked, each recorded device, each case of the tier.

    A case that a kernel doesn't claim is planned too: how it is refused is judged. With none of the kernels asked for,
    or of the devices, the plan is empty.

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
    """The recorded devices, or those of them that are named, in alphabetical order."""
    return tuple(
        Device(name=name, kind="profile", present=False, sm=load_profile(name).sm)
        for name in recorded_profiles()
        if not names or name in names
    )


def claims_on(reference: KernelReference, case: Case, device: Device) -> Support:
    """The adapter's answer for a case on a device of the profile's kind, if one were here."""
    return reference.kernel.support(case, Device(name=device.name, kind="cuda", sm=device.sm))
