# SPDX-License-Identifier: Apache-2.0
"""``repro``: judge one subject again, and write it down as one script for somebody else.

The script carries the launch that shows the failure: operands as codes, the values the judge expects, and the source
with which the adapter calls its library. It needs numpy, torch and that library, not this project; kernels without
such a source are called through this project.
"""

from __future__ import annotations

import base64
import io
import zlib
from dataclasses import fields
from pathlib import Path

import numpy as np

from humming_conformance.campaign.judge import Judge
from humming_conformance.campaign.plan import PlanError, RunOptions, Task, make_plan
from humming_conformance.ledger import replace_text
from humming_conformance.oracle import reference, round_output
from humming_conformance.oracle.contract import Contract
from humming_conformance.problems import Operands, build_operands
from humming_conformance.protocols import Subject, Verdict

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
expected = o["expected"]
wrong = np.argwhere(~((got == expected) | (np.isnan(got) & np.isnan(expected))))
print(f"{{len(wrong)}} of {{got.size}} elements differ from the exact result rounded to {output}")
for row, column in wrong[:10]:
    print(f"  [{{row}}, {{column}}] got {{got[row, column]:.9g}}, expected {{expected[row, column]:.9g}}")
'''

_THROUGH_US = '''\
# The kernel comes from humming-conformance itself, which must be installed.
def run(o):
    from humming_conformance.execution.run_case import run_case
    from humming_conformance.formats import element_format

    reply = run_case(kernel={reference!r}, case={case!r}, device={device!r}, relations=False)
    return element_format({output!r}).decode(reply["output"][{launch}])'''


def reproduce(subject: Subject, options: RunOptions, output: Path | None) -> int:
    """Judge ``subject`` here if this machine can, print the verdict, write the script; returns the exit status.

    Raises:
        PlanError: the subject's device isn't this machine's (``no_gpu`` and other machines' GPUs stand for a GPU).
    """
    task = _task(subject, options)
    with Judge() as judge:
        verdict = judge.numerics(task)
    print(f"{verdict.subject}\n{verdict.outcome}" + (f": {verdict.reason}" if verdict.reason else ""))
    if verdict.message:
        print(verdict.message)
    operands = build_operands(task.case)
    path = output or Path(f"repro_{operands.digest()[:8]}.py")
    replace_text(path, script(task, operands, verdict))
    print(f"wrote {path}")
    return 1 if verdict.outcome in ("fail", "error") else 0


def script(task: Task, operands: Operands, verdict: Verdict) -> str:
    """The text of the script for one launch: the first wrong one if the verdict names it, else the first."""
    case = task.case
    launch = int(verdict.evidence.get("first", {}).get("launch", 0))
    arrays = _one_launch(operands, launch)
    contract = Contract(case.output)
    exact = reference(case, operands, contract)
    arrays["expected"] = round_output(case, contract, exact.product, exact.bias)[launch].astype(np.float32)
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    source = getattr(task.kernel.kernel, "reproduction", None)
    return _FRAME.format(
        subject=task.subject,
        told=verdict.message or f"{verdict.outcome}: {verdict.reason or 'nothing wrong here'}",
        weight=case.weight.element,
        scale=case.weight.scale_format,
        activation=case.activation.element,
        operands=base64.b85encode(zlib.compress(packed.getvalue(), 9)).decode(),
        source=source(case, verdict.evidence.get("route")) if source else _through_us(task, launch),
        output=case.output,
    )


def _through_us(task: Task, launch: int) -> str:
    device = {item.name: getattr(task.device, item.name) for item in fields(task.device)}
    return _THROUGH_US.format(
        reference=task.kernel.reference, case=task.case.id, device=device, output=task.case.output, launch=launch
    )


def _one_launch(operands: Operands, launch: int) -> dict[str, np.ndarray]:
    """Arrays by the names of :class:`Operands`, launch dimension removed."""
    arrays = {}
    for item in fields(operands):
        value = getattr(operands, item.name)
        if value is not None:
            by_launch = item.name in ("activation", "activation_scale", "expert")
            arrays[item.name] = value[launch] if by_launch else value
    return arrays


def _task(subject: Subject, options: RunOptions) -> Task:
    wanted = RunOptions(
        kernels=options.kernels or (subject.kernel,), cases=(subject.case_id,), libraries=options.libraries
    )
    tasks = [task for task in make_plan(wanted) if task.subject.kernel == subject.kernel]
    if not tasks:
        raise PlanError(f"kernel {subject.kernel!r} is not among {', '.join(wanted.kernels)}; add --kernel")
    return tasks[0]
