# SPDX-License-Identifier: Apache-2.0
# A Triton kernel is one function, in the subset of Python that Triton compiles.
# ruff: noqa: PLR0917
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""MoE weight-only quantized GEMM: each row of the output by the weights of its expert.

``out[row] = activation[row // top_k] @ dequantize(weight[expert of row]).T + bias[expert of row]``

Rows come as a list, sorted by expert and cut into blocks of ``BLOCK_M`` rows of one expert each; an expert's last
block is filled up with a number that is no row. One program computes one tile, a block's rows × ``BLOCK_N`` columns,
by the arithmetic of :mod:`.dense`, whose notes hold here too: bits depend neither on the batch nor on the place of a
row in its block.

One kernel serves all three kinds, because the list alone says which rows there are. Indexed: a row is
token * top_k + slot, and its activations are its token's. Grouped, contiguous or masked: activations lie as the
output does (``top_k`` is 1 here), and the list names the rows that an expert owns. What isn't listed is neither read
nor written.

Layouts, all contiguous:

| tensor | shape | dtype |
|---|---|---|
| activation | (rows / top_k, K) | fp16 or bf16 |
| weight, scale, zero_point, second_scale, bias | those of :mod:`.dense` for each expert, one behind the other | |
| row_ids | (blocks, BLOCK_M): rows, or the number of rows as filler | int32 |
| expert_ids | (blocks,) | int32 |
| out | (rows, N) | as activation |
"""

import triton
import triton.language as tl

from humming_conformance.kernels.triton_fused.dense import write_tile


@triton.jit
def moe_kernel(
    activation,
    weight,
    scale,
    zero_point,
    second_scale,
    bias,
    out,
    row_ids,
    expert_ids,
    rows,
    top_k,
    N,
    K,
    scale_rows,
    weight_stride,  # elements from one expert's weights to the next's
    scale_stride,  # the same for scales and zero points
    ELEMENT: tl.constexpr,
    SCALE_FORMAT: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Write block program_id(0) of rows, columns from program_id(1) * BLOCK_N; the module docstring has the layouts."""
    # Blocks of one expert are neighbours, as are their programs: they share tiles of weights in the L2 cache.
    block = tl.program_id(0)
    first_row = tl.program_id(1) * BLOCK_N
    row = tl.load(row_ids + block * BLOCK_M + tl.arange(0, BLOCK_M))
    # 64 bits, since rows * K and the weights of all experts may pass 2^31.
    expert = tl.load(expert_ids + block).to(tl.int64)
    weight += expert * weight_stride
    scale += expert * scale_stride
    if zero_point is not None:
        zero_point += expert * scale_stride
    if second_scale is not None:
        second_scale += expert * N
    if bias is not None:
        bias += expert * N
    write_tile(
        activation,
        (row // top_k).to(tl.int64),
        out,
        row.to(tl.int64),
        row < rows,
        weight,
        scale,
        zero_point,
        second_scale,
        bias,
        first_row,
        N,
        K,
        scale_rows,
        ELEMENT,
        SCALE_FORMAT,
        GROUP_SIZE,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
    )
