# SPDX-License-Identifier: Apache-2.0
"""Compiling with this machine's nvcc, and reading what it made; skipped where the tools are missing."""

from __future__ import annotations

import json

import pytest

from humming_conformance.static import compiling
from humming_conformance.static.compiling import Source, compile_cached

_MMA = """
#include <mma.h>
using namespace nvcuda;
__global__ void product(const half* a, const half* b, float* c) {
  __shared__ float tile[256];
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> y;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> z;
  wmma::fill_fragment(z, 0.0f);
  wmma::load_matrix_sync(x, a, 16);
  wmma::load_matrix_sync(y, b, 16);
  wmma::mma_sync(z, x, y, z);
  wmma::store_matrix_sync(tile, z, 16, wmma::mem_row_major);
  c[threadIdx.x] = tile[threadIdx.x];
}
"""
_SPILLING = """
__global__ void spilling(float* data, int n) {
  float kept[64];
  for (int i = 0; i < 64; ++i) kept[i] = data[i * 1024 + threadIdx.x];
  for (int r = 0; r < n; ++r) for (int i = 0; i < 64; ++i) kept[i] = kept[i] * kept[(i + 7) % 64] + data[r];
  for (int i = 0; i < 64; ++i) data[i * 1024 + threadIdx.x] = kept[i];
}
"""


def _source(code, sm="80", *more):
    return Source(code, ("-cubin", f"-gencode=arch=compute_{sm},code=sm_{sm}", "-O3", *more))


@pytest.mark.parametrize(
    ("sm", "opcode"), [("75", "HMMA.1688.F32"), ("90a", "HMMA.16816.F32"), ("121a", "HMMA.16816.F32")]
)
def test_what_is_in_the_code(tools, tmp_path, sm, opcode):
    """Name, tensor-core instructions, registers and shared memory of a kernel, on three generations."""
    code = compile_cached(_source(_MMA, sm), tools, tmp_path, 120.0).machine_code
    assert "product" in code.function
    assert list(code.tensor_core) == [opcode]
    assert 8 <= code.registers <= 255
    assert code.shared >= 1024  # some generations add what the launch needs
    assert code.spills == 0


def test_spills_are_counted(tools, tmp_path):
    """A kernel that has fewer registers than values keeps them in local memory."""
    code = compile_cached(_source(_SPILLING, "80", "-maxrregcount=32"), tools, tmp_path, 120.0).machine_code
    assert code.spills > 0
    assert code.stack > 0
    assert code.registers <= 32


def test_a_result_is_kept(tools, tmp_path, monkeypatch):
    """The second time nothing is compiled; other code, another flag or another header is another result."""
    headers = tmp_path / "include"
    headers.mkdir()
    (headers / "size.h").write_text("#define SIZE 1\n")
    source = Source(
        '#include "size.h"\n__global__ void k(int* a) { *a = SIZE; }', _source("").arguments, (str(headers),)
    )
    first = compile_cached(source, tools, tmp_path / "kept", 120.0)
    monkeypatch.setattr(compiling, "_compile", lambda *_: pytest.fail("compiled again"))
    assert compile_cached(source, tools, tmp_path / "kept", 120.0) == first
    (headers / "size.h").write_text("#define SIZE 2\n")
    compiling._headers.cache_clear()
    with pytest.raises(pytest.fail.Exception, match="compiled again"):
        compile_cached(source, tools, tmp_path / "kept", 120.0)
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_a_failure_is_kept_with_its_log(tools, tmp_path):
    """No machine code, and what the compiler said of it."""
    failed = compile_cached(_source("__global__ void k() { no_such_name(); }"), tools, tmp_path, 120.0)
    assert failed.machine_code is None
    assert "no_such_name" in failed.log
    assert compile_cached(_source("__global__ void k() { no_such_name(); }"), tools, tmp_path, 120.0) == failed


def test_what_takes_too_long_is_ended_and_not_kept(tools, tmp_path):
    """The compiler and all that it started are gone, and the next run may have more time."""
    late = compile_cached(_source(_MMA), tools, tmp_path, 0.01)
    assert late.late
    assert late.machine_code is None
    assert list(tmp_path.iterdir()) == []


def test_kept_results_are_json(tools, tmp_path):
    """One file for each, whole."""
    compile_cached(_source("__global__ void k() {}"), tools, tmp_path, 120.0)
    (path,) = tmp_path.iterdir()
    assert set(json.loads(path.read_text())) == {"machine_code", "log", "seconds", "late"}
