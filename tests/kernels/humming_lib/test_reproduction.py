# SPDX-License-Identifier: Apache-2.0
"""The stand-alone script for Humming, run against a small NumPy stand-in for the library."""

import ast
import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from humming_conformance.campaign.plan import RunOptions, make_plan
from humming_conformance.campaign.repro import script
from humming_conformance.devices import Device
from humming_conformance.formats import element_format
from humming_conformance.kernels.humming_lib import kernel, layout
from humming_conformance.problems import build_operands, parse_case
from humming_conformance.protocols import Verdict

SCHEDULE = {"block_shape": [16, 128, 64], "num_stages": 4, "use_stream_k": False}
ROUTE = {"details": {"library": "0.1.20", "hardware_sm": 90, "tuning_config": SCHEDULE}}

READOUTS = [
    "dense-w_int4.g32.bf16-a_bf16-m5.n16.k64-bias-readout",
    "dense-w_uint4.g32.fp16.zp-a_fp16-m5.n16.k64-readout",
    "dense-w_fp4_e2m1.g32.ue8m0-a_fp8_e4m3.token-m5.n16.k64-readout",
    "dense-w_int8.channel.bf16-a_int8.token-m5.n16.k64-readout",
    "moe_indexed-w_uint4.g32.bf16.zp-a_int8.token-m21.n16.k64.e5.top2.skewed-bias-readout",
    "moe_grouped_contiguous-w_int4.g64.bf16-a_bf16-m21.n16.k64.e5.top2.empty_middle-readout",
    "moe_grouped_masked-w_fp8_e4m3.channel.fp16-a_fp8_e4m3.token-o_fp16-m21.n16.k64.e5.top2.one-bias-readout",
    "moe_grouped_masked-w_int4.channel.bf16-a_int8.token-m9.n16.k64.e3.top2-readout",
    "dense-w_uint4.g32.bf16.fzp-a_bf16-m5.n16.k64-readout",
    "moe_grouped_contiguous-w_int4.g32.bf16-a_int8.g32-m9.n16.k64.e3.top2-readout",
    "moe_indexed-w_fp4_e2m1.g16.fp8_e4m3.s2tensor-a_bf16-m9.n16.k64.e3.top2-readout",
    "dense-w_fp4_e2m1.g16.fp8_e4m3.s2channel-a_fp16-m5.n16.k64-readout",
    "moe_indexed-w_fp8_e4m3.tensor.fp32-a_fp8_e4m3.token-m9.n16.k64.e3.top2-readout",
    "dense-w_fp8_e4m3.b128x128.fp32-a_fp8_e4m3.g128-m5.n128.k256-readout",
]


class NumpyLayer:
    """What the documentation says of ``HummingLayer``, one row at a time in float64.

    ``loaded`` keeps the last tensors; ``schedules`` what each call was told to run.
    """

    loaded: dict[str, torch.Tensor]
    schedules: list[Any]
    writes_unowned_rows = False

    def __init__(self, *, shape_n: int, shape_k: int, weight_config: dict[str, Any], **given: Any) -> None:
        self.n, self.k, self.weight_config, self.given = shape_n, shape_k, weight_config, given
        self.humming_config = SimpleNamespace(n=shape_n)

    def load_from_tensors(self, tensors: dict[str, torch.Tensor]) -> None:
        type(self).loaded = tensors

    def cuda(self) -> "NumpyLayer":
        return self

    def transform(self) -> None:
        tensors = self.loaded
        if self.given["num_experts"] is None:
            tensors = {name: tensor[None] for name, tensor in tensors.items()}
        assert ("bias" in tensors) == self.given["has_bias"]
        name = self.weight_config["dtype"]
        element = element_format(name.replace("float", "fp").replace("4e", "4_e").replace("8e", "8_e"))
        weight = element.decode(_unpacked(tensors["weight"], element.bits))
        if self.weight_config.get("is_fp_zero_point"):
            zero_point = tensors["zero_point"].double().numpy()
            weight = weight - np.repeat(zero_point, self.k // zero_point.shape[2], axis=2)
        elif "zero_point" in tensors:
            along_n = _unpacked(tensors["zero_point"].mT, element.bits)
            weight = weight - np.repeat(along_n.swapaxes(1, 2), self.k // along_n.shape[1], axis=2)
        elif name.startswith("uint"):
            weight = weight - (1 << (element.bits - 1))
        scale = tensors["weight_scale"].double().numpy()
        if self.weight_config.get("scale_type") == "tensor":
            scale = scale.reshape(-1, 1, 1)
        scale = np.repeat(scale, self.n // scale.shape[1], axis=1)
        self.weight = weight * np.repeat(scale, self.k // scale.shape[2], axis=2)
        if "scale_2_type" in self.weight_config:
            second = tensors["weight_scale_2"].double().numpy()
            self.weight = self.weight * second.reshape(len(weight), -1, 1)
        self.bias = tensors["bias"].double().numpy() if self.given["has_bias"] else np.zeros((99, self.n))

    def __call__(
        self,
        *,
        inputs: torch.Tensor,
        outputs: torch.Tensor,
        compute_config: dict[str, Any],
        tuning_config: dict[str, Any],
        input_scale: torch.Tensor | None = None,
        **given: Any,
    ) -> None:
        self.schedules.append(tuning_config)
        if self.writes_unowned_rows:
            outputs.fill_(0)
        for row, source, expert in _rows(compute_config["gemm_type"], len(outputs), tuning_config, given):
            activation = inputs[source].double().numpy()
            if input_scale is not None:
                scale = input_scale[source].double().numpy()
                activation = activation * np.repeat(scale, self.k // len(scale))
            result = self.weight[expert] @ activation
            outputs[row] = torch.from_numpy(result + self.bias[expert]).to(outputs.dtype)


def _unpacked(words: torch.Tensor, bits: int) -> np.ndarray:
    """Codes of a little-endian bit stream along the last axis."""
    stream = np.unpackbits(np.ascontiguousarray(words.numpy()).view(np.uint8), axis=-1, bitorder="little")
    return np.packbits(stream.reshape(*words.shape[:-1], -1, bits), axis=-1, bitorder="little")[..., 0]


def _rows(gemm_type: str, rows: int, schedule: dict[str, Any], given: dict[str, Any]) -> Iterator[tuple[int, int, int]]:
    """(output row, input row, expert) of everything that the documented call computes."""
    if gemm_type == "dense":
        yield from ((row, row, 0) for row in range(rows))
    elif gemm_type == "indexed":
        for slot in range(int(given["num_tokens_padded"])):
            row = int(given["sorted_ids"][slot])
            if row < rows:
                expert = given["expert_ids"][slot // schedule["block_shape"][0]]
                yield row, row // given["top_k"], int(expert)
    elif gemm_type == "grouped_contiguous":
        for expert, (start, stop) in enumerate(pairwise(given["expert_layout"].tolist())):
            yield from ((row, row, expert) for row in range(start, stop))
    else:
        counts = given["expert_layout"].tolist()
        assert given["valid_shape_m"] == sum(counts)
        for expert, count in enumerate(counts):
            start = expert * (rows // len(counts))
            yield from ((row, row, expert) for row in range(start, start + count))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> type[NumpyLayer]:
    """A ``humming`` whose layer is a fresh :class:`NumpyLayer`, and tensors that stay on the CPU."""
    layer = type("Layer", (NumpyLayer,), {"loaded": {}, "schedules": []})
    modules = {name: ModuleType(name) for name in ("humming", "humming.layer", "humming.tune")}
    modules["humming.layer"].HummingLayer = layer  # type: ignore[attr-defined]
    modules["humming.tune"].get_heuristics_config = _two_schedules  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    return layer


def _two_schedules(_layer_config: object, *, gemm_type: str) -> list[tuple[int, int, dict[str, Any]]]:
    assert gemm_type == "indexed"
    return [(0, 9, {"block_shape": [8, 128, 64]}), (9, 1 << 20, {"block_shape": [32, 128, 64]})]


def _script(text: str, route: dict[str, Any] | None = None, launch: int = 0) -> str:
    """The whole script of ``repro`` for one launch of a case."""
    (task,) = make_plan(RunOptions(kernels=("humming",), cases=(text,)))
    evidence: dict[str, Any] = {"first": {"launch": launch}}
    if route is not None:
        evidence["route"] = route
    verdict = Verdict(task.subject, "numerics", "fail", "a reason", "a message", (), evidence)
    return script(task, build_operands(task.case), verdict)


#: The real device, and one whose code it executes.
H200 = Device("h200", "cuda", sm=90)
AMPERE = Device("sm_80_on_sm_90", "cuda", sm=80, hardware_sm=90)


def _execute(source: str) -> None:
    exec(compile(source, "repro.py", "exec"), {})  # noqa: S102  # it is what a maintainer would run


@pytest.mark.parametrize("text", READOUTS)
def test_the_script_finds_nothing_wrong_with_a_right_library(
    text: str, library: type[NumpyLayer], capsys: pytest.CaptureFixture[str]
):
    """Run on a library that does what is documented, the script counts 0 wrong elements, at each launch."""
    for launch in (0, build_operands(parse_case(text)).launches - 1):
        _execute(_script(text, ROUTE, launch))
        printed = capsys.readouterr().out
        assert printed.startswith("0 of "), printed
        assert len(printed.splitlines()) == 1, printed
    assert library.schedules == [SCHEDULE, SCHEDULE]


def test_the_script_shows_a_wrong_library(library: type[NumpyLayer], capsys: pytest.CaptureFixture[str]):
    """A layer with one wrong weight scale is shown, elements and values."""
    right = library.transform

    def transform(self: NumpyLayer) -> None:
        right(self)
        self.weight[0, 3] *= 2

    library.transform = transform  # type: ignore[method-assign]
    _execute(_script(READOUTS[0], ROUTE))
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "5 of 80 elements are wrong"
    assert [line.split(" got ")[0] for line in rest] == [f"  [{row}, 3]" for row in range(5)]


@pytest.mark.parametrize("kind", ["moe_grouped_contiguous", "moe_grouped_masked"])
def test_written_rows_of_nobody_are_told(kind: str, library: type[NumpyLayer], capsys: pytest.CaptureFixture[str]):
    """A layer that writes rows which belong to no expert is found out, though every owned row is right."""
    library.writes_unowned_rows = True
    _execute(_script(f"{kind}-w_int4.g32.bf16-a_bf16-m6.n16.k64.e3.top1-readout", ROUTE))
    first, second = capsys.readouterr().out.splitlines()
    unowned = 3 if kind == "moe_grouped_contiguous" else 9
    assert first == f"{unowned} rows that belong to no expert were written"
    assert second.startswith("0 of ")


@pytest.mark.parametrize(("m", "block_m"), [(4, 8), (12, 32)])
def test_without_a_route_the_library_chooses(
    m: int, block_m: int, library: type[NumpyLayer], capsys: pytest.CaptureFixture[str]
):
    """Where the judged run never came to a route, the script runs the library's entry for this M."""
    _execute(_script(f"moe_indexed-w_int4.g32.bf16-a_bf16-m{m}.n16.k64.e3.top2-readout"))
    assert capsys.readouterr().out.startswith("0 of ")
    assert [schedule["block_shape"][0] for schedule in library.schedules] == [block_m]


@pytest.mark.parametrize("text", [text.replace("readout", "random") for text in READOUTS])
@pytest.mark.usefixtures("library")
def test_tensors_are_those_of_the_adapter(text: str):
    """On random operands the script's own packer makes the tensors that the adapter loads, bit for bit."""
    case = parse_case(text)
    operands = build_operands(case)
    names: dict[str, Any] = {"np": np, "torch": torch}
    exec(kernel.reproduction(case, ROUTE, H200), names)  # noqa: S102  # as above
    arrays = {
        name: getattr(operands, name) for name in ("weight", "weight_scale", "weight_scale_2", "zero_point", "bias")
    }
    loaded = names["make_layer"](arrays).loaded
    expected = layout.weight_tensors(case, operands)
    assert loaded.keys() == expected.keys()
    for name, tensor in expected.items():
        assert (loaded[name].dtype, loaded[name].shape) == (tensor.dtype, tensor.shape), name
        assert torch.equal(loaded[name].view(torch.uint8), tensor.view(torch.uint8)), name
        assert loaded[name].is_contiguous()


@pytest.mark.parametrize("route", [ROUTE, None])
@pytest.mark.parametrize("text", READOUTS)
def test_the_script_needs_numpy_torch_and_humming_alone(text: str, route: dict[str, Any] | None):
    """Nothing of ours is imported; the library's tuning module only where it must choose."""
    source = _script(text, route)
    imported = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module))
    standard = {"base64", "io", "zlib"}
    assert imported - standard - {"numpy", "torch", "humming.layer"} == (set() if route else {"humming.tune"})


@pytest.mark.parametrize("route", [ROUTE, None])
def test_an_older_path_is_shown_as_one(
    route: dict[str, Any] | None,
    library: type[NumpyLayer],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """The script itself makes the library see the older device, and compile for the real one, before any layer."""
    runtime = type("KernelRuntime", (), {})
    for name, more in (("device", {}), ("jit", {}), ("jit.runtime", {"KernelRuntime": runtime})):
        module = ModuleType(f"humming.{name}")
        vars(module).update(more)
        monkeypatch.setitem(sys.modules, f"humming.{name}", module)
    description = sys.modules["humming.device"]
    monkeypatch.setattr(sys.modules["humming"], "device", description, raising=False)
    (task,) = make_plan(RunOptions(kernels=("humming",), cases=(READOUTS[6],)))
    verdict = Verdict(task.subject, "numerics", "fail", "", "a message", (), {"route": route} if route else {})
    seen = []
    make = library.__init__

    def init(self: NumpyLayer, **given: Any) -> None:
        kernel_runtime = runtime()
        kernel_runtime.init_sm_version()
        device = description._get_device_info_extension()._DeviceInfo(0)
        seen.append((device.sm_version, device.max_smem_size, kernel_runtime.sm_version, kernel_runtime.sm_version_str))
        make(self, **given)

    monkeypatch.setattr(library, "__init__", init)
    if route is None:
        choose = [(0, 1 << 20, SCHEDULE)]
        monkeypatch.setattr(sys.modules["humming.tune"], "get_heuristics_config", lambda *_args, **_more: choose)
    _execute(script(replace(task, device=AMPERE), build_operands(task.case), verdict))
    assert capsys.readouterr().out.startswith("0 of ")
    assert seen == [(80, 163 * 1024, 80, "90")]
    assert "init_sm_version" not in _script(READOUTS[6], route)


def _layer_arguments(build: Callable[[], object], recorded: type) -> dict[str, Any]:
    """Arguments with which ``build`` makes a layer, seen by ``recorded``."""
    with contextlib.suppress(recorded.Stop):
        build()
    arguments: dict[str, Any] = recorded.arguments
    return arguments


@pytest.mark.parametrize("text", READOUTS)
def test_the_layer_is_made_as_the_adapter_makes_it(text: str, monkeypatch: pytest.MonkeyPatch):
    """Configurations, padding, experts and dtype are the adapter's."""
    from humming_conformance.kernels.humming_lib import adapter

    class Recorded:
        arguments: dict[str, Any]

        class Stop(Exception):  # noqa: N818  # no error
            pass

        def __init__(self, **arguments: Any) -> None:
            Recorded.arguments = arguments
            raise self.Stop

    module = ModuleType("humming.layer")
    module.HummingLayer = Recorded  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "humming", ModuleType("humming"))
    monkeypatch.setitem(sys.modules, "humming.layer", module)
    case = parse_case(text)
    operands = build_operands(case)
    judged = _layer_arguments(lambda: adapter._transformed_layer(case, operands), Recorded)
    names: dict[str, Any] = {"np": np, "torch": torch}
    exec(kernel.reproduction(case, ROUTE, H200), names)  # noqa: S102  # as above
    arrays = {
        name: getattr(operands, name) for name in ("weight", "weight_scale", "weight_scale_2", "zero_point", "bias")
    }
    assert _layer_arguments(lambda: names["make_layer"](arrays), Recorded) == judged
