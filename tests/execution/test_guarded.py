# SPDX-License-Identifier: Apache-2.0
"""Output memory tells what a kernel wrote outside the rows that are its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from humming_conformance.execution.guarded import CANARY, GuardedOutput, torch_device
from humming_conformance.formats import element_format
from humming_conformance.protocols import Output

ROWS, COLUMNS = 4, 8


@pytest.fixture
def buffer():
    """Output memory on the CPU."""
    return GuardedOutput(torch_device("cpu"))


def beside(tensor, offset, count=1):
    """Elements ``offset`` from the start of a tensor, out of its bounds."""
    return tensor.as_strided((count,), (1,), tensor.storage_offset() + offset)


@pytest.mark.parametrize("output_format", ["bf16", "fp16"])
def test_the_canary_is_a_quiet_nan(buffer, output_format):
    """What was never written reads as NaN in both formats; it is quiet, so that copying keeps its bits."""
    tensor = buffer.allocate(ROWS, COLUMNS, output_format)
    assert tensor.shape == (ROWS, COLUMNS)
    assert tensor.is_contiguous()
    assert tensor.dtype == {"bf16": torch.bfloat16, "fp16": torch.float16}[output_format]
    assert bool(tensor.isnan().all())
    assert np.isnan(element_format(output_format).decode(np.array([CANARY], np.uint16))).all()
    quiet_bit = 1 << {"bf16": 6, "fp16": 9}[output_format]
    assert CANARY & quiet_bit
    codes, trouble = buffer.codes(0, Output(tensor), ROWS)
    assert (codes == CANARY).all()
    assert trouble == []


def test_what_is_owned_may_be_written(buffer):
    """The codes of the launch's own rows come back, those of each launch from its own memory."""
    for launch in range(2):
        tensor = buffer.allocate(ROWS, COLUMNS, "bf16")
        tensor.fill_(launch + 1.0)
        codes, trouble = buffer.codes(launch, Output(tensor), ROWS)
        assert codes.dtype == np.uint16
        assert (element_format("bf16").decode(codes) == launch + 1.0).all()
        assert trouble == []


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (-1, "1 elements written before the output"),
        (-4096, "1 elements written before the output"),
        (ROWS * COLUMNS, "1 elements written behind the output"),
        (ROWS * COLUMNS + 4095, "1 elements written behind the output"),
    ],
)
def test_writes_beside_the_output(buffer, offset, words):
    """One element anywhere in the guards is told."""
    tensor = buffer.allocate(ROWS, COLUMNS, "bf16")
    tensor.zero_()
    beside(tensor, offset).zero_()
    codes, trouble = buffer.codes(0, Output(tensor), ROWS)
    assert (codes == 0).all()
    assert len(trouble) == 1
    assert words in trouble[0]


def test_rows_of_nobody(buffer):
    """With a map of rows, logical rows come back in their order and a write to any other row is told."""
    tensor = buffer.allocate(ROWS, COLUMNS, "fp16")
    row_of = np.array([3, 0])
    tensor[3], tensor[0] = 3.0, 0.0
    codes, trouble = buffer.codes(0, Output(tensor, row_of), 2)
    assert element_format("fp16").decode(codes)[:, 0].tolist() == [3.0, 0.0]
    assert trouble == []
    tensor[2, 7] = 1.0
    _, trouble = buffer.codes(0, Output(tensor, row_of), 2)
    assert len(trouble) == 1
    assert "1 rows that belong to nobody were written, first 2" in trouble[0]


@pytest.mark.parametrize(
    "row_of",
    [np.array([0]), np.array([0, 0]), np.array([0, 4]), np.array([0, -1]), np.array([[0, 1]])],
    ids=["too few", "twice", "too large", "negative", "matrix"],
)
def test_every_logical_row_has_a_row_of_its_own(buffer, row_of):
    """A map that leaves rows out, repeats one or points outside is refused."""
    tensor = buffer.allocate(ROWS, COLUMNS, "bf16")
    with pytest.raises(ValueError, match="2 rows"):
        buffer.codes(0, Output(tensor, row_of), 2)


@pytest.mark.parametrize(
    "other",
    [
        lambda tensor: tensor.clone(),
        lambda tensor: tensor[1:],
        lambda tensor: tensor[:2],
        lambda tensor: tensor.T,
        lambda tensor: tensor.view(torch.int16),
        lambda tensor: tensor.numpy(),
    ],
    ids=["copy", "tail", "head", "transposed", "other dtype", "no tensor"],
)
def test_another_tensor_is_refused(buffer, other):
    """What is judged is the memory that was guarded, whole and as it was given."""
    tensor = buffer.allocate(ROWS, COLUMNS, "fp16")
    with pytest.raises(ValueError, match="another tensor"):
        buffer.codes(0, Output(other(tensor)), ROWS)


def test_one_allocation_for_each_launch(buffer):
    """The tensor of another launch is refused, and so is a launch that asked for none."""
    first = buffer.allocate(ROWS, COLUMNS, "bf16")
    buffer.allocate(ROWS, COLUMNS, "bf16")
    for launch in (1, 2):
        with pytest.raises(ValueError, match=f"launch {launch}"):
            buffer.codes(launch, Output(first), ROWS)
