# SPDX-License-Identifier: Apache-2.0
"""Whether machine code is what a route promises: the right instructions, no spills, within the device's limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from humming_conformance.devices import DeviceProfile
from humming_conformance.protocols import Outcome, Route, Ruling, Subject, Verdict
from humming_conformance.static.compiling import Compiled

#: How SASS names the tensor-core instructions of a class, by the format of their operands: half precision, int8, fp8.
#: Sources: CUDA Binary Utilities, instruction set reference; cubins of nvcc 13.0 for each architecture.
_NAMES: dict[str, dict[str, str]] = {
    "mma": {"16": r"HMMA\.", "int8": r"IMMA\.", "fp8": r"QMMA\."},
    "wgmma": {"16": r"HGMMA\.", "int8": r"IGMMA\.", "fp8": r"QGMMA\."},
    "umma": {"16": r"UTCHMMA", "int8": r"UTCIMMA", "fp8": r"UTCQMMA"},
    "mxmma": {"16": r"HMMA\.", "int8": r"IMMA\.", "fp8": r"[QO]MMA\.SF"},
}
#: The part of a name that says which 16-bit format is multiplied; fp16 has none.
_BF16 = re.compile(r"BF16")
#: Of each block's shared memory the system keeps so much on sm_90 and newer; the compiler counts it among a kernel's
#: own, the limit of a block leaves it out (CUDA C++ Programming Guide, technical specifications).
RESERVED_SHARED, RESERVED_SINCE = 1024, 90
#: Registers of a thread that an instruction can name.
MOST_REGISTERS = 255
_ERROR = re.compile(r"\b(?:error|fatal)\b", re.IGNORECASE)


@dataclass(frozen=True)
class CodegenEvidence:
    """What is known of one compiled kernel.

    Attributes:
        route: what selection named, with ``threads``, ``shared_memory_bytes`` and ``blocks_per_sm`` in its details.
        profile: of the device.
        compiled: what came of its source.
        accepted: instructions that spill in the accepted baseline; 0 where there is none.
    """

    route: Route
    profile: DeviceProfile
    compiled: Compiled
    accepted: int = 0


#: A rule: a sentence, empty where all is well, None where there is nothing to judge.
Rule = Callable[[CodegenEvidence], str | None]


def judge_codegen(subject: Subject, evidence: CodegenEvidence) -> Verdict:
    """The verdict on a compiled kernel; ``not_run`` where its compilation took too long."""
    compiled = evidence.compiled
    if compiled.late:
        reason = f"its compilation was ended after {compiled.seconds:.0f} s"
        return Verdict(subject, "codegen", "not_run", reason, rulings=(Ruling("compiles", "not_run", reason),))
    found = {name: rule(evidence) for name, rule in RULES.items()}
    rulings = tuple(
        Ruling(name, "fail" if trouble else "pass", trouble) for name, trouble in found.items() if trouble is not None
    )
    failed = [ruling for ruling in rulings if ruling.outcome == "fail"]
    outcome: Outcome = "fail" if failed else "pass"
    code = compiled.machine_code
    described = {} if code is None else {
        "registers": code.registers,
        "spills": code.spills,
        "stack": code.stack,
        "static_shared": code.shared,
        "tensor_core": code.tensor_core,
    }  # fmt: skip
    return Verdict(
        subject,
        "codegen",
        outcome,
        "; ".join(f"{ruling.rule}: {ruling.reason}" for ruling in failed),
        _message(subject, evidence, failed),
        rulings,
        {
            "route": asdict(evidence.route),
            "seconds": {"compile": compiled.seconds},
            **described,
            **({"fault_class": "toolchain" if code is None else "route"} if failed else {}),
        },
    )


def _compiles(evidence: CodegenEvidence) -> str:
    if evidence.compiled.machine_code is not None:
        return ""
    lines = [line.strip() for line in evidence.compiled.log.splitlines() if _ERROR.search(line)]
    return lines[0] if lines else (evidence.compiled.log.strip().splitlines() or ["the compiler made nothing"])[-1]


def _promised(evidence: CodegenEvidence) -> str | None:
    """The instructions of the route's class and operand formats are there."""
    code, route = evidence.compiled.machine_code, evidence.route
    if code is None:
        return None
    wanted = _pattern(route)
    there = [name for name in code.tensor_core if wanted.match(name)]
    if not there:
        names = ", ".join(code.tensor_core) or "no tensor-core instruction"
        return f"a {route.mma_class} route of {route.activation_format} has {names}"
    if wanted.pattern.startswith(("HMMA", "HGMMA")):
        is_bf16 = [bool(_BF16.search(name)) for name in there]
        if any(found != (route.activation_format == "bf16") for found in is_bf16):
            return f"{', '.join(there)} don't multiply {route.activation_format}"
    return ""


def _nothing_slower(evidence: CodegenEvidence) -> str | None:
    """No other tensor-core instruction does part of the work, as one that was fallen back to would."""
    code = evidence.compiled.machine_code
    if code is None or not code.tensor_core:
        return None
    wanted = _pattern(evidence.route)
    others = {name: count for name, count in code.tensor_core.items() if not wanted.match(name)}
    return f"beside those of its route it has {_counted(others)}" if others else ""


def _spills(evidence: CodegenEvidence) -> str | None:
    code = evidence.compiled.machine_code
    if code is None:
        return None
    if code.spills <= evidence.accepted:
        return ""
    before = f", {evidence.accepted} of them accepted" if evidence.accepted else ""
    return f"{code.spills} instructions store to or load from local memory{before} ({code.stack} bytes of stack)"


def _registers(evidence: CodegenEvidence) -> str | None:
    code, route, profile = evidence.compiled.machine_code, evidence.route, evidence.profile
    if code is None:
        return None
    threads = int(route.details.get("threads", 0)) * int(route.details.get("blocks_per_sm", 1))
    if code.registers > MOST_REGISTERS:
        return f"{code.registers} registers, and no thread has more than {MOST_REGISTERS}"
    if code.registers * threads > profile.max_registers_per_sm:
        return (
            f"{code.registers} registers of {threads} threads are more than the {profile.max_registers_per_sm} of a "
            "multiprocessor"
        )
    return ""


def _shared_memory(evidence: CodegenEvidence) -> str | None:
    code, details = evidence.compiled.machine_code, evidence.route.details
    if code is None:
        return None
    reserved = RESERVED_SHARED if evidence.profile.sm >= RESERVED_SINCE else 0
    needed = max(code.shared - reserved, 0) + int(details.get("shared_memory_bytes", 0))
    limit = evidence.profile.max_shared_memory_per_block_bytes
    return f"{needed} bytes of shared memory, and a block has at most {limit}" if needed > limit else ""


#: Every rule by its name in rulings.
RULES: Mapping[str, Rule] = {
    "compiles": _compiles,
    "promised instructions": _promised,
    "nothing slower": _nothing_slower,
    "no spills": _spills,
    "registers": _registers,
    "shared memory": _shared_memory,
}


def _pattern(route: Route) -> re.Pattern[str]:
    operands = {"bf16": "16", "fp16": "16", "int8": "int8"}.get(route.activation_format, "fp8")
    return re.compile(_NAMES.get(route.mma_class, _NAMES["mma"])[operands])


def _counted(names: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in names.items())


def _message(subject: Subject, evidence: CodegenEvidence, failed: Sequence[Ruling]) -> str:
    if not failed:
        return ""
    route: Any = evidence.route
    lines = [str(subject), *(f"{ruling.rule}: {ruling.reason}" for ruling in failed)]
    lines.append(f"route: {route.path}, {route.mma_class}, tile {route.tile}, {route.stages} stages")
    code = evidence.compiled.machine_code
    if code is None:
        lines += evidence.compiled.log.splitlines()[-20:]
    else:
        lines.append(f"code: {code.registers} registers, {code.stack} bytes of stack, {_counted(code.tensor_core)}")
    return "\n".join(lines)
