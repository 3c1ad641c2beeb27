# SPDX-License-Identifier: Apache-2.0
"""Asking the installed library what it would run on recorded devices."""

from __future__ import annotations

import importlib.util
from dataclasses import asdict, replace

import pytest

from humming_conformance.devices import load_profile
from humming_conformance.execution import KernelProcess, ProcessSpec, TaskRaised
from humming_conformance.protocols_routing import Selection

DENSE = "dense-w_int4.g128.bf16-a_bf16-m{m}.n1024.k4096-random"
#: At and around edges of the library's series, and where its steps grow.
ROWS = (1, 2, 3, 8, 9, 16, 17, 65, 129, 1000, 1040, 2049, 4097, 9000)


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Answers of the installed library on a recorded device, or on a profile."""
    if importlib.util.find_spec("humming") is None:
        pytest.skip("humming-kernels isn't installed: pip install humming-conformance[humming]")
    environment = {
        "HUMMING_CACHE_DIR": str(tmp_path_factory.mktemp("humming_cache")),
        "HUMMING_DISABLE_PARALLEL_BUILD": "1",
        "HUMMING_TEST_TUNING_SOURCE": "none",
        "CUDA_VISIBLE_DEVICES": "",
    }
    with KernelProcess(ProcessSpec("humming", environment=tuple(sorted(environment.items())))) as process:

        def asked(device, *questions):
            profile = load_profile(device) if isinstance(device, str) else device
            reply = process.call(
                "humming_conformance.execution.select_cases:ask",
                timeout=120,
                kernel="humming_conformance.kernels.humming_lib:kernel",
                profile=asdict(profile),
                questions=questions,
            )
            return reply.value["answers"]

        yield asked


@pytest.mark.parametrize("device", ["a100", "h100", "h20", "b200", "rtx5090"])
def test_production_is_the_librarys_own_entry(ask, device):
    """For each M the configuration is that of the library's whole list, and its kernel accepts it."""
    intervals, *answers = ask(
        device, ("intervals", DENSE.format(m=1)), *(("production", DENSE.format(m=m)) for m in ROWS)
    )
    assert len(intervals) > 3
    for m, answer in zip(ROWS, answers, strict=True):
        selection = Selection.from_json(answer)
        entry = next(entry["route"] for entry in intervals if entry["above"] < m <= entry["through"])
        assert selection.refusal is None
        assert selection.route.details["tuning_config"] == entry["details"]["tuning_config"]
        assert selection.route.details["shared_memory_bytes"] > 0


def test_one_device_leaves_nothing_for_the_next(ask):
    """Between two questions about one device another was asked about; the answers are the same."""
    question = ("production", DENSE.format(m=64))
    first = ask("h100", question)
    other = ask("a100", question)
    assert ask("h100", question) == first
    assert other != first


def test_a_refusal_says_where(ask):
    """No bf16 on a T4: the stage, the exception and the library's own place."""
    refusal = Selection.from_json(ask("t4", ("production", DENSE.format(m=16)))[0]).refusal
    assert (refusal.stage, refusal.kind) == ("selection", "AssertionError")
    assert refusal.place.startswith("tune/base.py:")
    assert refusal.interface


def test_a_layer_that_can_not_be_described_is_refused_first(ask):
    """Groups of 24 are no power of two, nor split into groups that the kernel has: refused before any weight."""
    case = "dense-w_int4.g24.bf16-a_fp8_e4m3.token-m16.n256.k384-random"
    refusal = Selection.from_json(ask("h100", ("production", case))[0]).refusal
    assert (refusal.stage, refusal.kind, refusal.interface) == ("layer", "ValueError", True)
    assert "not a power of two" in refusal.message


def test_the_name_of_a_device_is_seen(ask):
    """What the library knows of a device is the profile's, its name included."""
    question = ("production", DENSE.format(m=64))
    renamed = replace(load_profile("h20"), product="NVIDIA H20 of another name")
    assert ask(renamed, question) == ask("h20", question)
    assert ask(replace(renamed, product="NVIDIA G20"), question) != ask("h20", question)


def test_compatibility_is_the_librarys_own(ask):
    """The function answers, and says no to bf16 on a T4."""
    assert ask("h100", ("compatible", DENSE.format(m=16))) == [True]
    assert ask("t4", ("compatible", DENSE.format(m=16))) == [False]


def test_an_adapter_without_selector_is_named():
    """Asking a kernel whose library makes no choices is a mistake of the caller."""
    with KernelProcess(ProcessSpec("own")) as process, pytest.raises(TaskRaised, match=r"torch_gemm.* no selector"):
        process.call(
            "humming_conformance.execution.select_cases:ask",
            timeout=60,
            kernel="humming_conformance.kernels.torch_gemm:kernel",
            profile={},
            questions=(),
        )
