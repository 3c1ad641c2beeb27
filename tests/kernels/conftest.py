# SPDX-License-Identifier: Apache-2.0
"""Kernel processes in which the tests of our own kernels run them, as a judging run does."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from humming_conformance.devices import Device, detect_devices
from humming_conformance.execution import ProcessPool, ProcessSpec

HERE = str(Path(__file__).parent)
sys.path.append(HERE)  # makes `exact` importable: under import mode importlib a test's folder is not on the path

PATIENCE = 300.0  # seconds; no passing test comes near
RUN_CASE = "humming_conformance.execution.run_case:run_case"


def find_device(kind: str) -> Device:
    """The first device of a kind; skips the test where there is none."""
    found = next((device for device in detect_devices() if device.kind == kind), None)
    if found is None:
        pytest.skip(f"needs a {kind} device")
    return replace(found, index=0)  # a kernel process sees one GPU only


@pytest.fixture(scope="session")
def call_task(tmp_path_factory):
    """Call a task in a kernel process for a kind of device, in one of its own if named; returns its dict."""
    cache = str(tmp_path_factory.mktemp("triton"))

    def call(kind, task, *, process="shared", **arguments):
        environment = {"TRITON_CACHE_DIR": cache, "TRITON_DEFAULT_FP_FUSION": "0"}
        environment["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0") if kind == "cuda" else ""
        if kind == "cpu_interpreter":
            environment["TRITON_INTERPRET"] = "1"
        spec = ProcessSpec(f"{process} {kind}", (HERE,), tuple(environment.items()))
        return pool.call(spec, task, timeout=PATIENCE, **arguments).value

    with ProcessPool(max_processes=3) as pool:
        yield call


@pytest.fixture(scope="session")
def device_fields():
    """The fields of this machine's device of a kind, as tasks take them."""
    return lambda kind: asdict(find_device(kind))


@pytest.fixture(scope="session")
def run_case(call_task, device_fields):
    """Run a case through one of our adapters on a kind of device; returns what ``run_case`` found."""

    def run(kernel, case_id, kind, *, relations=False):
        device = device_fields(kind)
        kernel = f"humming_conformance.kernels.{kernel}:kernel"
        return call_task(kind, RUN_CASE, kernel=kernel, case=case_id, device=device, relations=relations)

    return run
