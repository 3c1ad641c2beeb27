# SPDX-License-Identifier: Apache-2.0
"""What Humming would run on a recorded device, through its own code and without a GPU.

A layer is described as ``HummingLayer`` describes it in ``transform()``, but for its weights: schemas from the same
dictionaries, then ``prepare_layer_config``. What the library decides by the weights themselves stays at its answer for
weights that use every code (``convert_symmetric_integer_weight``) and scales that are near each other
(``fit_fused_e8m0_scale_range``, ``prepare_fp16_e8m0_scale``).
"""

from __future__ import annotations

import json
import linecache
import os
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from humming_conformance.devices import DeviceProfile
from humming_conformance.kernels.humming_lib import build, compiler, contracts, layout, profiled
from humming_conformance.kernels.humming_lib.selection import SelectionError, compute_config, production_config
from humming_conformance.problems import Case
from humming_conformance.protocols import Route
from humming_conformance.protocols_routing import Asked, Interval, Refusal, Selection, Stage

#: What the library reads to know that a test runs (``get_heuristics_config``, tune/__init__.py), and what overrules it.
_TEST, _SOURCE = "PYTEST_CURRENT_TEST", "HUMMING_TEST_TUNING_SOURCE"


class HummingSelector:
    """Humming as a :class:`~humming_conformance.protocols_routing.Selector`."""

    def __init__(self) -> None:
        self._layers: dict[Case, Any] = {}

    def install_profile(self, profile: DeviceProfile) -> None:
        """Let the library see a recorded device: :func:`.profiled.install`."""
        profiled.install(profile)

    def select(self, case: Case, asked: Asked) -> Selection:
        """The library's configuration for a case, accepted by its kernel object; or how it refuses."""
        stage: Stage = "layer"
        config: dict[str, Any] | None = None
        layer: dict[str, Any] = {}
        try:
            described = self._layer(case)
            layer = json.loads(described.to_str())
            stage = "selection"
            with _test_running() if asked == "under_pytest" else nullcontext():
                config = self._configuration(case, described, asked)
            stage = "kernel"
            kernel = build.unbuilt(build.joined(layer, compute_config(case), config))
            return Selection(_route(case, layer, config, kernel))
        except Exception as error:  # noqa: BLE001  # every way to refuse is an answer
            refusal = _refusal(stage, error)
            return Selection(None if config is None else _route(case, layer, config, None), refusal)

    def compatible(self, case: Case) -> bool | None:
        """``is_humming_schema_compatible`` of the case's schemas."""
        import torch
        from humming.schema.humming import is_humming_schema_compatible

        weight, activation = _schemas(case)
        output = getattr(torch, layout.TORCH_DTYPES[case.output])
        return bool(is_humming_schema_compatible(activation, weight, output))

    def intervals(self, case: Case) -> tuple[Interval, ...]:
        """The list that a layer called without a tuning configuration gets."""
        from humming.tune import get_heuristics_config

        layer = self._layer(case)
        entries = get_heuristics_config(layer, **compute_config(case), device=0)
        text = json.loads(layer.to_str())
        return tuple(Interval(int(low), int(high), _route(case, text, dict(c), None)) for low, high, c in entries)

    def source(self, case: Case) -> Mapping[str, Any]:
        """The source of what production would run: :mod:`.compiler`."""
        described = self._layer(case)
        config = self._configuration(case, described, "production")
        layer = json.loads(described.to_str())
        return asdict(compiler.source_code(build.unbuilt(build.joined(layer, compute_config(case), config))))

    def shared(self, case: Case) -> str:
        """Whether two callers get one dictionary: what one changes, the other runs."""
        from humming.tune import get_heuristics_config

        layer = self._layer(case)
        rows = case.problem.rows
        asked = {"layer_config": layer, "shape_m": rows, "device": 0, **compute_config(case)}
        first = get_heuristics_config(**asked)
        before = dict(first)
        first["num_stages"] = 0
        second = get_heuristics_config(**asked)
        changed = sorted(key for key in before | second if before.get(key) != second.get(key))
        first.clear()
        first.update(before)
        if not changed:
            return ""
        return f"a caller that sets num_stages in its own answer for M={rows} has set it in the next caller's"

    def _layer(self, case: Case) -> Any:
        """The layer of a case, described once for all M."""
        key = replace(case, problem=replace(case.problem, m=1, distribution="balanced"), regime="random", seed=0)
        if key not in self._layers:
            self._layers[key] = _describe(key)
        return self._layers[key]

    def _configuration(self, case: Case, layer: Any, asked: Asked) -> dict[str, Any]:
        from humming.tune import get_heuristics_config

        call = compute_config(case)
        if asked == "single_m":
            return dict(get_heuristics_config(layer, shape_m=case.problem.rows, device=0, **call))
        try:
            return production_config(
                layer,
                call["gemm_type"],
                case.problem.rows,
                batch_invariant=call.get("use_batch_invariant", False),
            )
        except SelectionError as error:
            raise error.__cause__ or error from None  # as the library said it


def _schemas(case: Case) -> tuple[Any, Any]:
    """The weight and the input schema of a case's layer, as ``HummingLayer.__post_init__`` makes them."""
    import torch
    from humming import dtypes
    from humming.schema import BaseInputSchema, BaseWeightSchema

    output = getattr(torch, layout.TORCH_DTYPES[case.output])
    activation = layout.input_config(case) or {
        "quant_method": "humming",
        "dtype": dtypes.DataType.from_torch_dtype(output),
    }
    return BaseWeightSchema.from_config(layout.weight_config(case)), BaseInputSchema.from_config(activation)


def _describe(case: Case) -> Any:
    """The library's ``LayerConfig`` of a case."""
    import torch
    from humming.transform import prepare_layer_config

    output = getattr(torch, layout.TORCH_DTYPES[case.output])
    weight, activation = _schemas(case)
    pad_n, pad_k = layout.padding(case)
    return prepare_layer_config(
        shape_n=case.problem.n,
        shape_k=case.problem.k,
        weight_schema=weight,
        input_schema=activation,
        num_experts=case.problem.experts or None,
        pad_n_to_multiple=pad_n,
        pad_k_to_multiple=pad_k,
        has_bias=case.problem.bias,
        torch_dtype=output,
        device=0,
    )


def _route(case: Case, layer: Mapping[str, Any], config: Mapping[str, Any], kernel: Any) -> Route:
    """A configuration as a route; ``kernel`` is the object that accepted it, None where none has been made."""
    tile = config["block_shape"]
    mma_class = str(config["mma_type"]) if kernel is None else str(kernel.mma_type.value)
    details = {
        "tuning_config": json.loads(json.dumps(dict(config))),
        "warp_shape": list(config["warp_shape"]),
        "blocks_per_sm": int(config.get("num_ctas_per_sm", 1)),
        "executed_weight": layer["b_dtype"],
    }
    if kernel is not None:
        details["threads"] = int(kernel.num_threads)
        details["shared_memory_bytes"] = int(kernel.estimated_smem_size)
    executed = {name: ours for ours, name in layout.DTYPES.items()} | {"int8": "int8"}
    return Route(
        path=f"{mma_class}_{contracts.scale_path(case, layer)}",
        mma_class=mma_class,
        tile=(int(tile[0]), int(tile[1]), int(tile[2])),
        stages=int(config.get("num_stages", 2)),
        activation_format=executed.get(layer["a_dtype"], layer["a_dtype"]),
        details=details,
    )


def _refusal(stage: Stage, error: Exception) -> Refusal:
    import humming

    root = Path(humming.__file__).parent
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if root in Path(frame.filename).parents]
    place, interface = "outside of the library", False
    if frames:
        last = frames[-1]
        line = linecache.getline(last.filename, last.lineno or 0).strip()
        place = f"{Path(last.filename).relative_to(root)}:{last.lineno} {last.name}"
        interface = line.startswith(("raise ", "assert "))
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return Refusal(stage, name, str(error), place, interface)


@contextmanager
def _test_running() -> Iterator[None]:
    """The environment of a process in which pytest runs a test, with nothing said about the library's own tests."""
    source = os.environ.pop(_SOURCE, None)
    os.environ[_TEST] = "test_model.py::test_forward (call)"
    try:
        yield
    finally:
        del os.environ[_TEST]
        if source is not None:
            os.environ[_SOURCE] = source
