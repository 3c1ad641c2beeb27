# SPDX-License-Identifier: Apache-2.0
"""What a library answered about one case and its neighbours, from which :mod:`.routing` judges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from humming_conformance.devices import DeviceProfile
from humming_conformance.problems import Case
from humming_conformance.protocols_routing import Selection


@dataclass(frozen=True)
class RoutingEvidence:
    """What a library answered about one case on one recorded device.

    Attributes:
        case: what was asked about.
        claimed: whether the adapter claims it there.
        profile: the device.
        production, single_m, under_pytest: the answers as it is asked in the three ways.
        compatible: its own compatibility function's; text where that raised.
        shared: what callers share; None where that was not asked.
        by_rows: production's answers by M (tokens) for the same layer, the case's own included.
        accepted: how the library's whole list differs from the accepted one, empty where it doesn't; None where that
            was not asked, or nothing was accepted.
        shapes: production's answers for layers next to it, by what differs.
        smaller: production's answer on a device with fewer multiprocessors.
        renamed: production's answer on a device of another name and nothing else; None where that was not asked.
    """

    case: Case
    claimed: bool
    profile: DeviceProfile
    production: Selection
    single_m: Selection
    under_pytest: Selection
    compatible: bool | str | None
    smaller: Selection
    renamed: Selection | None = None
    shared: str | None = None
    accepted: str | None = None
    by_rows: Mapping[int, Selection] = field(default_factory=dict)
    shapes: Mapping[str, Selection] = field(default_factory=dict)


def describe(selection: Selection) -> str:
    """A selection in one line: class, tile, stages, blocks of a multiprocessor, or the refusal."""
    route, refusal = selection.route, selection.refusal
    text = ""
    if route is not None:
        tile = "x".join(map(str, route.tile or ()))
        text = f"{route.path} {tile} stages {route.stages} blocks {route.details['blocks_per_sm']}"
    if refusal is not None:
        said = f"{refusal.kind}: {refusal.message or 'no message'}"[:160]
        text += f"{' ' if text else ''}refused ({refusal.stage}) {said} at {refusal.place}"
    return text
