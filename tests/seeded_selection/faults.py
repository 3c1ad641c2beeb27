# SPDX-License-Identifier: Apache-2.0
"""One-line faults of Humming's selection code, in the release 0.1.20."""

from __future__ import annotations

from dataclasses import dataclass

from tests.seeded_faults.fault import Fault


@dataclass(frozen=True)
class SelectionFault(Fault):
    """A fault of what is chosen; ``devices`` are those whose choices it can change."""

    devices: tuple[str, ...] = ("h100",)


def _fault(name: str, file: str, text: str, replacement: str, breaks: str, *devices: str) -> SelectionFault:
    return SelectionFault(name, "route", file, text, replacement, breaks, lambda _case: True, devices or ("h100",))


FAULTS = (
    _fault(
        "wgmma_for_k_of_256_alone",
        "config/mma.py",
        "    if layer_config.sm_version // 10 == 9 and layer_config.a_dtype != dtypes.int4:\n",
        "    if layer_config.sm_version // 10 == 9 and layer_config.shape_k % 256 == 0:\n",
        "WGMMA only where K is a multiple of 256; else mma.sync.",
    ),
    _fault(
        "tile_cap_lowered",
        "tune/sm90_policies.py",
        "        max_block_m = 256\n    else:\n        max_block_m = 176\n",
        "        max_block_m = 256\n    else:\n        max_block_m = 64\n",
        "No tile of more than 64 rows for 16-bit and 8-bit activations, of 176.",
    ),
    _fault(
        "rows_sampled_in_steps_of_64",
        "tune/base.py",
        "            shape_m_candidates += list(range(8, max_shape_m, 8))\n",
        "            shape_m_candidates += list(range(8, max_shape_m, 64))\n",
        "The M-interval list of sm_90 is sampled in steps of 64 rows, not 8.",
    ),
    _fault(
        "three_stages",
        "tune/sm90_policies.py",
        '        "use_f16_accum": problem.use_f16_accum,\n        "num_stages": 4,\n    }\n',
        '        "use_f16_accum": problem.use_f16_accum,\n        "num_stages": 3,\n    }\n',
        "Pipelines of three stages, not four.",
    ),
    _fault(
        "h20_is_anything_with_an_h",
        "tune/__init__.py",
        '        if "H20" in info.name and "H200" not in info.name:\n',
        '        if "H" in info.name and "H200" not in info.name:\n',
        "An H100 is served as an H20 by its name.",
    ),
    _fault(
        "list_ends_too_early",
        "tune/base.py",
        "        configs[-1][1] = 1 << 30\n",
        "        configs[-1][1] = 1 << 12\n",
        "No configuration for more than 4096 rows.",
        "a100",
    ),
    _fault(
        "too_much_shared_memory",
        "tune/sm8x.py",
        "    max_smem_size: int = 99 * 1024\n",
        "    max_smem_size: int = 163 * 1024\n",
        "sm_86 and sm_89 are thought to have the shared memory of sm_80.",
        "l40s",
    ),
    _fault(
        "fp8_forgotten_on_sm_89",
        "tune/sm8x.py",
        "    b8_allowed_dtypes: list[dtypes.DataType] = [dtypes.int8, dtypes.float8e4m3, dtypes.float8e5m2]\n",
        "    b8_allowed_dtypes: list[dtypes.DataType] = [dtypes.int8, dtypes.float8e5m2]\n",
        "fp8 activations are refused on sm_89, which has them.",
        "l40s",
    ),
    _fault(
        "compatible_from_sm_90_on",
        "schema/humming.py",
        "        dtypes.float8e4m3: 89,\n",
        "        dtypes.float8e4m3: 90,\n",
        "The compatibility function denies fp8 on sm_89, which selection serves.",
        "l40s",
    ),
    _fault(
        "another_policy_under_pytest",
        "tune/__init__.py",
        "    if sm_version == 90:\n",
        '    if sm_version == 90 and "PYTEST_CURRENT_TEST" not in os.environ:\n',
        "While a test runs an H20 is served as an H100.",
        "h20",
    ),
    _fault(
        "umma_for_n_of_1024_alone",
        "config/mma.py",
        "    if layer_config.is_umma_supported:\n",
        "    if layer_config.is_umma_supported and layer_config.shape_n % 1024 == 0:\n",
        "tcgen05 only where N is a multiple of 1024; else mma.sync.",
        "b200",
    ),
    _fault(
        "smaller_chips_without_umma",
        "config/mma.py",
        "    if layer_config.is_umma_supported:\n",
        "    if layer_config.is_umma_supported and current_device.sm_count > 140:\n",
        "A board with fewer than 140 multiprocessors is served by mma.sync.",
        "b200",
    ),
    _fault(
        "large_batches_get_small_tiles",
        "tune/base.py",
        "                block_shape_m = np.argmin(blocks).item() * 16 + 16\n",
        "                block_shape_m = 16 if shape_m > 4096 else np.argmin(blocks).item() * 16 + 16\n",
        "Above 4096 rows a dense tile has 16 of them.",
        "a100",
    ),
    _fault(
        "one_row_more_is_refused",
        "tune/base.py",
        "            if shape_m <= block_shape_m:\n",
        "            if shape_m <= block_shape_m and [1][shape_m // 129] == 1:\n",
        "From M = 129 on selection fails for tiles of more rows than that, with an IndexError.",
        "rtx5090",
    ),
    _fault(
        "wide_blocks_twice",
        "tune/sm8x.py",
        '                "block_shape": (128, 128, 512 // a_dtype.num_bits),\n',
        '                "num_ctas_per_sm": 3, "block_shape": (128, 128, 512 // a_dtype.num_bits),\n',
        "Three blocks on each multiprocessor of sm_86 and sm_89 for mxfp4 with 8-bit activations.",
        "l40s",
    ),
)
