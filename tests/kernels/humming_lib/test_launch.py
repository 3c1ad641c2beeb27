# SPDX-License-Identifier: Apache-2.0
"""Launches through a layer that follows the library's documented calls row by row, on the CPU."""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from humming_conformance.formats import element_format
from humming_conformance.kernels.humming_lib import adapter, kernel, layout
from humming_conformance.kernels.humming_lib.selection import GEMM_TYPES
from humming_conformance.problems import Case, Operands, build_operands, parse_case

BLOCK_M = 16
UNTOUCHED = 12345.0


class DocumentedLayer:
    """Computes what README and docs say about each GEMM type, one row at a time, from codes decoded by us."""

    def __init__(self, case: Case, operands: Operands) -> None:
        self.weight = torch.from_numpy(case.weight.format.decode(operands.weight))

    def __call__(self, *, outputs: torch.Tensor, compute_config: str, tuning_config: str, **given: Any) -> None:
        gemm_type = json.loads(compute_config)["gemm_type"]
        block_m = json.loads(tuning_config)["block_shape"][0]
        inputs, scale = given["inputs"], given["input_scale"]
        for output, source, expert in _rows(gemm_type, len(outputs), block_m, given):
            result = self.weight[expert] @ inputs[source].double()
            if scale is not None:
                result = result * scale[source, 0]
            outputs[output] = result.to(outputs.dtype)


def _rows(gemm_type: str, rows: int, block_m: int, given: dict[str, Any]) -> Iterator[tuple[int, int, int]]:
    """(output row, input row, expert) of everything that the documented call computes."""
    if gemm_type == "dense":
        yield from ((row, row, 0) for row in range(rows))
    elif gemm_type == "indexed":
        for slot in range(int(given["num_tokens_padded"])):
            row = int(given["sorted_ids"][slot])
            if row < rows:
                yield row, row // given["top_k"], int(given["expert_ids"][slot // block_m])
    elif gemm_type == "grouped_contiguous":
        for expert, (start, stop) in enumerate(pairwise(given["expert_layout"].tolist())):
            yield from ((row, row, expert) for row in range(start, stop))
    else:
        counts = given["expert_layout"].tolist()
        capacity, rest = divmod(rows, len(counts))
        assert rest == 0
        assert given["valid_shape_m"] == sum(counts)
        for expert, count in enumerate(counts):
            yield from ((row, row, expert) for row in range(expert * capacity, expert * capacity + count))


class Buffer:
    """Output memory with a value that no launch writes."""

    def allocate(self, rows: int, columns: int, output_format: str) -> torch.Tensor:
        dtype = getattr(torch, layout.TORCH_DTYPES[output_format])
        return torch.full((rows, columns), UNTOUCHED, dtype=dtype)


def _state(case: Case, operands: Operands) -> adapter.HummingState:
    config = {"block_shape": (BLOCK_M, 128, 64), "use_stream_k": False}
    scale = operands.activation_scale
    return adapter.HummingState(
        case=case,
        layer=DocumentedLayer(case, operands),
        expert=operands.expert,
        activation=layout.as_torch(operands.activation, case.activation.element),
        activation_scale=None if scale is None else layout.as_torch(scale, "fp32"),
        config=config,
        layer_config={},
        compute_text=json.dumps({"gemm_type": GEMM_TYPES[case.problem.kind]}),
        tuning_text=json.dumps(config),
        kernel_name="",
        mma_class="",
        warp_shape=(16, 32, 64),
    )


def _expected(case: Case, operands: Operands, launch: int) -> np.ndarray:
    activation = case.activation.format.decode(operands.activation[launch])
    if operands.activation_scale is not None:
        activation = activation * element_format("fp32").decode(operands.activation_scale[launch])
    weight = case.weight.format.decode(operands.weight)
    rows = np.arange(case.problem.rows)
    expert = np.zeros(len(rows), int) if operands.expert is None else operands.expert[launch].reshape(-1)
    return np.stack([weight[expert[row]] @ activation[row // case.problem.top_k] for row in rows])


@pytest.mark.parametrize(
    "text",
    [
        "dense-w_int4.g32.bf16-a_bf16-m5.n8.k32-random",
        "moe_indexed-w_int4.g32.bf16-a_bf16-m21.n8.k32.e5.top2.skewed-random",
        "moe_grouped_contiguous-w_int4.g32.bf16-a_bf16-m21.n8.k32.e5.top2.empty_middle-random",
        "moe_grouped_masked-w_int4.g32.bf16-a_bf16-m21.n8.k32.e5.top2.one-random",
        "moe_indexed-w_int4.g32.bf16-a_int8.token-m9.n8.k32.e3.top2-random",
        "moe_grouped_contiguous-w_int4.g32.bf16-a_fp8_e4m3.token-m9.n8.k32.e3.top2-random",
        "moe_grouped_masked-w_int4.g32.bf16-a_int8.token-m9.n8.k32.e3.top2-readout",
    ],
)
def test_every_row_meets_its_expert_and_no_other_is_written(text: str):
    """Each launch puts token x expert into the row that ``row_of`` names and leaves all other rows alone."""
    case = parse_case(text)
    operands = build_operands(case)
    state = _state(case, operands)
    for launch in range(min(operands.launches, 4)):
        output = kernel.run(state, launch, Buffer())
        tensor = output.tensor.double().numpy()
        row_of = np.arange(case.problem.rows) if output.row_of is None else output.row_of
        expected = torch.from_numpy(_expected(case, operands, launch)).to(output.tensor.dtype).double()
        assert np.array_equal(tensor[row_of], expected.numpy())
        assert (np.delete(tensor, row_of, axis=0) == output.tensor.new_tensor(UNTOUCHED).item()).all()


@pytest.mark.parametrize("activation", ["bf16", "fp8_e4m3.token", "int8.token"])
@pytest.mark.parametrize("kind", ["moe_grouped_contiguous", "moe_grouped_masked"])
def test_unowned_rows_are_poisoned(kind: str, activation: str):
    """Rows that belong to nobody hold NaN codes (int8: 127 and a NaN scale), so reading one shows."""
    case = parse_case(f"{kind}-w_int4.g32.bf16-a_{activation}-m6.n8.k32.e3.top2-random")
    state = _state(case, build_operands(case))
    output = kernel.run(state, 0, Buffer())
    assert state.last is not None
    assert output.row_of is not None
    given = state.last[1].arguments
    unowned = np.delete(np.arange(len(given["inputs"])), output.row_of)
    assert len(unowned) >= adapter.moe_layout.SPARE_ROWS
    poison = given["inputs"].float()[unowned]
    if activation == "int8.token":
        assert (poison == 127).all()
    else:
        assert poison.isnan().all()
    if given["input_scale"] is not None:
        assert given["input_scale"][unowned].isnan().all()
        assert not given["input_scale"][output.row_of].isnan().any()


def test_every_tensor_of_a_launch_is_aligned():
    """The launcher takes 16-byte aligned tensors only, at every launch, for an odd M too."""
    for kind, experts in (("dense", ""), ("moe_indexed", ".e3.top1"), ("moe_grouped_contiguous", ".e3.top1")):
        case = parse_case(f"{kind}-w_int4.g32.bf16-a_int8.token-m3.n8.k32{experts}-readout")
        state = _state(case, build_operands(case))
        for launch in range(4):
            kernel.run(state, launch, Buffer())
            assert state.last is not None
            tensors = [value for value in state.last[1].arguments.values() if isinstance(value, torch.Tensor)]
            assert len(tensors) >= 2
            assert all(tensor.data_ptr() % 16 == 0 and tensor.is_contiguous() for tensor in tensors)


def test_repeated_launch_uses_the_same_tensors():
    """A launch that follows itself builds no new inputs, so that it can be captured and timed."""
    case = parse_case("moe_grouped_masked-w_int4.g32.bf16-a_bf16-m6.n8.k32.e3.top2-readout")
    state = _state(case, build_operands(case))
    kernel.run(state, 1, Buffer())
    first = state.last
    kernel.run(state, 1, Buffer())
    assert state.last is first
    kernel.run(state, 0, Buffer())
    assert state.last is not first


def test_tensors_must_be_exactly_the_layers():
    """A missing, unknown, misshapen or converted tensor is refused by name, before anything is loaded."""
    documented = {
        "weight": torch.zeros(8, 4, dtype=torch.int32),
        "weight_scale": torch.zeros(8, 1, dtype=torch.bfloat16),
        "locks": torch.zeros(2048, dtype=torch.int32),
    }
    given = {name: tensor for name, tensor in documented.items() if name != "locks"}
    adapter.check_tensors(given, documented)
    for change in (
        {"weight_scale": torch.zeros(8, 1, dtype=torch.float16)},
        {"weight_scale": torch.zeros(1, 8, dtype=torch.bfloat16)},
        {"bias": torch.zeros(8, dtype=torch.bfloat16)},
    ):
        with pytest.raises(adapter.LayerError, match=next(iter(change))):
            adapter.check_tensors(given | change, documented)
    with pytest.raises(adapter.LayerError, match="weight_scale"):
        adapter.check_tensors({"weight": given["weight"]}, documented)
