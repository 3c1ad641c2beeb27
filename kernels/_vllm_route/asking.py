# SPDX-License-Identifier: Apache-2.0
"""Cases as checkpoints that vLLM loads, and vLLM's answers to them: one process for each version and device."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from humming_conformance.devices import DeviceProfile
from humming_conformance.kernels._vllm_route.environments import Environment
from humming_conformance.problems import Case

#: What is asked for: vLLM's own choice, and backends by name.
REQUESTS = ("auto", "humming", "marlin", "triton")
#: Seconds that one process may take.
LIMIT = 300.0


class AskingError(RuntimeError):
    """vLLM's process gave no answers; the text says what it said."""


def checkpoint(case: Case) -> tuple[str, dict[str, Any]] | None:
    """The quantization method and ``quantization_config`` of a checkpoint with a case's scheme; None if none has it."""
    weight, activation = case.weight, case.activation
    kind, group = weight.granularity.kind, weight.granularity.group_size
    if weight.element == "fp4_e2m1" and weight.scale_format == "ue8m0" and activation.granularity is None:
        return "mxfp4", {"quant_method": "mxfp4"}
    if weight.element == "fp8_e4m3" and kind == "block":
        return "fp8", {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [weight.granularity.group_size_n, group],
        }
    if weight.element not in ("int4", "int8", "fp8_e4m3") or kind not in ("group", "channel"):
        return None
    weights = _arguments(weight.format.bits, weight.element, group)
    inputs = None
    if activation.granularity is not None:
        inputs = _arguments(8, activation.element, None) | {"strategy": "token", "dynamic": True}
    packed = weight.format.bits == 4 or (weight.element == "int8" and inputs is None)
    whole = "float-quantized" if weight.element.startswith("fp8") else "int-quantized"
    return "compressed-tensors", {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized" if packed else whole,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": inputs}},
        "ignore": [],
    }


def ask(
    environment: Environment, profile: DeviceProfile, cases: Sequence[Case]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Answers by case id and request; ``kernels/_vllm_route/inside/probe.py`` says what an answer holds.

    Raises:
        AskingError: the process failed, or took too long.
    """
    queries = [query for case in cases for query in _queries(case)]
    with tempfile.TemporaryDirectory(prefix="vllm-") as name:
        folder = Path(name)
        (folder / "queries.json").write_text(json.dumps(queries), encoding="utf-8")
        probe = Path(__file__).parent / "inside" / "probe.py"
        try:
            done = subprocess.run(
                [environment.python, probe, folder / "queries.json", folder / "answers.json"],
                env=environment.variables(profile.sm, profile.product),
                capture_output=True,
                text=True,
                timeout=LIMIT,
                cwd=folder,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise AskingError(f"vLLM {environment.version} gave no answers within {LIMIT:g} s") from None
        if done.returncode or not (folder / "answers.json").exists():
            raise AskingError(f"vLLM {environment.version}'s process failed: {done.stderr.strip()[-2000:]}")
        answers = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for key, answer in answers.items():
        case_id, request = key.split(" ")
        found.setdefault(case_id, {})[request] = answer
    return found


def _queries(case: Case) -> list[dict[str, Any]]:
    described = checkpoint(case)
    if described is None:
        return []
    method, config = described
    problem = case.problem
    sizes = {"n": problem.n, "k": problem.k}
    if problem.experts:  # N is gate and up together
        sizes = {
            "hidden": problem.k,
            "intermediate": problem.n // 2,
            "experts": problem.experts,
            "top_k": problem.top_k,
        }
    layer = "moe" if problem.experts else "dense"
    return [
        {"key": f"{case.id} {request}", "method": method, "config": config, "layer": layer, "request": request, **sizes}
        for request in REQUESTS
    ]


def _arguments(bits: int, element: str, group: int | None) -> dict[str, Any]:
    return {
        "num_bits": bits,
        "type": "float" if element.startswith("fp") else "int",
        "symmetric": True,
        "strategy": "channel" if group is None else "group",
        **({} if group is None else {"group_size": group}),
    }
