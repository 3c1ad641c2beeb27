# SPDX-License-Identifier: Apache-2.0
# A Triton kernel is one function, in the subset of Python that Triton compiles.
# ruff: noqa: PLR0917, PLR1714, SIM108
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Dense weight-only quantized GEMM: ``out = activation @ dequantize(weight).T + bias``.

One program computes one tile of the output and walks K alone, from 0 up, ``BLOCK_K`` at a time:

1. load a tile of packed weights, a tile of activations, and the scales of the groups the tile touches;
2. unpack and dequantize in fp32, which is exact, and round once to the 16-bit format of the activations;
3. multiply on the tensor cores and add to the fp32 accumulator.

The bias is added to the accumulator, and the result is rounded once to the output format. All of this is
:func:`write_tile`, shared with :mod:`.moe`: a kernel only says which rows and which weights its tile is of.

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
| scale | (groups, N): neighbours in N are neighbours in memory | fp16, bf16; uint8 for ue8m0 |
| zero_point | (groups, N), or None | uint8 |
| bias | (N,), or None | as out |
| out | (M, N) | as activation |
"""

import triton
import triton.language as tl


@triton.jit
def dense_kernel(
    activation,
    weight,
    scale,
    zero_point,
    bias,
    out,
    M,
    N,
    K,
    ELEMENT: tl.constexpr,  # int4, int8, uint4, uint8 or fp4_e2m1
    GROUP_SIZE: tl.constexpr,  # divides BLOCK_K, or is a multiple of it
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
        bias,
        first_row,
        N,
        K,
        ELEMENT,
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
    bias,
    first_row,  # of the weights: the tile's first column of the output
    N,
    K,
    ELEMENT: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Write BLOCK_N columns of BLOCK_M rows of the output; one weight matrix, laid out as for the dense kernel."""
    n = tl.arange(0, BLOCK_N)
    n_valid = n < N - first_row

    # A K tile touches several groups, or lies within one.
    GROUPS: tl.constexpr = BLOCK_K // GROUP_SIZE if GROUP_SIZE < BLOCK_K else 1
    groups = (K + GROUP_SIZE - 1) // GROUP_SIZE
    PACK: tl.constexpr = 1 if ELEMENT == "int8" or ELEMENT == "uint8" else 2
    packed_width = (K + PACK - 1) // PACK
    weight += first_row.to(tl.int64) * packed_width
    out += first_row

    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k_start in range(0, K, BLOCK_K):
        k = k_start + tl.arange(0, BLOCK_K)
        byte = k_start // PACK + tl.arange(0, BLOCK_K // PACK)
        group = k_start // GROUP_SIZE + tl.arange(0, GROUPS)

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
        group_offset = group[None, :] * N + first_row + n[:, None]
        group_mask = n_valid[:, None] & (group[None, :] < groups)
        s = tl.load(scale + group_offset, mask=group_mask, other=0)

        # 2. Dequantize, as (row, group, element of the group) in fp32.
        if PACK == 2:
            codes = tl.reshape(tl.join(packed & 0xF, packed >> 4), (BLOCK_N, BLOCK_K))
        else:
            codes = packed
        if ELEMENT == "int4":
            value = ((codes ^ 8).to(tl.int8) - 8).to(tl.float32)  # extends the sign: 8…15 become -8…-1
        elif ELEMENT == "int8":
            value = codes.to(tl.int8, bitcast=True).to(tl.float32)
        elif ELEMENT == "fp4_e2m1":
            # Exponent and mantissa are those of the fp16 number 2^14 times smaller, subnormals included.
            bits = ((codes & 8).to(tl.uint16) << 12) | ((codes & 7).to(tl.uint16) << 9)
            value = bits.to(tl.float16, bitcast=True).to(tl.float32) * 16384.0
        else:
            value = codes.to(tl.float32)
        value = tl.reshape(value, (BLOCK_N, GROUPS, BLOCK_K // GROUPS))
        if zero_point is not None:
            z = tl.load(zero_point + group_offset, mask=group_mask, other=0)
            value -= z.to(tl.float32)[:, :, None]
        if scale.dtype.element_ty == tl.uint8:
            # ue8m0 is the exponent field of an fp32, but 0 is 2^-127 (a subnormal there) and 255 is NaN.
            exponent = s.to(tl.uint32)
            s = tl.where(exponent == 0, 0x00400000, tl.where(exponent == 255, 0x7FC00000, exponent << 23))
            value *= s.to(tl.float32, bitcast=True)[:, :, None]
        else:
            value *= s.to(tl.float32)[:, :, None]
        value = tl.reshape(value, (BLOCK_N, BLOCK_K))
        # 0 * inf is NaN: a zero beyond K must not meet a weight that overflowed.
        value = tl.where(k[None, :] < K, value, 0.0)
        w = value.to(activation.dtype.element_ty)  # the one rounding of a weight

        # 3. Multiply and accumulate in fp32.
        acc = tl.dot(w, a, acc)

    if bias is not None:
        acc += tl.load(bias + first_row + n, mask=n_valid, other=0.0).to(tl.float32)[:, None]
    tl.store(
        out + out_row[None, :] * N + n[:, None],
        acc.to(out.dtype.element_ty),
        mask=m_valid[None, :] & n_valid[:, None],
    )
