# SPDX-License-Identifier: Apache-2.0
"""From claims to the typed answer "does this kernel serve this case on this device?"."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from humming_conformance.devices import Device
from humming_conformance.problems import Case
from humming_conformance.problems.calls import CUDA_CALLS
from humming_conformance.protocols import Claim, Support

#: Rule for claims of kernels that only take neutral operands.
NEUTRAL_OPERANDS = ("operands are in neutral form (no src_ part)", lambda case: not case.source)


class CannotJudge(Exception):  # noqa: N818  # it is no defect of the kernel: the verdict becomes `not_run`
    """A kernel can't be judged in this process, whatever it computes.

    Raised by an adapter's ``prepare``. ``reason`` says why, ``mend`` what to change so that it can be judged.
    """

    def __init__(self, reason: str, mend: str) -> None:
        super().__init__(f"{reason}; {mend}")
        self.reason = reason
        self.mend = mend

    def __reduce__(self) -> tuple[type[CannotJudge], tuple[str, str]]:
        # Pickle would call __init__ with the one text that Exception keeps.
        return type(self), (self.reason, self.mend)


def support_from_claims(
    claims: Sequence[Claim], case: Case, device: Device, device_kinds: Sequence[str], *, minimum_sm: int = 0
) -> Support:
    """Return the answer for `case` on `device` of a kernel with these claims.

    ``no``: no claim holds, or the kernel doesn't run on such a device: its kind is not among `device_kinds`, it
    is no CUDA device where a call option needs one, or it is a GPU below compute capability `minimum_sm` (80,
    90…). The reason is about the nearest claim, the one with the fewest failing fields (of equals, the one whose
    first fields hold): each failing field, the case's value and the claimed ones; where all fields hold, each
    rule that doesn't. ``absent``: claimed, but the device isn't there.
    """
    if not claims:
        return Support("no", "the kernel claims nothing")
    nearest = min((_objections(claim, case) for claim in claims), key=_distance)
    if any(nearest):
        return Support("no", "; ".join(filter(None, nearest)))
    refusal = _refusal_of_kind(case, device, device_kinds)
    if refusal:
        return Support("no", refusal)
    if not device.present:
        return Support("absent", f"device {device.name} is not present", f"run where there is a {device.kind} device")
    if device.kind == "cuda" and device.sm < minimum_sm:
        return Support("no", f"{device.name} is sm_{device.sm}; sm_{minimum_sm} and newer are claimed")
    return Support("yes")


def _refusal_of_kind(case: Case, device: Device, device_kinds: Sequence[str]) -> str:
    """Why `device` is of the wrong kind for the kernel, or for the call of `case`; else empty."""
    if device.kind not in device_kinds:
        return f"device kind {device.kind} is not claimed ({', '.join(device_kinds)})"
    needing_cuda = sorted(CUDA_CALLS.intersection(case.call))
    if needing_cuda and device.kind != "cuda":
        return f"the call ({', '.join(needing_cuda)}) needs a CUDA device; this is {device.name}"
    return ""


def _objections(claim: Claim, case: Case) -> list[str]:
    """Why `claim` doesn't hold for `case`: a text for each field and then each rule, empty where it holds."""
    weight, activation, problem = case.weight, case.activation, case.problem
    fields: tuple[tuple[str, object, Sequence[object]], ...] = (
        ("problem kind", problem.kind, claim.kinds),
        ("weight element", weight.element, claim.weights),
        ("weight granularity", weight.granularity, claim.granularities),
        ("weight scale format", weight.scale_format, claim.scale_formats),
        ("activation element", activation.element, claim.activations),
        ("activation granularity", activation.granularity or "none", claim.activation_granularities),
        ("output format", case.output, claim.outputs),
        ("zero point", weight.zero_point, claim.zero_points),
        ("second scale", weight.second_scale, claim.second_scales),
        ("bias", problem.bias, claim.bias),
        *(("call option", option, claim.calls) for option in case.call),
    )
    objections = [
        # A claimed value may be a pattern: g* stands for every group size, b* for every block.
        ""
        if any(fnmatchcase(str(value), str(pattern)) for pattern in claimed)
        else f"{name} {value} is not claimed ({', '.join(map(str, claimed)) or 'none is'})"
        for name, value, claimed in fields
    ]
    if not any(objections):  # a rule may take for granted what the fields say
        objections += ["" if holds(case) else f"it must hold that {rule}" for rule, holds in claim.rules]
    return objections


def _distance(objections: Sequence[str]) -> tuple[int, list[bool]]:
    """How far a claim is from a case: by how many objections, then by how early they come."""
    failing = [bool(objection) for objection in objections]
    return sum(failing), failing
