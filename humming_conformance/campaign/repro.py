# SPDX-License-Identifier: Apache-2.0
"""``repro``: judge one subject again, and write it down as one script for somebody else.

The script carries the launch that shows the failure: operands as codes, the smallest and largest right value of each
output, and the source with which the adapter calls its library. It needs numpy, torch and that library, not this
project; kernels without such a source are called through this project.
"""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from humming_conformance.campaign.judge import Judge, under_sanitizer
from humming_conformance.campaign.plan import PlanError, RunOptions, Task, make_plan
from humming_conformance.devices import detect_devices, names_pretended_device
from humming_conformance.ledger import replace_text
from humming_conformance.oracle import Contract, bound, reference, round_output
from humming_conformance.problems import Case, Operands, build_operands
from humming_conformance.protocols import Subject, Verdict

Values = NDArray[np.float32]

_FRAME = '''\
"""{subject}

{told}
"""

import base64, io, zlib

import numpy as np
import torch

# Element codes (bit patterns) of one launch; formats: weights {weight}, scales {scale}, activations {activation}.
o = dict(np.load(io.BytesIO(zlib.decompress(base64.b85decode("""{operands}""")))))

{source}

got = run(o)  # (rows, N) values
lower, upper = o["lower"], o["upper"]  # {promise}
wrong = np.argwhere(~((got >= lower) & (got <= upper) | (np.isnan(got) & np.isnan(lower))))
print(f"{{len(wrong)}} of {{got.size}} elements are wrong")
for row, column in wrong[:10]:
    right = f"{{lower[row, column]:.9g}} to {{upper[row, column]:.9g}}"
    print(f"  [{{row}}, {{column}}] got {{got[row, column]:.9g}}, right: {{right}}")
'''

_THROUGH_US = """\
# The kernel is called through humming-conformance, which must be installed, and {reference} be importable.
import os

os.environ.update({environment!r})


def run(o):
    from humming_conformance.execution.run_case import run_case
    from humming_conformance.formats import element_format

    device = {device!r}
    reply = run_case(kernel={reference!r}, case={case!r}, device=device, relations=False, lease_timeout=60)
    return element_format({output!r}).decode(reply["output"][{launch}])"""


def reproduce(
    subject: Subject,
    kernels: Sequence[str],
    libraries: Mapping[str, str],
    output: Path | None,
    *,
    sanitize: str = "",
) -> int:
    """Judge ``subject`` here if this machine can, print the verdict, write the script.

    It is judged on the device it names where that is here, else on the best one for its kernel; an older path is
    judged nowhere else, for other devices run other code. Waivers are left out. Returns the exit status: 1 for ``fail``
    and ``error``, 3 where nothing was judged, else 0.

    Args:
        kernels: names or references to find the subject's kernel among; by default its own name.
        libraries: library name → version, wheel or folder.
        output: the script; by default ``repro_<digest of the operands>.py`` in the current folder.
        sanitize: the memory checker to judge under, empty for none; the script runs without it.

    Raises:
        PlanError: the kernel isn't among those named, or doesn't run on the device, which is here; or no GPU here
            executes the older path.
    """
    task = _task(subject, kernels, libraries)
    if sanitize:
        task = under_sanitizer(task, sanitize)
    with Judge(sanitize=sanitize) as judge:
        verdict = judge.numerics(task)
    judged = verdict.outcome not in ("not_run", "unsupported")
    if judged and task.device.name != subject.device:
        print(f"judged on {task.device.name} instead of {subject.device}, which is not here")
    print(f"{verdict.subject}\n{verdict.outcome}" + (f": {verdict.reason}" if verdict.reason else ""))
    if verdict.message:
        print(verdict.message)
    operands = build_operands(task.case)
    path = output or Path(f"repro_{operands.digest()[:8]}.py")
    replace_text(path, script(task, operands, verdict))
    print(f"wrote {path}")
    if not judged:
        return 3
    return 1 if verdict.outcome in ("fail", "error") else 0


def script(task: Task, operands: Operands, verdict: Verdict) -> str:
    """The text of the script for one launch: that of the first wrong element if there is one, else the first."""
    case = task.case
    launch = int(verdict.evidence.get("first", {}).get("launch", 0))
    arrays = _one_launch(operands, launch)
    lower, upper, promise = _right_values(case, operands, verdict)
    arrays |= {"lower": lower[launch], "upper": upper[launch]}
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    source = getattr(task.kernel.kernel, "reproduction", None)
    return _FRAME.format(
        subject=task.subject,
        told=_in_docstring(verdict.message or f"{verdict.outcome}: {verdict.reason or 'nothing wrong here'}"),
        weight=case.weight.element,
        scale=case.weight.scale_format,
        activation=case.activation.element,
        operands=base64.b85encode(zlib.compress(packed.getvalue(), 9)).decode(),
        source=source(case, verdict.evidence.get("route"), task.device) if source else _through_us(task, launch),
        promise=promise,
    )


def _in_docstring(text: str) -> str:
    """A text as Python reads it back between triple quotes: compilers and tracebacks print whatever they like."""
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"').replace("\0", "\\x00")


def _right_values(case: Case, operands: Operands, verdict: Verdict) -> tuple[Values, Values, str]:
    """The smallest and largest right outputs, fp32 (L, rows, N), and what promises them.

    Without a verdict of this machine the contract isn't known: then the result rounded once is all that can be said.
    """
    fields_of_contract = verdict.evidence.get("contract_fields")
    contract = Contract(**fields_of_contract) if fields_of_contract else Contract(case.output)
    exact = verdict.evidence.get("exact", True)
    values = reference(case, operands, contract)
    if exact:
        scale = values.output_scale
        lower = upper = round_output(case, contract, values.product, values.bias, scale)
    else:
        allowed = bound(case, contract, values)
        lower, upper = allowed.lower, allowed.upper
    known = "the adapter's contract" if fields_of_contract else "one rounding of the exact result (not judged here)"
    return lower.astype(np.float32), upper.astype(np.float32), f"{known}: {contract.text()}"


def _through_us(task: Task, launch: int) -> str:
    interpreted = task.device.kind == "cpu_interpreter"
    return _THROUGH_US.format(
        reference=task.kernel.reference,
        environment={"TRITON_INTERPRET": "1"} if interpreted else {},
        case=task.case.id,
        device=asdict(task.device),
        output=task.case.output,
        launch=launch,
    )


def _one_launch(operands: Operands, launch: int) -> dict[str, Any]:
    """Arrays by the names of :class:`Operands`, launch dimension removed."""
    arrays = {}
    for item in fields(operands):
        value = getattr(operands, item.name)
        if value is not None:
            by_launch = item.name in ("activation", "activation_scale", "expert")
            arrays[item.name] = value[launch] if by_launch else value
    return arrays


def _task(subject: Subject, kernels: Sequence[str], libraries: Mapping[str, str]) -> Task:
    here = {device.name for device in detect_devices()}
    options = RunOptions(
        kernels=tuple(kernels) or (subject.kernel,),
        devices=(subject.device,) if subject.device in here or names_pretended_device(subject.device) else (),
        cases=(subject.case_id,),
        libraries=libraries,
    )
    tasks = [task for task in make_plan(options) if task.subject.kernel == subject.kernel]
    if not tasks:
        raise PlanError(f"kernel {subject.kernel!r} is not among {', '.join(options.kernels)}; add --kernel")
    return tasks[0]
