# SPDX-License-Identifier: Apache-2.0
"""Each rule on machine code speaks of just what it is about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from humming_conformance.devices import load_profile
from humming_conformance.protocols import Route, Subject
from humming_conformance.static.compiling import Compiled
from humming_conformance.static.machine_code import MachineCode
from humming_conformance.verdicts.codegen import RULES, CodegenEvidence, judge_codegen

SUBJECT = Subject("humming", "dense-w_int4.g128.bf16-a_bf16-m16.n64.k128-random", "h100")
DETAILS = {"threads": 256, "shared_memory_bytes": 100_000, "blocks_per_sm": 1}
ROUTE = Route("wgmma_scaled_weight", "wgmma", (64, 128, 64), 4, activation_format="bf16", details=DETAILS)
CODE = MachineCode("kernel", {"HGMMA.64x16x16.F32.BF16": 56, "LDG.E": 4}, 168, 0, 0, 0)
COMPILED = Compiled(CODE, "", 5.0)


def _evidence(code=CODE, route=ROUTE, **changes):
    compiled = replace(COMPILED, machine_code=code, **changes)
    return CodegenEvidence(route, load_profile("h100"), compiled)


def _code(**changes):
    return replace(CODE, **changes)


def test_good_code_passes():
    """Every rule has something to say, and nothing against it; what was found is in the evidence."""
    verdict = judge_codegen(SUBJECT, _evidence())
    assert (verdict.outcome, verdict.suite) == ("pass", "codegen")
    assert [ruling.rule for ruling in verdict.rulings] == list(RULES)
    assert verdict.evidence["tensor_core"] == {"HGMMA.64x16x16.F32.BF16": 56}
    assert (verdict.evidence["registers"], verdict.evidence["spills"]) == (168, 0)


@pytest.mark.parametrize(
    ("rule", "evidence", "told"),
    [
        (
            "compiles",
            _evidence(None, log="kernel.cu(3): warning: odd\nkernel.cu(4): error: no such name\n2 errors"),
            "kernel.cu(4): error: no such name",
        ),
        ("promised instructions", _evidence(_code(opcodes={"FFMA": 4096})), "has no tensor-core instruction"),
        (
            "promised instructions",
            _evidence(_code(opcodes={"HGMMA.64x16x16.F32": 56})),
            "HGMMA.64x16x16.F32 don't multiply bf16",
        ),
        (
            "nothing slower",
            _evidence(_code(opcodes={**CODE.opcodes, "HMMA.16816.F32.BF16": 8})),
            "beside those of its route it has HMMA.16816.F32.BF16 (8)",
        ),
        (
            "no spills",
            _evidence(_code(opcodes={**CODE.opcodes, "STL.64": 9, "LDL.LU": 6}, stack=16)),
            "15 instructions store to or load from local memory (16 bytes of stack)",
        ),
        (
            "registers",
            _evidence(_code(registers=255), replace(ROUTE, details={**DETAILS, "threads": 384})),
            "255 registers of 384 threads are more than the 65536 of a multiprocessor",
        ),
        (
            "shared memory",
            _evidence(_code(shared=140_000)),
            "238976 bytes of shared memory, and a block has at most 232448",
        ),
    ],
)
def test_each_rule_alone(rule, evidence, told):
    """Just this rule fails, and the message says by which route and code."""
    verdict = judge_codegen(SUBJECT, evidence)
    failed = {ruling.rule: ruling.reason for ruling in verdict.rulings if ruling.outcome == "fail"}
    assert list(failed) == [rule]
    assert told in failed[rule]
    assert verdict.outcome == "fail"
    assert "route: wgmma_scaled_weight, wgmma, tile (64, 128, 64), 4 stages" in verdict.message


def test_every_rule_is_broken_above():
    """No rule without its test."""
    (mark,) = test_each_rule_alone.pytestmark
    assert {arguments[0] for arguments in mark.args[1]} == RULES.keys()


@pytest.mark.parametrize(
    ("mma_class", "activation", "opcode"),
    [
        ("mma", "fp16", "HMMA.1688.F32"),
        ("mma", "bf16", "HMMA.16816.F32.BF16"),
        ("mma", "int8", "IMMA.16832.S8.S8.SAT"),
        ("mma", "fp8_e4m3", "QMMA.16832.F32.E4M3.E4M3"),
        ("wgmma", "fp16", "HGMMA.64x176x16.F32"),
        ("wgmma", "int8", "IGMMA.64x64x32.S8.S8.SAT"),
        ("wgmma", "fp8_e4m3", "QGMMA.64x64x32.F32.E4M3.E4M3"),
        ("umma", "bf16", "UTCHMMA.2CTA"),
        ("umma", "int8", "UTCIMMA.2CTA"),
        ("umma", "fp8_e4m3", "UTCQMMA"),
        ("mxmma", "fp8_e4m3", "QMMA.SF.16832.F32.E4M3.E2M1.E8"),
    ],
)
def test_instructions_of_each_class(mma_class, activation, opcode):
    """The names that nvcc 13.0's code has, on the generation that has the class."""
    route = replace(ROUTE, mma_class=mma_class, activation_format=activation)
    assert judge_codegen(SUBJECT, _evidence(_code(opcodes={opcode: 8}), route)).outcome == "pass"
    other = replace(ROUTE, mma_class="mma" if mma_class != "mma" else "wgmma", activation_format=activation)
    wrong = judge_codegen(SUBJECT, _evidence(_code(opcodes={opcode: 8}), other))
    assert wrong.outcome == "fail" or mma_class == "mxmma"  # the same unit, with scales


def test_what_the_system_reserves_is_not_the_kernel_s():
    """A kernel that takes a block's whole limit, to the byte, fits; one byte more doesn't."""
    limit = load_profile("h100").max_shared_memory_per_block_bytes
    for more, outcome in ((0, "pass"), (1, "fail")):
        route = replace(ROUTE, details={**DETAILS, "shared_memory_bytes": limit + more})
        assert judge_codegen(SUBJECT, _evidence(_code(shared=1024), route)).outcome == outcome


def test_what_takes_too_long_is_not_run():
    """Neither a pass nor a failure: the reason says how long was waited."""
    verdict = judge_codegen(SUBJECT, _evidence(None, seconds=300.4, late=True))
    assert (verdict.outcome, verdict.reason) == ("not_run", "its compilation was ended after 300 s")


def test_accepted_spills():
    """As many as were accepted are no news; one more is."""
    spilled = _evidence(_code(opcodes={**CODE.opcodes, "STL": 15}))
    assert judge_codegen(SUBJECT, replace(spilled, accepted=15)).outcome == "pass"
    assert "14 of them accepted" in judge_codegen(SUBJECT, replace(spilled, accepted=14)).reason
