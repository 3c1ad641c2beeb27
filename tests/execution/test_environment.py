# SPDX-License-Identifier: Apache-2.0
"""A kernel process sees the environment that was meant for it, and nothing else."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import pytest

from humming_conformance.execution import KernelProcess, ProcessSpec
from humming_conformance.execution.environment import process_environment

LONG = 60.0
HERE = str(Path(__file__).parent)


def test_only_named_variables_are_inherited():
    """What is on the list passes, single or as a family; pytest's, Python's and unknown ones don't."""
    parent = {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "1",
        "OPENBLAS_CORETYPE": "Haswell",
        "LC_ALL": "C",
        "PYTEST_CURRENT_TEST": "x",
        "PYTHONOPTIMIZE": "2",
        "TRITON_INTERPRET": "1",
        "LD_PRELOAD": "x.so",
    }
    kept = {"PATH", "CUDA_VISIBLE_DEVICES", "OPENBLAS_CORETYPE", "LC_ALL"}
    environment = process_environment([], {}, parent)
    assert {name for name in environment if name in parent} == kept
    assert "PYTHONPATH" not in environment


def test_threads_and_hashes_are_fixed_unless_the_process_says_otherwise():
    """One thread per numeric library whatever the parent has; the process's own variables win."""
    parent = {"OMP_NUM_THREADS": "8", "OPENBLAS_NUM_THREADS": "8", "PYTHONHASHSEED": "5"}
    environment = process_environment([], {"OMP_NUM_THREADS": "2"}, parent)
    assert environment["OPENBLAS_NUM_THREADS"] == "1"
    assert environment["MKL_NUM_THREADS"] == "1"
    assert environment["PYTHONHASHSEED"] == "0"
    assert environment["OMP_NUM_THREADS"] == "2"


def test_the_search_path_is_the_process_s_then_the_parent_s(tmp_path, monkeypatch):
    """Folders of the process come first, all are absolute, and an empty entry is not the current folder."""
    monkeypatch.chdir(tmp_path)
    environment = process_environment(["/build"], {}, {"PYTHONPATH": os.pathsep.join(["", "relative", "/there"])})
    assert environment["PYTHONPATH"].split(os.pathsep) == ["/build", str(tmp_path / "relative"), "/there"]


@pytest.mark.parametrize("variable", ["PYTHONPATH", "PYTEST_ADDOPTS"])
def test_a_variable_with_a_place_of_its_own_is_refused(variable):
    """Neither the search path nor pytest's variables can be slipped in."""
    with pytest.raises(ValueError, match=variable):
        ProcessSpec("wrong", environment=((variable, "x"),))


def test_the_process_s_state_is_as_described(monkeypatch, tmp_path, request):
    """A real process: no pytest variable, its own session, no core files, the current folder not searched."""
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "set by pytest anyway")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", os.environ.get("PYTHONPATH", "")]))
    (tmp_path / "ml_dtypes.py").touch()
    monkeypatch.chdir(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (limits[1], limits[1]))
    request.addfinalizer(lambda: resource.setrlimit(resource.RLIMIT_CORE, limits))
    spec = ProcessSpec("state", python_path=(HERE,), environment=(("HUMMING_TEST_TUNING_SOURCE", "none"),))
    with KernelProcess(spec) as process:
        state = process.call("tasks:state", timeout=LONG).value
        assert process.call("tasks:where", timeout=LONG, module="ml_dtypes").value["file"] != str(
            tmp_path / "ml_dtypes.py"
        )
    assert not [name for name in state["environment"] if name.startswith("PYTEST")]
    assert state["environment"]["HUMMING_TEST_TUNING_SOURCE"] == "none"
    assert state["environment"]["OPENBLAS_NUM_THREADS"] == "1"
    assert state["session"] == process.pid
    assert state["core"][0] == 0
    assert state["arguments"] == []
    assert state["path"][0] == HERE
    assert not {"", ".", str(tmp_path)} & set(state["path"])


def test_a_folder_of_the_process_shadows_what_is_installed(tmp_path):
    """A build in ``python_path`` is imported though another is installed."""
    (tmp_path / "ml_dtypes.py").touch()
    with KernelProcess(ProcessSpec("shadow", python_path=(str(tmp_path), HERE))) as process:
        file = process.call("tasks:where", timeout=LONG, module="ml_dtypes").value["file"]
    assert file == str(tmp_path / "ml_dtypes.py")
    assert str(tmp_path) not in sys.path
