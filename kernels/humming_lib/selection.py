# SPDX-License-Identifier: Apache-2.0
"""The schedule that Humming would run for a layer and an M.

A layer called without a tuning configuration gets the library's M-interval list: its heuristics evaluated
at a fixed series of M (``DeviceHeuristics.get_configs``, tune/base.py), neighbours with equal results
merged. So the entry for an M is the result at the first M of the series that is not smaller. We let the
library itself enumerate its series and evaluate that one point: milliseconds instead of seconds for the
whole list, and the same dictionary (tested).
"""

from __future__ import annotations

import json
from typing import Any

from humming_conformance.problems import Case

#: Our problem kinds to Humming's GEMM types.
GEMM_TYPES = {
    "dense": "dense",
    "moe_indexed": "indexed",
    "moe_grouped_contiguous": "grouped_contiguous",
    "moe_grouped_masked": "grouped_masked",
}


def compute_config(case: Case) -> dict[str, Any]:
    """The ``compute_config`` of a layer's call for a case."""
    config: dict[str, Any] = {"gemm_type": GEMM_TYPES[case.problem.kind]}
    if "batch_invariant" in case.call:
        config["use_batch_invariant"] = True
    return config


class SelectionError(RuntimeError):
    """The library has no schedule for a layer and M; the text carries what it said."""


def production_config(
    layer_config: Any, gemm_type: str, m: int, device: int = 0, *, batch_invariant: bool = False
) -> dict[str, Any]:
    """The configuration of the list's entry for ``m``, the M that the launcher dispatches on.

    ``batch_invariant`` asks for a schedule of the library's ``use_batch_invariant``. Raises SelectionError,
    naming layer, GEMM type and M, where the library's heuristics raise.
    """
    from humming.config import GemmType
    from humming.tune import get_heuristics_class, get_heuristics_config

    try:
        base = get_heuristics_class(device)
        series: Any = type("SampledM", (base,), {"get_config": staticmethod(_only_m)})
        entries = series.get_configs(
            layer_config=layer_config, gemm_type=GemmType(gemm_type), use_batch_invariant=batch_invariant
        )
        sampled_m = next((entry[2]["sampled_m"] for entry in entries if entry[0] < m <= entry[1]), None)
        if sampled_m is None:
            raise LookupError("M is in no interval")  # noqa: TRY301  # told like the library's own refusals
        config = get_heuristics_config(
            layer_config, shape_m=sampled_m, gemm_type=gemm_type, device=device, use_batch_invariant=batch_invariant
        )
    except Exception as error:
        layer = json.loads(layer_config.to_str())
        raise SelectionError(
            f"Humming has no {gemm_type} schedule for M={m}: {type(error).__name__}: "
            f"{str(error) or 'no message'} (layer N={layer['shape_n']} K={layer['shape_k']} "
            f"a={layer['a_dtype']} b={layer['b_dtype']} group={layer['weight_scale_group_size']})"
        ) from error
    return dict(config)


def _only_m(*, shape_m: int, **_: Any) -> dict[str, int]:
    """Stands in for the library's heuristics at one M of its series."""
    return {"sampled_m": shape_m}
