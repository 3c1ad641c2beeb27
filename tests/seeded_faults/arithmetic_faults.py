# SPDX-License-Identifier: Apache-2.0
"""Faults in what is computed: decoding, zero points, scales, accumulation, rounding."""

from __future__ import annotations

from tests.seeded_faults.fault import (
    Fault,
    activation_bits,
    activation_groups,
    channel_scales,
    dense,
    experts,
    group_scales,
    integer_zero_point,
    mxfp4,
    token_scales,
    weight_group,
)

_MAINLOOP = "include/humming/arith/mainloop_arith.cuh"
_WGMMA = "include/humming/mma/wgmma.cuh"
_REPACK = "include/humming/kernel/process.cuh"

ARITHMETIC_FAULTS = (
    Fault(
        "fp4_half_is_three_quarters",
        "layout",
        "include/humming/datatype/dequant_fused.cuh",
        "uint32_t exp_offset_buffer1 = (exp_offset * 0x08080800) + ((0x03020100 << 2) - 0x00000400);",
        "uint32_t exp_offset_buffer1 = (exp_offset * 0x08080800) + (0x03020100 << 2);",
        "fp4's only subnormal becomes 0.75 where mxfp4 weights are turned into fp8.",
        lambda case: mxfp4(case) and case.activation.element == "fp8_e4m3",
    ),
    Fault(
        "fp4_three_is_seven_halves",
        "layout",
        "include/humming/datatype/dequant_fused.cuh",
        "uint32_t buffer2 = 0x0C080604 << exp_offset;",
        "uint32_t buffer2 = 0x0C080704 << exp_offset;",
        "The fp4 code of 3 becomes 3.5 where mxfp4 weights are turned into int8.",
        lambda case: mxfp4(case) and case.activation.element == "int8",
    ),
    Fault(
        "negative_integers_off_by_one",
        "layout",
        "include/humming/datatype/dequant_single.cuh",
        "return lop3_and_or(val, mask2, sign_bit << delta_bits1) + (sign_bit >> delta_bits2);",
        "return lop3_and_or(val, mask2, sign_bit << delta_bits1);",
        "Negative integers become one too large where they are turned into floats by shifting.",
        lambda case: case.weight.element in ("int4", "int8") and case.activation.element in ("fp8_e4m3", "bf16"),
    ),
    Fault(
        "int3_loses_a_bit",
        "layout",
        _REPACK,
        "((out_arr[4 * i + 2] & 0x66666666) << 1);",
        "((out_arr[4 * i + 2] & 0x22222222) << 1);",
        "One bit of every fourth int3 weight is lost when three words are packed.",
        lambda case: case.weight.element == "int3",
    ),
    Fault(
        "zero_points_in_other_order",
        "zero point",
        _WGMMA,
        "zp_vals.z = tmp;",
        "zp_vals.z = zp_vals.y;",
        "One of the four zero points of a fragment is another one's.",
        lambda case: integer_zero_point(case) and activation_bits(case) == 16,
    ),
    Fault(
        "zero_point_of_first_group",
        "zero point",
        _REPACK,
        "zp_val = zp_smem_row[index / kGroupSizeZP];",
        "zp_val = zp_smem_row[0];",
        "Where 64 weights along K hold two groups, both are packed with the first one's zero point.",
        lambda case: integer_zero_point(case) and weight_group(case) == 32 and case.activation.element == "fp8_e4m3",
    ),
    Fault(
        "float_zero_point_of_neighbour",
        "zero point",
        _MAINLOOP,
        "scalar_t2 bzp_single = bzp_f16_ptr[kUseWgmma ? k : i];",
        "scalar_t2 bzp_single = bzp_f16_ptr[i];",
        "Half of a fragment takes the float zero point of the column eight further.",
        lambda case: case.weight.zero_point == "float",
    ),
    Fault(
        "narrow_scales_in_conversion_order",
        "scale index",
        _MAINLOOP,
        "bs_half_ptr[j < 4 ? j / 2 * 4 + i * 2 + j % 2 : j * 2 + i]",
        "bs_half_ptr[j * 2 + i]",
        "8-bit group scales are taken in the order 0 2 1 3 in which their conversion leaves them.",
        lambda case: weight_group(case) in (16, 32) and case.weight.scale_format in ("fp8_e4m3", "ue8m0"),
    ),
    Fault(
        "tensor_scale_of_first_expert",
        "scale index",
        "include/humming/epilogue/pipeline.cuh",
        "arith.gs = gs_ptr[Ctx::kIsDenseGemm ? 0 : expert_id];",
        "arith.gs = gs_ptr[Ctx::kIsIndexedGemm ? expert_id : 0];",
        "Grouped kinds multiply every expert's rows by the first expert's tensor scale.",
        lambda case: (
            experts(case)
            and (
                case.weight.granularity.kind == "tensor"
                or case.weight.second_scale == "tensor"
                or (mxfp4(case) and case.activation.element == "fp8_e4m3")
            )
        ),
    ),
    Fault(
        "partial_sum_not_reset",
        "scale index",
        _WGMMA,
        "scale_d = scale_d && (k_slab * kPartMmaShapeK) % Ctx::kWeightScaleGroupSize > 0;",
        "scale_d = scale_d && k_slab > 0;",
        "A tile's second group begins with the first one's sum, which is thus scaled by both groups' scales.",
        lambda case: token_scales(case) and 0 < weight_group(case) <= 64 and not mxfp4(case),
    ),
    Fault(
        "accumulators_read_early",
        "race",
        _WGMMA,
        "wgmma_wait<0>();",
        "wgmma_wait<1>();",
        "Accumulators are read while the last matrix instructions may still be under way.",
        lambda case: activation_bits(case) == 8 and (group_scales(case) or activation_groups(case)),
    ),
    Fault(
        "second_k_warp_reads_first",
        "layout",
        _WGMMA,
        "smem_offset += (col_offset / kSwizzleSizeK) * (BlockShape::M * kSwizzleBytes / 16);",
        "smem_offset += (col_offset / kSwizzleSizeK) * (BlockShape::M * kSwizzleBytes / 32);",
        "Warps that own the second part of a tile's K multiply activations of other rows and columns.",
        lambda case: activation_bits(case) == 16 and case.problem.k % 128 == 0 and experts(case),
    ),
    Fault(
        "fourth_k_warp_dropped",
        "race",
        "include/humming/epilogue/smem_reducer.cuh",
        "for (uint32_t buffer_id = 0; buffer_id < group_num_warps - 1; buffer_id++) {",
        "for (uint32_t buffer_id = 0; buffer_id < MIN(group_num_warps - 1, 2u); buffer_id++) {",
        "Of four warps that share a tile's K, the last one's sum is left out.",
        lambda case: activation_bits(case) == 8 and case.problem.k % 256 == 0 and case.problem.rows <= 128,
    ),
    Fault(
        "reduction_barrier_dropped",
        "race",
        "include/humming/epilogue/smem_reducer.cuh",
        "        ctx.sync_math_threads();\n        if (group_warp_id == 0) {\n",
        "        if (group_warp_id == 0) {\n",
        "The sums of warps that share a tile's K are added before all of them are written.",
        lambda case: case.problem.k % 128 == 0 and activation_bits(case) == 16,
    ),
    Fault(
        "odd_rows_of_small_tiles_swapped",
        "layout",
        "include/humming/mma/wmma.cuh",
        "values[column * 2 + 1] = is_odd_row ? odd_second : even_second;",
        "values[column * 2 + 1] = is_odd_row ? even_second : odd_second;",
        "In tiles of 8 rows that run on mma instructions, half of the odd rows' results come from even rows and back.",
        lambda case: dense(case) and case.problem.m <= 8 and activation_bits(case) == 16,
    ),
    Fault(
        "output_truncated",
        "precision",
        "include/humming/datatype/base_conversion.cuh",
        "return __float22bfloat162_rn(x);",
        "return __halves2bfloat162(__float2bfloat16_rz(x.x), __float2bfloat16_rz(x.y));",
        "bf16 results are truncated instead of rounded to nearest.",
        lambda case: case.output == "bf16",
    ),
    Fault(
        "product_rounded_before_bias",
        "precision",
        "include/humming/arith/epilogue_arith.cuh",
        "regs_half2[0] = __hfma2(regs_half2[0], cs_half2[col], bias_half2[col]);",
        "regs_half2[0] = __hadd2(__hmul2_rn(regs_half2[0], cs_half2[col]), bias_half2[col]);",
        "Sum times channel scale is rounded once more before the bias is added.",
        lambda case: channel_scales(case) and case.problem.bias,
    ),
    Fault(
        "scales_multiplied_in_bf16",
        "precision",
        _MAINLOOP,
        "part_regs_c1.x += as_vals.x * bs_val * part_regs_c0.x;",
        "part_regs_c1.x += __bfloat162float(__float2bfloat16_rn(as_vals.x * bs_val)) * part_regs_c0.x;",
        "In even rows the product of activation and weight scale is rounded to bf16.",
        lambda case: activation_groups(case) and group_scales(case) and not mxfp4(case),
    ),
)
