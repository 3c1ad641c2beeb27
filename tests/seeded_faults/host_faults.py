# SPDX-License-Identifier: Apache-2.0
"""Faults in the Python that prepares weights and names a kernel's parameters."""

from __future__ import annotations

from tests.seeded_faults.fault import (
    Fault,
    activation_bits,
    channel_scales,
    indexed,
    integer_zero_point,
    mxfp4,
    weight_group,
)

_TRANSFORM = "transform.py"

HOST_FAULTS = (
    Fault(
        "mxfp4_for_int8_packed_as_for_fp8",
        "layout",
        _TRANSFORM,
        "if config.use_fused_e8m0_scale and config.a_dtype == dtypes.float8e4m3:\n        interleave_mode = 2",
        "if config.use_fused_e8m0_scale:\n        interleave_mode = 2",
        "mxfp4 weights for int8 activations are packed in the order that fp8 activations need.",
        lambda case: mxfp4(case) and case.activation.element == "int8",
    ),
    Fault(
        "zero_point_nibbles_swapped",
        "zero point",
        _TRANSFORM,
        "zero_point = zero_point[..., 1::2] * 16 + zero_point[..., ::2]",
        "zero_point = zero_point[..., ::2] * 16 + zero_point[..., 1::2]",
        "4-bit zero points are packed with the second of a pair in the low half of the byte.",
        lambda case: integer_zero_point(case) and case.weight.element == "uint4",
    ),
    Fault(
        "channel_data_of_two_columns_swapped",
        "scale index",
        _TRANSFORM,
        "perm = [0, 1, 8, 9, 16, 17, 24, 25] if to_apply_on_c",
        "perm = [0, 1, 8, 9, 16, 17, 25, 24] if to_apply_on_c",
        "Channel scales and bias of two in 32 columns change places.",
        lambda case: channel_scales(case) or case.problem.bias,
    ),
    Fault(
        "split_groups_repeated_in_turn",
        "scale index",
        _TRANSFORM,
        "tensors[key] = tensor.repeat_interleave(num_groups // tensor.size(-1), dim=-1)",
        "tensors[key] = tensor.tile(num_groups // tensor.size(-1))",
        "Where a group of 96 is split into 32s, their scales and zero points follow each other in the wrong order.",
        lambda case: weight_group(case) == 96,
    ),
    Fault(
        "lowest_code_as_sign_and_magnitude",
        "layout",
        "schema/humming.py",
        "if not can_convert.item():",
        "if can_convert is None:",
        "Weights with the lowest code, which sign and magnitude can't say, are converted all the same.",
        lambda case: case.weight.element in ("int3", "int4", "int8") and case.activation.element != "int8",
    ),
    Fault(
        "k_padding_not_passed_on",
        "tail",
        "kernel/humming.py",
        'f"    Shape<0, {self.pad_shape[1]}, {self.pad_shape[2]}>,\\n"',
        'f"    Shape<0, {self.pad_shape[1]}, 0>,\\n"',
        "Kernels that load without TMA take rows of activations for as long as the padded K.",
        lambda case: indexed(case) and activation_bits(case) == 8 and case.problem.k % 64 != 0,
    ),
    Fault(
        "power_of_two_shift_reversed",
        "scale index",
        _TRANSFORM,
        "adjusted = (exponents - shift[:, None] + 127).clamp(112, 142).to(torch.uint8)",
        "adjusted = (exponents + shift[:, None] + 127).clamp(112, 142).to(torch.uint8)",
        "Power-of-two scales beyond fp16's range are shifted the wrong way into it.",
        lambda case: case.weight.scale_format == "ue8m0" and case.activation.element == "fp16",
    ),
    Fault(
        "fused_scale_range_cut",
        "precision",
        _TRANSFORM,
        "    elif config.a_dtype == dtypes.float8e4m3:\n        max_range_val = 11",
        "    elif config.a_dtype == dtypes.float8e4m3:\n        max_range_val = 8",
        "mxfp4 scales more than 8 binades below the largest are rounded up, their weights down.",
        lambda case: (
            mxfp4(case)
            and case.activation.element == "fp8_e4m3"
            and case.regime in ("scale_spread", "all_codes", "readout", "readout_wide")
        ),
    ),
)
