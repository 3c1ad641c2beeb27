# SPDX-License-Identifier: Apache-2.0
# A Triton kernel is one function, in the subset of Python that Triton compiles.
# ruff: noqa: FURB136, PLR0917, PLR1714, SIM108
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Dense weight-only quantized GEMM: ``out = activation @ dequantize(weight).T + bias``.

One program computes one tile of the output and walks K alone, from 0 up, ``BLOCK_K`` at a time:

1. load a tile of packed weights, a tile of activations, and the scales of the groups the tile touches;
2. unpack and dequantize in fp32, ``(element - zero_point) * scale``, and round once to the 16-bit format of the
   activations; fp32 holds difference and product exactly, but for fp32 scales and fractions in a float zero point;
3. multiply on the tensor cores and add to the fp32 accumulator.

The accumulator is multiplied by the second-level scale, the bias is added, and the result is rounded once to the
output format. All of this is :func:`write_tile`, shared with :mod:`.moe`: a kernel only says which rows and which
weights its tile is of.

**The weights are the left operand.** A tile is ``weight (BLOCK_N, BLOCK_K) @ activation.T (BLOCK_K,
BLOCK_M)``, the output transposed. Dequantized weights then go from registers straight into the multiplier,
and since the tall side of a tensor core (64 on Hopper) lies along N, a batch of one token wastes little.

**Bits don't depend on the batch.** K is never split over programs, and neither ``BLOCK_K`` nor the order
along K depends on M: an output element goes through the same additions whatever the other rows are.

Layouts, all contiguous:

| tensor | shape | dtype |
|---|---|---|
| activation | (M, K) | fp16 or bf16 |
| weight | (N, ceil(K / 2)), element 2j in the low half of byte j; 8-bit elements: (N, K) | uint8 |
| scale | (groups, ceil(N / scale_rows)): neighbours in N are neighbours | fp32, fp16, bf16; uint8 for 8-bit ones |
| zero_point | (groups, N), or None; with ``scale_rows`` = 1 only | uint8, or as out |
| second_scale | (N,), or None | fp32, or as out |
| bias | (N,), or None | as out |
| out | (M, N) | as activation |
"""

import triton
import triton.language as tl

from humming_conformance.kernels.triton_fused.decode import decode_element, decode_scale


@triton.jit
def dense_kernel(
    activation,
    weight,
    scale,
    zero_point,
    second_scale,
    bias,
    out,
    M,
    N,
    K,
    scale_rows,  # rows of weights that share a scale: 1, those of a block, or N
    ELEMENT: tl.constexpr,  # of the weights and of the scales: the formats of :mod:`.decode`
    SCALE_FORMAT: tl.constexpr,
    GROUP_SIZE: tl.constexpr,  # columns of weights that share a scale
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Write tile (program_id(0), program_id(1)) of `out`; the module docstring has the layouts."""
    # Programs next to each other share a tile of weights: read from memory once, then from the L2 cache.
    first_token = tl.program_id(0) * BLOCK_M
    first_row = tl.program_id(1) * BLOCK_N
    m = tl.arange(0, BLOCK_M)
    # 64 bits to the tile, since M * K may pass 2^31; 32 bits within it.
    activation += first_token.to(tl.int64) * K
    out += first_token.to(tl.int64) * N
    write_tile(
        activation,
        m,
        out,
        m,
        m < M - first_token,
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


@triton.jit
def write_tile(
    activation,
    activation_row,  # (BLOCK_M,)
    out,
    out_row,  # (BLOCK_M,)
    m_valid,  # (BLOCK_M,): which of these rows there are; no other is read or written
    weight,
    scale,
    zero_point,
    second_scale,
    bias,
    first_row,  # of the weights: the tile's first column of the output
    N,
    K,
    scale_rows,
    ELEMENT: tl.constexpr,
    SCALE_FORMAT: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Write BLOCK_N columns of BLOCK_M rows of the output; one weight matrix, laid out as for the dense kernel."""
    n = tl.arange(0, BLOCK_N)
    n_valid = n < N - first_row

    # A K tile falls into stretches that lie within one group each, wherever the tile begins: as long as the largest
    # power of two that divides the group size (groups of 32 or 96: 32), or the whole tile.
    POWER: tl.constexpr = GROUP_SIZE & -GROUP_SIZE
    STRETCH: tl.constexpr = POWER if POWER < BLOCK_K else BLOCK_K
    STRETCHES: tl.constexpr = BLOCK_K // STRETCH
    groups = (K + GROUP_SIZE - 1) // GROUP_SIZE
    scale_width = (N + scale_rows - 1) // scale_rows
    scale_column = (first_row + n) // scale_rows
    PACK: tl.constexpr = 2 if ELEMENT == "int4" or ELEMENT == "uint4" or ELEMENT == "fp4_e2m1" else 1
    packed_width = (K + PACK - 1) // PACK
    weight += first_row.to(tl.int64) * packed_width
    out += first_row

    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k_start in range(0, K, BLOCK_K):
        k = k_start + tl.arange(0, BLOCK_K)
        byte = k_start // PACK + tl.arange(0, BLOCK_K // PACK)
        group = (k_start + STRETCH * tl.arange(0, STRETCHES)) // GROUP_SIZE

        # 1. Load. What lies beyond M, N and K reads as zero.
        a = tl.load(
            activation + activation_row[None, :] * K + k[:, None],
            mask=m_valid[None, :] & (k[:, None] < K),
            other=0.0,
        )
        packed = tl.load(
            weight + n[:, None] * packed_width + byte[None, :],
            mask=n_valid[:, None] & (byte[None, :] < packed_width),
            other=0,
        )
        group_offset = group[None, :] * scale_width + scale_column[:, None]
        group_mask = n_valid[:, None] & (group[None, :] < groups)
        s = tl.load(scale + group_offset, mask=group_mask, other=0)

        # 2. Dequantize, as (row, stretch, element of the stretch) in fp32.
        if PACK == 2:
            codes = tl.reshape(tl.join(packed & 0xF, packed >> 4), (BLOCK_N, BLOCK_K))
        else:
            codes = packed
        value = tl.reshape(decode_element(codes, ELEMENT), (BLOCK_N, STRETCHES, STRETCH))
        if zero_point is not None:
            z = tl.load(zero_point + group_offset, mask=group_mask, other=0)
            value -= z.to(tl.float32)[:, :, None]
        value *= decode_scale(s, SCALE_FORMAT)[:, :, None]
        value = tl.reshape(value, (BLOCK_N, BLOCK_K))
        # 0 * inf is NaN: a zero beyond K must not meet a weight that overflowed.
        value = tl.where(k[None, :] < K, value, 0.0)
        w = value.to(activation.dtype.element_ty)  # the one rounding of a weight

        # 3. Multiply and accumulate in fp32.
        acc = tl.dot(w, a, acc)

    if second_scale is not None:
        acc *= tl.load(second_scale + first_row + n, mask=n_valid, other=0.0).to(tl.float32)[:, None]
    if bias is not None:
        acc += tl.load(bias + first_row + n, mask=n_valid, other=0.0).to(tl.float32)[:, None]
    tl.store(
        out + out_row[None, :] * N + n[:, None],
        acc.to(out.dtype.element_ty),
        mask=m_valid[None, :] & n_valid[:, None],
    )
