# SPDX-License-Identifier: Apache-2.0
"""Graphs and concurrent streams, on a device made of lists: work is queued on a stream and done when it is waited for.

The work of several streams is done in turns, so that two launches meet in the middle, in every run alike.
"""

from __future__ import annotations

from itertools import zip_longest

import numpy as np
import pytest
import torch

from humming_conformance.devices import Device
from humming_conformance.execution import calls
from humming_conformance.execution.calls import launch_on_streams
from humming_conformance.execution.guarded import CANARY
from humming_conformance.oracle import Contract, differing_bits
from humming_conformance.problems import build_operands, parse_case
from humming_conformance.protocols import Output, Route, Subject
from humming_conformance.verdicts import NumericsEvidence, judge_numerics

CPU = Device("cpu", "cpu")
READOUT = "dense-w_int8.channel.bf16-a_bf16-m2.n8.k6-readout"
RANDOM = READOUT.replace("readout", "random")


class ListStreams:
    """Streams as lists of work."""

    device = torch.device("cpu")

    def __init__(self, count, lag=0):
        self.queues = [[] for _ in range(count)]
        self.lag = lag
        self.current = None
        self.held = 0

    def launch(self, step):
        """Queue a step on the stream that is current: what a kernel does."""
        assert self.current is not None, "launched on the default stream"
        self.current.append(step)

    def run(self, stream, work):
        """What ``work`` launches lands on the stream."""
        self.current = self.queues[stream]
        work()
        self.current = None

    def capture(self, stream, work):
        """What ``work`` launches is kept, and queued again at each replay."""
        self.current = graph = []
        work()
        self.current = None
        return lambda: self.current.extend(graph)

    def hold(self):
        """Nothing is done before it is waited for, anyway."""
        assert not any(self.queues), "held only after something was queued"
        self.held += 1

    def synchronize(self):
        """Do a step of each stream in turn until none is left, each stream ``lag`` steps behind the one before."""
        for steps in zip_longest(*([None] * self.lag * number + queue for number, queue in enumerate(self.queues))):
            for step in filter(None, steps):
                step()
        for queue in self.queues:
            queue.clear()


class Split:
    """A GEMM in three steps: clear a workspace, add the products to it, round them to the output.

    ``shared``: all states use one workspace. ``remembers``: products are added to those of the run before.
    """

    def __init__(self, streams, *, shared=False, remembers=False):
        self.streams = streams
        self.shared = shared
        self.remembers = remembers
        self.workspace = None

    def prepare(self, case, operands, device):
        """Weight and activations in fp32, and a workspace."""
        weight = case.weight.format.decode(operands.weight[0])
        scale = torch.from_numpy(operands.weight_scale[0].view(np.int16)).view(torch.bfloat16).float()
        activation = torch.from_numpy(operands.activation.view(np.int16)).view(torch.bfloat16).float()
        if self.workspace is None or not self.shared:
            self.workspace = torch.zeros(case.problem.m, case.problem.n)
        return {
            "case": case,
            "activation": activation,
            "weight": torch.from_numpy(weight).float() * scale,
            "workspace": self.workspace,
        }

    def run(self, state, launch, buffer):
        """Queue the three steps."""
        workspace, case = state["workspace"], state["case"]
        out = buffer.allocate(case.problem.m, case.problem.n, case.output)
        if not self.remembers:
            self.streams.launch(workspace.zero_)
        self.streams.launch(lambda: workspace.add_(state["activation"][launch] @ state["weight"].T))
        self.streams.launch(lambda: out.copy_(workspace))
        return Output(out)

    def route(self, state):
        """Has one path."""
        return Route("three steps")

    def contract(self, case, route):
        """The strictest."""
        return Contract(case.output)


def called(case_id, call, lag=0, **faults):
    """The case with a call, its operands, and what launching it brings."""
    regime = case_id.rsplit("-", 1)[1]
    case = parse_case(case_id.replace(f"-{regime}", f"-call_{call}-{regime}"))
    operands = build_operands(case)
    streams = ListStreams(2 if "streams" in call else 1, lag)
    kernel = Split(streams, **faults)
    states = [kernel.prepare(case, operands, CPU) for _ in streams.queues]
    return case, operands, launch_on_streams(kernel, states, case, operands.launches, streams), streams


def verdict_of(case, operands, launched, contract=None):
    """The verdict, and the outcome of each rule."""
    evidence = NumericsEvidence(
        launched.output,
        operands.digest(),
        Route("three steps"),
        contract or Contract(case.output),
        trouble=tuple(launched.trouble),
        replayed=launched.replayed,
        concurrent=launched.concurrent,
    )
    verdict = judge_numerics(Subject("split", case.id, "fake"), case, evidence)
    return verdict, {ruling.rule: ruling.outcome for ruling in verdict.rulings}


@pytest.mark.parametrize("case_id", [READOUT, RANDOM])
@pytest.mark.parametrize(
    ("call", "replayed", "concurrent"), [("graph", 1, 0), ("streams", 0, 3), ("graph.streams", 1, 2)]
)
def test_a_right_kernel(case_id, call, replayed, concurrent):
    """All runs of all launches come back equal and pass; only several streams are held back, before each round."""
    case, operands, launched, streams = called(case_id, call)
    assert launched.output.shape == (operands.launches, 2, 8)
    assert (len(launched.replayed), len(launched.concurrent)) == (replayed, concurrent)
    for other in (*launched.replayed, *launched.concurrent):
        assert len(differing_bits(launched.output, other)) == 0
    assert launched.trouble == []
    assert streams.held == (calls.ROUNDS * operands.launches if "streams" in call else 0)
    verdict, rulings = verdict_of(case, operands, launched)
    assert verdict.outcome == "pass", verdict.message
    assert ("replayed" in rulings, "concurrent" in rulings) == ("graph" in call, "streams" in call)


@pytest.mark.parametrize("call", ["streams", "graph.streams"])
@pytest.mark.parametrize("case_id", [READOUT, RANDOM])
@pytest.mark.parametrize("lag", [0, 1])
def test_a_workspace_shared_by_concurrent_launches(case_id, call, lag):
    """Each launch is right alone; side by side they spoil each other's sums, both alike or one more than the other."""
    case, operands, launched, _ = called(case_id, "graph", shared=True)
    assert verdict_of(case, operands, launched)[0].outcome == "pass"
    case, operands, launched, _ = called(case_id, call, lag, shared=True)
    verdict, rulings = verdict_of(case, operands, launched)
    assert verdict.outcome == "fail"
    if lag:
        assert rulings["concurrent"] == "fail"
        assert "a launch at the same time differs in" in verdict.reason
        assert verdict.evidence["fault_class"] == "race"


def test_a_second_replay_that_differs():
    """A kernel that adds to what the replay before left is right once at most: the replays differ, which is a race."""
    case, operands, launched, _ = called(RANDOM, "graph", remembers=True)
    verdict, rulings = verdict_of(case, operands, launched)
    assert rulings["replayed"] == "fail"
    assert "another replay of the same graph differs in" in verdict.reason
    assert verdict.evidence["fault_class"] == "race"


class Careless(Split):
    """Writes something beside its own rows, once it is replayed."""

    def run(self, state, launch, buffer):
        """Writes behind the output."""
        output = super().run(state, launch, buffer)
        tensor = output.tensor
        behind = tensor.as_strided((1,), (1,), tensor.storage_offset() + tensor.numel())
        self.streams.launch(behind.zero_)
        return output


def test_writes_beside_the_output_are_told_with_their_stream_and_launch():
    """The guards are checked after every round, and name the launch that wrote."""
    case = parse_case(READOUT.replace("-readout", "-call_streams-readout"))
    operands = build_operands(case)
    streams = ListStreams(2)
    kernel = Careless(streams)
    states = [kernel.prepare(case, operands, CPU) for _ in range(2)]
    launched = launch_on_streams(kernel, states, case, operands.launches, streams)
    assert len(launched.trouble) == operands.launches * calls.ROUNDS * 2
    last = operands.launches - 1
    assert launched.trouble[-1].startswith(f"on stream 1, launch {last}: 1 elements written behind")


class Forgetful(Split):
    """Writes its output when it is first run, and never again."""

    def run(self, state, launch, buffer):
        """Computes once for each launch."""
        done = state.setdefault("done", set())
        if launch in done:
            return Output(buffer.allocate(state["case"].problem.m, state["case"].problem.n, state["case"].output))
        done.add(launch)
        return super().run(state, launch, buffer)


@pytest.mark.parametrize("call", ["graph", "streams"])
def test_what_an_earlier_run_wrote_is_no_output(call):
    """Output memory is filled anew before every round: a replay that does nothing leaves what it was filled with."""
    case = parse_case(RANDOM.replace("-random", f"-call_{call}-random"))
    operands = build_operands(case)
    streams = ListStreams(2 if call == "streams" else 1)
    kernel = Forgetful(streams)
    states = [kernel.prepare(case, operands, CPU) for _ in streams.queues]
    launched = launch_on_streams(kernel, states, case, 1, streams)
    for codes in (launched.output, *launched.replayed, *launched.concurrent):
        assert (codes == CANARY).all()
    assert verdict_of(case, operands, launched)[0].outcome == "fail"
