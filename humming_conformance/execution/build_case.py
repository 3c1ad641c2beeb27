# SPDX-License-Identifier: Apache-2.0
"""The tasks of building ahead: find the unit that a case needs, and build a unit. Called in kernel processes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from humming_conformance.devices import Device
from humming_conformance.execution.lease import gpu_lease
from humming_conformance.execution.marks import mark, set_mark
from humming_conformance.execution.run_case import load_adapter
from humming_conformance.problems import build_operands, parse_case
from humming_conformance.protocols import BuildsAhead, BuildUnit


def find_unit(
    *, kernel: str, case: str, device: dict[str, Any], folder: str, tools: str, case_mark: str, lease_timeout: float
) -> dict[str, Any]:
    """The unit of a case.

    Args:
        kernel: ``module:attribute`` of the adapter, a :class:`~humming_conformance.protocols.BuildsAhead`.
        case: case id.
        device: fields of the :class:`~humming_conformance.devices.Device`.
        folder: the JIT folder that the process builds into.
        tools: what builds, in words: marks of other tools don't count.
        case_mark: path of the case's mark, set here if its unit is built already.
        lease_timeout: seconds to wait for a GPU that others time on.

    Returns:
        ``unit``: fields of the :class:`~humming_conformance.protocols.BuildUnit`; ``mark``: path of its mark;
        ``built``: whether that is set.

    Raises:
        LeaseTimeout, and whatever ``build_unit`` of the adapter raises.
    """
    adapter = _adapter(kernel)
    judged = parse_case(case)
    place = Device(**device)
    operands = build_operands(judged)
    with gpu_lease(place.uuid, exclusive=False, timeout=lease_timeout) if place.kind == "cuda" else nullcontext():
        unit = adapter.build_unit(judged, operands, place)
    unit_mark = mark(Path(folder), "unit", kernel, unit.key, tools)
    built = unit_mark.exists()
    if built:
        set_mark(Path(case_mark))
    return {"unit": asdict(unit), "mark": str(unit_mark), "built": built}


def build_unit(*, kernel: str, unit: dict[str, Any], marks: Sequence[str]) -> dict[str, Any]:
    """Build a unit and, once that is done, set the marks of it and of the cases that need it.

    Args:
        kernel: ``module:attribute`` of the adapter.
        unit: fields of the :class:`~humming_conformance.protocols.BuildUnit`.
        marks: paths of marks.

    Returns:
        An empty dict.

    Raises:
        whatever ``build`` of the adapter raises; then no mark is set.
    """
    _adapter(kernel).build(BuildUnit(**unit))
    for path in marks:
        set_mark(Path(path))
    return {}


def _adapter(reference: str) -> BuildsAhead:
    adapter = load_adapter(reference)
    if not isinstance(adapter, BuildsAhead):
        raise TypeError(f"kernel {reference} offers no build_unit and build")
    return adapter
