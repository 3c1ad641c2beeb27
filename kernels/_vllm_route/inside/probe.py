# SPDX-License-Identifier: Apache-2.0
# mypy: ignore-errors
"""Builds layers of vLLM on meta tensors and says which backend they got, or how they were refused.

``python probe.py QUERIES ANSWERS``, two JSON files, in vLLM's environment. A query has ``key``, ``method``, ``config``
(the checkpoint's quantization_config), ``layer`` (moe or dense), sizes and ``request``; its answer ``backend``,
``experts`` and ``warnings``, or ``refusal``.
"""

import json
import logging
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import torch

SINGLE = SimpleNamespace(
    world_size=1, rank_in_group=0, rank=0, ranks=[0], local_rank=0, device_group=None, cpu_group=None,
    first_rank=0, last_rank=0, is_first_rank=True, is_last_rank=True,
)  # fmt: skip


class _Warnings(logging.Handler):
    """Keeps what vLLM warns of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def main() -> None:
    """Answer every query of the first file in the second."""
    import vllm.distributed.parallel_state as groups

    for name in ("_TP", "_PP", "_DP", "_EP", "_PCP", "_DCP", "_WORLD"):
        if hasattr(groups, name):
            setattr(groups, name, SINGLE)
    torch.set_default_dtype(torch.bfloat16)
    warnings = _Warnings()
    logging.getLogger("vllm").addHandler(warnings)
    answers = {}
    for query in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        _forget_what_was_said()
        warnings.texts = []
        try:
            answer = _built(query)
        except Exception as error:  # noqa: BLE001  # a refusal is an answer
            answer = {"refusal": _refusal(error)}
        answers[query["key"]] = {**answer, "warnings": warnings.texts}
    Path(sys.argv[2]).write_text(json.dumps(answers), encoding="utf-8")


def _built(query: dict) -> dict:
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.quantization import get_quantization_config

    config = VllmConfig()
    if query["request"] != "auto":
        setattr(config.kernel_config, f"{'moe' if query['layer'] == 'moe' else 'linear'}_backend", query["request"])
    if query["layer"] == "dense":  # all that these ask of the model is its dtype; those with experts do without one
        object.__setattr__(config, "model_config", SimpleNamespace(dtype=torch.bfloat16))
    quantization = get_quantization_config(query["method"]).from_config(query["config"])
    with set_current_vllm_config(config), torch.device("meta"):
        layer = _moe(query, quantization) if query["layer"] == "moe" else _dense(query, quantization)
    owner = getattr(layer, "routed_experts", layer)
    method = getattr(owner, "quant_method", None)
    inner = getattr(method, "scheme", None) or getattr(owner, "scheme", None) or method
    found = {name: value for name, value in vars(inner).items() if "backend" in name and value is not None}
    kernel = next((value for value in vars(inner).values() if "Kernel" in type(value).__name__), None)
    backend = next((getattr(value, "name", str(value)) for value in found.values()), "")
    return {
        "backend": backend or type(kernel or inner).__name__,
        "experts": getattr(getattr(inner, "experts_cls", None), "__name__", ""),
        "method": type(inner).__name__,
    }


def _moe(query: dict, quantization: object) -> object:
    from vllm.model_executor.layers.fused_moe import FusedMoEFactory

    return FusedMoEFactory(
        num_experts=query["experts"],
        top_k=query["top_k"],
        hidden_size=query["hidden"],
        intermediate_size=query["intermediate"],
        params_dtype=torch.bfloat16,
        quant_config=quantization,
        tp_size=1,
        dp_size=1,
        pcp_size=1,
        prefix="model.layers.0.mlp.experts",
    )


def _dense(query: dict, quantization: object) -> object:
    from vllm.model_executor.layers.linear import ReplicatedLinear

    return ReplicatedLinear(
        query["k"],
        query["n"],
        bias=False,
        params_dtype=torch.bfloat16,
        quant_config=quantization,
        prefix="model.layers.0.mlp.down_proj",
    )


def _forget_what_was_said() -> None:
    """Let messages that are said once be said again."""
    from vllm import logger

    for value in vars(logger).values():
        if callable(getattr(value, "cache_clear", None)):
            value.cache_clear()


def _refusal(error: Exception) -> dict:
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        _, found, inside = frame.filename.partition("site-packages/vllm/")
        if found:
            place = f"{inside}:{frame.lineno} {frame.name}"
    return {"kind": type(error).__name__, "message": str(error), "place": place}


if __name__ == "__main__":
    main()
