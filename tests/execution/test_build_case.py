# SPDX-License-Identifier: Apache-2.0
"""The tasks that find and build units, and the marks that they set."""

from __future__ import annotations

import sys
from dataclasses import asdict
from types import ModuleType

import pytest

from humming_conformance.devices import Device
from humming_conformance.execution.build_case import build_unit, find_unit
from humming_conformance.execution.marks import mark
from humming_conformance.kernels.qdq import Qdq
from humming_conformance.protocols import BuildUnit

CASE = "dense-w_int8.channel.bf16-a_bf16-m{}.n8.k32-random"


class Building(Qdq):
    """One unit for all; building it fails while ``broken``."""

    broken = False

    def build_unit(self, case, operands, device):
        """The unit, with what it was asked for."""
        return BuildUnit("key", "a kernel", {"codes": list(operands.weight.shape), "device": device.name})

    def build(self, unit):
        """Fails or not."""
        if self.broken:
            raise RuntimeError(unit.description)


@pytest.fixture
def adapter(monkeypatch):
    """An adapter that builds, as the module ``building``; another that doesn't, as ``plain``."""
    for name, kernel in (("building", Building()), ("plain", Qdq())):
        module = ModuleType(name)
        module.kernel = kernel
        monkeypatch.setitem(sys.modules, name, module)
    return sys.modules["building"].kernel


def find(folder, tokens, kernel="building:kernel", tools="nvcc"):
    """The unit of the case, and the mark of the case."""
    case_mark = mark(folder, "case", str(tokens))
    found = find_unit(
        kernel=kernel,
        case=CASE.format(tokens),
        device=asdict(Device("cpu", "cpu")),
        folder=str(folder),
        tools=tools,
        case_mark=str(case_mark),
        lease_timeout=1.0,
    )
    return found, case_mark


def test_marks_are_set_behind_a_build(adapter, tmp_path):
    """Finding marks nothing, nor does a build that fails; one that succeeds marks unit and cases."""
    found, case_mark = find(tmp_path, 1)
    arguments = {"codes": [1, 8, 32], "device": "cpu"}
    assert found["unit"] == {"key": "key", "description": "a kernel", "arguments": arguments}
    assert found["built"] is False
    assert list(tmp_path.iterdir()) == []
    arguments = {"kernel": "building:kernel", "unit": found["unit"], "marks": [found["mark"], str(case_mark)]}
    adapter.broken = True
    with pytest.raises(RuntimeError, match="a kernel"):
        build_unit(**arguments)
    assert list(tmp_path.iterdir()) == []
    adapter.broken = False
    assert build_unit(**arguments) == {}
    assert case_mark.exists()
    assert find(tmp_path, 1)[0]["built"] is True


@pytest.mark.usefixtures("adapter")
def test_a_case_of_a_built_unit_is_marked(tmp_path):
    """Whoever finds its unit built marks the case; other tools have built nothing."""
    found, _ = find(tmp_path, 1)
    build_unit(kernel="building:kernel", unit=found["unit"], marks=[found["mark"]])
    other, other_mark = find(tmp_path, 2, tools="another nvcc")
    assert other["built"] is False
    assert not other_mark.exists()
    found, case_mark = find(tmp_path, 2)
    assert found["built"] is True
    assert case_mark.exists()


@pytest.mark.usefixtures("adapter")
def test_an_adapter_that_does_not_build(tmp_path):
    """It is told apart by its lacking methods."""
    with pytest.raises(TypeError, match="plain:kernel offers no build_unit and build"):
        find(tmp_path, 1, kernel="plain:kernel")
