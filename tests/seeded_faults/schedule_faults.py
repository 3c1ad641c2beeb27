# SPDX-License-Identifier: Apache-2.0
"""Faults in who computes and writes what: tiles, experts, slices of K, tails of the output."""

from __future__ import annotations

from tests.seeded_faults.fault import (
    Fault,
    activation_bits,
    contiguous,
    dense,
    grouped,
    indexed,
    masked,
)

_SCHEDULER = "include/humming/scheduler.cuh"
_WRITER = "include/humming/epilogue/gmem_writer.cuh"
_BARRIER = "include/humming/utils/ptx/barrier.cuh"
_EPILOGUE = "include/humming/epilogue/pipeline.cuh"

SCHEDULE_FAULTS = (
    Fault(
        "columns_past_n_written",
        "unowned write",
        _WRITER,
        "bool valid_column = PadShape::N == 0 || col_offset + gmem_col * 8 < ProblemShape::N - PadShape::N;",
        "bool valid_column = PadShape::N == 0 || col_offset + gmem_col * 8 <= ProblemShape::N - PadShape::N;",
        "Where N is padded, eight columns behind a row are written: the next row's first.",
        lambda case: indexed(case) and case.problem.n % 128 != 0,
    ),
    Fault(
        "row_past_the_last_written",
        "unowned write",
        _WRITER,
        "block_output_shape_m = row_offset < output_shape_m ? MIN(output_shape_m - row_offset, BlockShape::M) : 0;",
        "block_output_shape_m = row_offset < output_shape_m ? MIN(output_shape_m - row_offset + 1, BlockShape::M) : 0;",
        "Kernels that store without TMA write one row behind the last one of the matrix or the expert.",
        lambda case: (
            ((grouped(case) and case.problem.k % 128 == 64) or (dense(case) and case.problem.m <= 32))
            and activation_bits(case) == 16
        ),
    ),
    Fault(
        "padding_row_written",
        "unowned write",
        _WRITER,
        "bool valid_row = gmem_row < (kIsIndexedGemm ? output_shape_m : block_output_shape_m);",
        "bool valid_row = gmem_row < (kIsIndexedGemm ? output_shape_m + 1 : block_output_shape_m);",
        "The id that pads an expert's list is taken for a row: the one behind the output.",
        indexed,
    ),
    Fault(
        "tensor_map_row_past_the_last",
        "unowned write",
        _WRITER,
        "uint32_t rows = output_shape_m;",
        "uint32_t rows = output_shape_m + 1;",
        "Grouped kernels that store by TMA write one row behind each expert's last one.",
        grouped,
    ),
    Fault(
        "first_slice_added",
        "race",
        _WRITER,
        "if (!kUseStreamK || slice_count == 1 || slice_id == 0) {\n          gmem_ptr[gmem_offset] = val;",
        "if (!kUseStreamK || slice_count == 1) {\n          gmem_ptr[gmem_offset] = val;",
        "The first slice of a split tile is added to what lay in the output instead of replacing it.",
        lambda case: indexed(case) and case.problem.k >= 256,
    ),
    Fault(
        "lock_ignored",
        "race",
        _BARRIER,
        "} while (state != count);",
        "} while (state < 0);",
        "Slices of a tile add to the output without waiting for their turn.",
        lambda case: indexed(case) and case.problem.k >= 256,
    ),
    Fault(
        "first_slice_not_awaited",
        "race",
        _BARRIER,
        "} while (state > count);",
        "} while (state > 1);",
        "Slices that add by TMA don't wait until the first one has stored.",
        lambda case: not indexed(case) and case.problem.k >= 256,
    ),
    Fault(
        "bias_in_every_slice",
        "race",
        "include/humming/memory/s2r_pipeline.cuh",
        "if constexpr (kHasBias) loader_bias.load(smem.bias, epilogue.arith.regs_bias_as_ptr(), slice_id == 0);",
        "if constexpr (kHasBias) loader_bias.load(smem.bias, epilogue.arith.regs_bias_as_ptr(), true);",
        "Every slice of a split tile adds the bias.",
        lambda case: case.problem.bias and case.problem.k >= 256,
    ),
    Fault(
        "output_read_before_written",
        "race",
        _EPILOGUE,
        "      sync_output_threads();\n      if constexpr (Ctx::kOutputChunkRows) {",
        "      if constexpr (Ctx::kOutputChunkRows) {",
        "A tile is stored from shared memory before all warps have written their part of it there.",
        lambda case: case.problem.rows >= 16,
    ),
    Fault(
        "last_block_of_rows_dropped",
        "tail",
        _SCHEDULER,
        "m_blocks = CEIL_DIV(padded_shape_m, BlockShape::M * kNumCtasDimM);",
        "m_blocks = (padded_shape_m - 1) / (BlockShape::M * kNumCtasDimM);",
        "The last block of sorted ids is never computed.",
        indexed,
    ),
    Fault(
        "masked_count_ignored",
        "unowned write",
        _SCHEDULER,
        "current_shape_m = expert_id * expert_max_num_tokens + current_expert_num_tokens;",
        "current_shape_m = (expert_id + 1) * expert_max_num_tokens;",
        "An expert's last tile is written to its end, rows that belong to nobody included.",
        masked,
    ),
    Fault(
        "expert_writes_into_the_next",
        "wrong expert",
        _SCHEDULER,
        "current_shape_m = ctx.smem.expert_offset[expert_id] + current_expert_num_tokens;",
        "current_shape_m = ctx.smem.expert_offset[kNumExperts];",
        "An expert's last tile is written to its end, over the first rows of the next expert.",
        contiguous,
    ),
    Fault(
        "slot_taken_for_token",
        "layout",
        _SCHEDULER,
        "rd_row_index[index] = idx / ctx.params.top_k;\n      };",
        "rd_row_index[index] = idx % ctx.params.shape_m;\n      };",
        "Activations are looked up as if all first slots came before all second ones.",
        lambda case: indexed(case) and case.problem.top_k > 1,
    ),
    Fault(
        "release_without_fence",
        "race",
        _BARRIER,
        '      int32_t val = 1;\n      asm volatile("fence.acq_rel.gpu;\\n" ::: "memory");\n',
        "      int32_t val = 1;\n",
        "A slice passes its lock on without a fence, so that the next one may not see what it stored.",
        lambda case: indexed(case) and case.problem.k >= 512,
    ),
)
