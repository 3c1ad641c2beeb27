# SPDX-License-Identifier: Apache-2.0
"""Real models' linear layers as problems: ``model_shapes/<model>.json``, one file each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

SHAPES = Path(__file__).parent / "model_shapes"

#: Scheme words of case ids for what checkpoints are called.
SCHEMES = {
    "int4_g128": "w_int4.g128.bf16-a_bf16",
    "int4_g32": "w_int4.g32.bf16-a_bf16",
    "int3_g128": "w_int3.g128.bf16-a_bf16",
    "uint4_zp": "w_uint4.g128.bf16.zp-a_bf16",
    "int8_weights": "w_int8.channel.bf16-a_bf16",
    "int8": "w_int8.channel.bf16-a_int8.token",
    "fp8_channel": "w_fp8_e4m3.channel.bf16-a_fp8_e4m3.token",
    "fp8_block": "w_fp8_e4m3.b128x128.fp32-a_fp8_e4m3.g128",
    "w4a8_fp8": "w_int4.g128.bf16-a_fp8_e4m3.token",
    "w4a8_int8": "w_int4.g128.bf16-a_int8.token",
    "mxfp4": "w_fp4_e2m1.g32.ue8m0-a_bf16",
    "mxfp4_fp8": "w_fp4_e2m1.g32.ue8m0-a_fp8_e4m3.token",
    "mxfp4_fp8_g32": "w_fp4_e2m1.g32.ue8m0-a_fp8_e4m3.g32",
    "nvfp4": "w_fp4_e2m1.g16.fp8_e4m3.s2tensor-a_bf16",
}


class ModelError(ValueError):
    """A model file can't be used; the text names it, the rule and the mend."""


@dataclass(frozen=True)
class Model:
    """The sizes of a model's feed-forward layers.

    Attributes:
        model: its name.
        hidden: size of the residual stream.
        intermediate: of the dense layers, None if all have experts.
        experts, top_k: 0 for a dense model.
        expert_intermediate: of one expert.
        schemes: what it ships in, keys of :data:`SCHEMES`.
        source: where the numbers are from.
    """

    model: str
    hidden: int
    intermediate: int | None
    experts: int
    top_k: int
    expert_intermediate: int | None
    schemes: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class Projection:
    """One matrix of a layer as one rank of ``tp`` holds it: (N, K), of each of ``experts`` experts (0: dense)."""

    name: str
    n: int
    k: int
    experts: int
    top_k: int


@cache
def load_models() -> dict[str, Model]:
    """Every model by the name of its file.

    Raises:
        ModelError: a file is damaged, or names a scheme that there isn't.
    """
    found = {}
    known = {field.name for field in fields(Model)}
    for path in sorted(SHAPES.glob("*.json")):
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise ModelError(f"model {path}: no JSON ({error}); restore the file") from error
        if not isinstance(stored, dict) or known ^ stored.keys():
            raise ModelError(f"model {path}: it must have exactly the fields {', '.join(sorted(known))}")
        if unknown := set(stored["schemes"]) - SCHEMES.keys():
            raise ModelError(
                f"model {path}: no such scheme: {', '.join(sorted(unknown))}; there are {', '.join(SCHEMES)}"
            )
        found[path.stem] = Model(**{**stored, "schemes": tuple(stored["schemes"])})
    return found


def projections(model: Model, tp: int) -> Iterator[Projection]:
    """Gate and up (one matrix) and down, dense and of the experts, as one of ``tp`` ranks holds them.

    A size that ``tp`` doesn't divide is left out.
    """
    for kind, size, experts, top_k in (
        ("dense", model.intermediate, 0, 1),
        ("expert", model.expert_intermediate, model.experts, model.top_k),
    ):
        if size is not None and size % tp == 0:
            yield Projection(f"{kind} gate and up", 2 * size // tp, model.hidden, experts, top_k)
            yield Projection(f"{kind} down", model.hidden, size // tp, experts, top_k)
