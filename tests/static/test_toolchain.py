# SPDX-License-Identifier: Apache-2.0
"""Where tools are looked for, what a wrong one is told, and how made-up output is read."""

from __future__ import annotations

import pytest

from humming_conformance.static import toolchain
from humming_conformance.static.machine_code import UnreadableError, read_cubin
from humming_conformance.static.toolchain import Toolchain, ToolMissingError

USAGE = (
    "Resource usage:\n Common:\n  GLOBAL:0\n Function kernel:\n  REG:168 STACK:16 SHARED:1024 LOCAL:0 CONSTANT[0]:560\n"
)
CODE = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 HGMMA.64x16x16.F32.BF16 R24, gdesc[UR4], R24 ;
        /*0020*/              @UP1 STL.64 [R1], R2 ;
        /*0030*/                   EXIT ;
"""


def _tool(folder, name, text, status=0):
    path = folder / name
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {status}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """A folder that is the only place where tools can be."""
    toolchain.find_toolchain.cache_clear()
    monkeypatch.setattr(toolchain, "_folders", lambda: iter([tmp_path]))
    yield tmp_path
    toolchain.find_toolchain.cache_clear()


def test_tools_are_found(alone):
    """All three, with nvcc's version."""
    for name in ("nvcc", "cuobjdump", "nvdisasm"):
        _tool(alone, name, "Cuda compilation tools, release 13.1, V13.1.80")
    found = toolchain.find_toolchain()
    assert found == Toolchain(alone / "nvcc", alone / "cuobjdump", alone / "nvdisasm", "13.1.80")


def test_a_missing_tool_says_how_to_get_it(alone):
    """Which, what for, and the mend."""
    with pytest.raises(ToolMissingError, match="nvcc, which compiles, is neither on PATH") as error:
        toolchain.find_toolchain()
    assert "install CUDA 13" in error.value.mend
    _tool(alone, "nvcc", "release 13.0, V13.0.88")
    with pytest.raises(ToolMissingError, match="cuobjdump, which reads machine code") as error:
        toolchain.find_toolchain()
    assert "triton" in error.value.mend


def test_an_old_compiler_is_refused(alone):
    """It doesn't know all architectures."""
    for name in ("nvcc", "cuobjdump", "nvdisasm"):
        _tool(alone, name, "Cuda compilation tools, release 12.4, V12.4.131")
    with pytest.raises(ToolMissingError, match=r"is of CUDA 12\.4"):
        toolchain.find_toolchain()


def test_the_user_s_toolkit_comes_first(monkeypatch, tmp_path):
    """CUDA_HOME before PATH."""
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert next(toolchain._folders()) == tmp_path / "bin"


def _readers(folder, usage=USAGE, code=CODE, status=0):
    return Toolchain(
        folder / "nvcc", _tool(folder, "cuobjdump", usage), _tool(folder, "nvdisasm", code, status), "13.0"
    )


def test_code_is_read(tmp_path):
    """Guards and operands are no part of a name."""
    code = read_cubin(tmp_path / "kernel.cubin", _readers(tmp_path))
    assert code.opcodes == {"EXIT": 1, "HGMMA.64x16x16.F32.BF16": 1, "LDC": 1, "STL.64": 1}
    assert (code.function, code.registers, code.stack, code.local, code.shared) == ("kernel", 168, 16, 0, 1024)
    assert (code.tensor_core, code.spills) == ({"HGMMA.64x16x16.F32.BF16": 1}, 1)


@pytest.mark.parametrize(
    ("readers", "told"),
    [
        ({"usage": "nothing"}, "holds 0 kernels"),
        ({"usage": USAGE + " Function other:\n  REG:8\n"}, "holds 2 kernels"),
        ({"code": "nothing"}, "shows no instruction"),
        ({"status": 255}, r"nvdisasm failed \(255\)"),
    ],
)
def test_what_can_not_be_read(tmp_path, readers, told):
    """An error that says what the tool said, never an empty kernel."""
    with pytest.raises(UnreadableError, match=told):
        read_cubin(tmp_path / "kernel.cubin", _readers(tmp_path, **readers))
