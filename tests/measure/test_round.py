# SPDX-License-Identifier: Apache-2.0
"""A round from operands to timings, on the CPU, where times mean nothing but all else does."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from humming_conformance.devices import Device
from humming_conformance.execution.lease import STATE_VARIABLE
from humming_conformance.kernels.qdq import Qdq
from humming_conformance.measure import round as measuring

CASE = "dense-w_int4.g32.bf16-a_bf16-m4.n64.k64-random"
MOE = "moe_grouped_contiguous-w_int4.g32.bf16-a_bf16-m8.n64.k64.e4.top2-random"
QDQ = "humming_conformance.kernels.qdq:kernel"


class Zeroing(Qdq):
    """QDQ that leaves its output zero."""

    name = "zeroing"

    def run(self, state, launch, buffer):
        output = super().run(state, launch, buffer)
        output.tensor.zero_()
        return output


class Tiring(Qdq):
    """QDQ that doubles its output from the 41st launch on."""

    name = "tiring"
    launches = 0

    def run(self, state, launch, buffer):
        output = super().run(state, launch, buffer)
        Tiring.launches += 1
        if Tiring.launches > 40:
            output.tensor.mul_(2)
        return output


class Raising(Qdq):
    """QDQ that can't be prepared."""

    name = "raising"

    def prepare(self, case, operands, device):
        raise RuntimeError("no such kernel")


@pytest.fixture
def measure(monkeypatch, tmp_path):
    """A function that measures one subject by an adapter of this file, or a built-in one."""
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path))
    load = measuring.load_adapter
    mine = {"zeroing": Zeroing(), "tiring": Tiring(), "raising": Raising()}
    monkeypatch.setattr(measuring, "load_adapter", lambda reference: mine.get(reference) or load(reference))

    def one(kernel=QDQ, case=CASE, seconds=60.0):
        return measuring.measure_round(
            subjects=[{"kernel": kernel, "case": case}, {"kernel": QDQ, "case": CASE}],
            anchors={"qdq": QDQ},
            device=asdict(Device("cpu", "cpu")),
            seconds=seconds,
            cycles=3,
        )

    return one


@pytest.mark.parametrize("case", [CASE, MOE])
def test_every_anchor_is_timed_beside_the_kernel(measure, case):
    """Kernel, QDQ, GEMM and copy: a time for each cycle; the output is QDQ's own."""
    reply = measure(case=case)
    found = reply["measured"][0]
    assert (found["kernel"], found["case"]) == (QDQ, case)
    assert {name: len(times) for name, times in found["seconds"].items()} == dict.fromkeys(
        ("kernel", "qdq", "gemm", "copy"), 3
    )
    assert min(min(times) for times in found["seconds"].values()) > 0
    assert (found["wrong"], found["disturbances"], found["sets"]) == ("", [], 2)
    assert found["host_seconds"] > 0
    assert found["route"]["path"] == "cpu_fp32"
    assert set(reply["roofs"]) == {"read", "write", "copy", "bf16", "launch"}


@pytest.mark.parametrize(
    ("kernel", "told"),
    [("zeroing", "off QDQ's, in norm"), ("tiring", "the output after timing is another than before")],
)
def test_a_wrong_output_is_seen(measure, kernel, told):
    """Fast because it doesn't do its work, or not any more: the timing says that it is wrong."""
    assert told in measure(kernel)["measured"][0]["wrong"]


def test_what_raises_costs_one_subject(measure):
    """The next subject is timed all the same."""
    failed, fine = measure("raising")["measured"]
    assert failed["error"] == "RuntimeError: no such kernel"
    assert "seconds" not in failed
    assert fine["wrong"] == ""


def test_after_the_deadline_nothing_is_begun(measure):
    """What is missing from the reply wasn't begun."""
    assert measure(seconds=0.0)["measured"] == []
