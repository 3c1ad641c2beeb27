# SPDX-License-Identifier: Apache-2.0
"""Faults in what is loaded: global to shared memory, shared memory to registers."""

from __future__ import annotations

from humming_conformance.problems import Case
from tests.seeded_faults.fault import (
    Fault,
    activation_bits,
    activation_groups,
    block_scales,
    channel_scales,
    experts,
    group_scales,
    grouped,
    indexed,
    integer_zero_point,
    mxfp4,
    token_scales,
    weight_group,
)

_TO_SHARED = "include/humming/memory/g2s_loader"
_TO_REGISTERS = "include/humming/memory/s2r_loader"

MEMORY_FAULTS = (
    Fault(
        "k_padding_read",
        "tail",
        f"{_TO_SHARED}/loader_a.cuh",
        "uint32_t gmem_row = kIsIndexedGemm ? load_row_index[i] : (smem_row % kLoadRows);\n"
        "      uint32_t gmem_offset = gmem_row * kGmemStride + gmem_col;\n\n"
        "      bool pred0 = (gmem_col * (128 / ElementA::kBits) + col_offset * kColOffsetToElem) < (",
        "uint32_t gmem_row = kIsIndexedGemm ? load_row_index[i] : (smem_row % kLoadRows);\n"
        "      uint32_t gmem_offset = gmem_row * kGmemStride + gmem_col;\n\n"
        "      bool pred0 = (gmem_col * (128 / ElementA::kBits) + col_offset * kColOffsetToElem) <= (",
        "Where K is padded, the first 16 bytes behind a row of activations are read as if they belonged to it.",
        lambda case: indexed(case) and activation_bits(case) == 8 and case.problem.k % 64 != 0,
    ),
    Fault(
        "group_scale_left_too_early",
        "scale index",
        f"{_TO_SHARED}/loader_bs.cuh",
        "counter = kLoadsPerGroup != 1 ? (counter + 1) % kLoadsPerGroup : 0;",
        "counter = 0;",
        "A group longer than the K tile hands its scale to its first tile only; each tile moves on to the next group.",
        lambda case: group_scales(case) and weight_group(case) * activation_bits(case) > 1024,
    ),
    Fault(
        "slice_starts_at_wrong_scale",
        "scale index",
        f"{_TO_SHARED}/loader_bs.cuh",
        "row_offset += k_block_id * kNumGroups;",
        "row_offset += k_block_id;",
        "A stream-K slice that begins inside K takes its scales as if a K tile held one group.",
        lambda case: group_scales(case) and weight_group(case) <= 32 and case.problem.k >= 512,
    ),
    Fault(
        "scales_of_wrong_expert",
        "scale index",
        f"{_TO_SHARED}/loader_bs.cuh",
        "row_offset = kProblemNumGroups * expert_id;",
        "row_offset = kNumGroups * expert_id;",
        "The scales of an expert are looked for one K tile, not one matrix, behind those of the expert before it.",
        lambda case: experts(case) and group_scales(case) and case.problem.k > weight_group(case),
    ),
    Fault(
        "zero_points_of_wrong_expert",
        "zero point",
        f"{_TO_SHARED}/loader_bzp.cuh",
        "row_offset = kProblemNumRows * expert_id;",
        "row_offset = kNumRows * expert_id;",
        "The zero points of an expert are looked for one K tile, not one matrix, behind the last expert's.",
        lambda case: experts(case) and integer_zero_point(case) and group_scales(case),
    ),
    Fault(
        "second_scale_of_first_expert",
        "scale index",
        f"{_TO_SHARED}/loader_bs2.cuh",
        "offset = expert_id * (ProblemShape::N / 64) + n_block_id * (BlockShape::N / 64);",
        "offset = n_block_id * (BlockShape::N / 64);",
        "Kernels that load by TMA use the first expert's second-level channel scales for every expert.",
        lambda case: grouped(case) and (case.weight.second_scale == "channel" or _mxfp4_int8(case)),
    ),
    Fault(
        "bias_of_first_expert",
        "wrong expert",
        f"{_TO_SHARED}/loader_bias.cuh",
        "uint32_t gmem_offset = expert_id * kGmemStride + n_block_id * kSmemStride;",
        "uint32_t gmem_offset = n_block_id * kSmemStride;",
        "Kernels that load without TMA add the first expert's bias to the rows of every expert.",
        lambda case: indexed(case) and case.problem.bias,
    ),
    Fault(
        "slots_scale_for_tokens",
        "scale index",
        f"{_TO_SHARED}/loader_as.cuh",
        "load_row_index[i] = smem_row < BlockShape::M ? ctx.get_rd_row_index()[smem_row] : shape_m;",
        "load_row_index[i] = smem_row < BlockShape::M ? ctx.get_wr_row_index()[smem_row] : shape_m;",
        "Activation scales are looked up by output row (token and slot), not by token.",
        lambda case: indexed(case) and activation_bits(case) == 8 and case.problem.top_k > 1,
    ),
    Fault(
        "token_scales_misaligned",
        "scale index",
        f"{_TO_REGISTERS}/loader_as.cuh",
        "m_base += m_offset % 4;",
        "m_base += m_offset % 2;",
        "Token scales, loaded in fours, are shifted where an expert's first row isn't a multiple of four.",
        lambda case: grouped(case) and token_scales(case),
    ),
    Fault(
        "odd_rows_take_even_scale",
        "scale index",
        f"{_TO_REGISTERS}/loader_as.cuh",
        "uint32_t m_index = m_base + i * 8 + sub_row + j;",
        "uint32_t m_index = m_base + i * 8 + sub_row;",
        "Every second row takes the group scales of the row before it.",
        activation_groups,
    ),
    Fault(
        "scales_of_wide_tiles_wrap",
        "scale index",
        f"{_TO_REGISTERS}/loader_bs.cuh",
        "n_warp_id % kNumWarpsPerPackBlock + pack_block_id * kPackBlockSize;",
        "n_warp_id % kNumWarpsPerPackBlock + pack_block_id % 2 * kPackBlockSize;",
        "Columns 128 and up of a tile 256 wide take the group scales of its first 128.",
        lambda case: group_scales(case) and activation_bits(case) == 16 and case.problem.n > 128,
    ),
    Fault(
        "channel_scale_of_wide_warps",
        "scale index",
        f"{_TO_REGISTERS}/loader_bs.cuh",
        "pack_block_id * kPackBlockSize * CEIL_DIV(WarpShape::N, 32);",
        "pack_block_id * kPackBlockSize;",
        "A warp that owns 64 columns takes channel scales as if each warp owned 32.",
        lambda case: channel_scales(case) and activation_bits(case) == 16 and experts(case) and case.problem.n > 128,
    ),
    Fault(
        "block_scale_of_first_columns",
        "scale index",
        f"{_TO_SHARED}/loader_bs.cuh",
        "col_offset = (n_block_id * BlockShape::N) / kGroupSizeN;",
        "col_offset = n_block_id / kGroupSizeN;",
        "Every tile takes the scales of the first blocks of N.",
        lambda case: block_scales(case) and case.problem.n >= 256,
    ),
    Fault(
        "second_block_takes_first_scale",
        "scale index",
        f"{_TO_REGISTERS}/loader_bs.cuh",
        "uint32_t index = ctx.n_warp_offset() / kGroupSizeN;",
        "uint32_t index = 0;",
        "In a tile over two blocks of N, the second block's columns take the first block's scale.",
        lambda case: block_scales(case) and case.problem.n >= 256,
    ),
    Fault(
        "zero_points_of_first_k_warp",
        "zero point",
        f"{_TO_REGISTERS}/loader_bzp.cuh",
        "uint32_t k_index = ctx.k_warp_offset() + iter_id * kPartMmaShapeK;\n        uint32_t row_index;",
        "uint32_t k_index = iter_id * kPartMmaShapeK;\n        uint32_t row_index;",
        "Where warps share a tile's K, all of them use the zero points of the first one's part.",
        lambda case: integer_zero_point(case) and 0 < weight_group(case) <= 64 and activation_bits(case) == 16,
    ),
    Fault(
        "bias_of_narrow_warps",
        "layout",
        f"{_TO_REGISTERS}/loader_bias.cuh",
        "bias_sh_rd = (n_warp_id / 2) * 8 + bias_sh_rd * 2 + warp_id % 2;",
        "bias_sh_rd = (n_warp_id / 4) * 8 + bias_sh_rd * 2 + warp_id % 2;",
        "Warps that own 16 columns take the bias of columns 32 to the left in every second pair.",
        lambda case: activation_bits(case) == 8 and (case.problem.bias or _mxfp4_int8(case)),
    ),
    Fault(
        "unowned_scale_rows_loaded",
        "scale index",
        f"{_TO_SHARED}/loader_as.cuh",
        "gmem_ptr = gmem_ptr_raw + ((row_offset * kProblemNumGroups) + col_offset);",
        "gmem_ptr = gmem_ptr_raw + ((m_block_id * BlockShape::M * kProblemNumGroups) + col_offset);",
        "Activation group scales are found by tile number, also where an expert's rows begin elsewhere.",
        lambda case: grouped(case) and activation_groups(case),
    ),
    Fault(
        "stage_read_too_early",
        "race",
        "include/humming/memory/g2s_pipeline.cuh",
        "if constexpr (kUseCpAsync) cp_async_wait_group<kNumStages - 2>();",
        "if constexpr (kUseCpAsync) cp_async_wait_group<kNumStages - 1>();",
        "A stage is read while its last copies may still be under way: one group of copies too many is left open.",
        lambda case: indexed(case) and case.problem.k >= 512,
    ),
    Fault(
        "phase_not_flipped",
        "race",
        "include/humming/memory/g2s_pipeline.cuh",
        "phases[stage_id] ^= 1;",
        "phases[stage_id] ^= 0;",
        "A stage used for the second time doesn't wait for its second load.",
        lambda case: not indexed(case) and case.problem.k >= 512,
    ),
    Fault(
        "channel_data_not_awaited",
        "race",
        "include/humming/kernel/humming.cuh",
        "    consumer.wait_channel();\n",
        "",
        "Channel scales, token scales and bias are read while their copies may still be under way.",
        lambda case: indexed(case) and (case.problem.bias or channel_scales(case)),
    ),
)


def _mxfp4_int8(case: Case) -> bool:
    """mxfp4 with int8 activations: its ranges of rows are kept as second-level scales."""
    return mxfp4(case) and case.activation.element == "int8"
