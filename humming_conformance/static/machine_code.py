# SPDX-License-Identifier: Apache-2.0
"""What is in a cubin: instructions by name and number, registers, stack, shared memory."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from humming_conformance.static.toolchain import Toolchain

#: An instruction line of nvdisasm: an address, perhaps a guard, the opcode.
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Za-z0-9_.]*)", re.MULTILINE)
#: What cuobjdump says of a function's resources.
_USAGE = re.compile(r"Function (?P<name>[^:\n]+):\s*(?P<usage>REG:[^\n]*)")
#: Tensor-core instructions, by the start of their names.
_TENSOR = re.compile(r"(?:HMMA|IMMA|QMMA|OMMA|DMMA|BMMA|HGMMA|IGMMA|QGMMA|BGMMA|UTC[A-Z]*MMA)\b")


class UnreadableError(RuntimeError):
    """A disassembler couldn't read a cubin; the text says what it said."""


@dataclass(frozen=True)
class MachineCode:
    """One kernel.

    Attributes:
        function: its name.
        opcodes: how many instructions of each name there are, modifiers included.
        registers: of a thread, as the compiler allots them at the launch.
        stack, local, shared: bytes of a thread, of a thread, of a block (static).
    """

    function: str
    opcodes: Mapping[str, int]
    registers: int
    stack: int
    local: int
    shared: int

    @property
    def tensor_core(self) -> dict[str, int]:
        """The tensor-core instructions among the opcodes."""
        return {name: count for name, count in self.opcodes.items() if _TENSOR.match(name)}

    @property
    def spills(self) -> int:
        """Instructions that store to or load from local memory."""
        return sum(count for name, count in self.opcodes.items() if name.split(".")[0] in ("STL", "LDL"))


def read_cubin(path: Path, tools: Toolchain) -> MachineCode:
    """The one kernel of a cubin.

    Raises:
        UnreadableError: a tool failed, or there isn't exactly one kernel.
    """
    usage = _run([tools.cuobjdump, "--dump-resource-usage", path])
    functions = _USAGE.findall(usage)
    if len(functions) != 1:
        raise UnreadableError(
            f"{path.name} holds {len(functions)} kernels, and one is looked for: {usage.strip()[:200]}"
        )
    name, numbers = functions[0]
    found = {key: int(value) for key, value in re.findall(r"([A-Z]+)(?:\[\d+\])?:(\d+)", numbers)}
    text = _run([tools.nvdisasm, "--print-code", path])
    opcodes = Counter(match[1].rstrip(".") for match in _INSTRUCTION.finditer(text))
    if not opcodes:
        raise UnreadableError(f"nvdisasm shows no instruction of {path.name}: {text.strip()[:200]}")
    return MachineCode(
        function=name.strip(),
        opcodes=dict(sorted(opcodes.items())),
        registers=found.get("REG", 0),
        stack=found.get("STACK", 0),
        local=found.get("LOCAL", 0),
        shared=found.get("SHARED", 0),
    )


def _run(command: list[Path | str]) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnreadableError(f"{Path(command[0]).name} failed ({done.returncode}): {done.stderr.strip()[:400]}")
    return done.stdout
