# SPDX-License-Identifier: Apache-2.0
"""The question of routing end to end, with a kernel that needs no library; its plan; lists recorded and compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from humming_conformance.campaign.on_profiles import plan_on_profiles, recorded_devices
from humming_conformance.campaign.plan import PlanError, RunOptions
from humming_conformance.campaign.questions import Setting
from humming_conformance.campaign.questions.routing import RoutingQuestion
from humming_conformance.campaign.routes import compare_routes, explain_route, record_routes
from humming_conformance.devices import load_profile, recorded_profiles
from humming_conformance.problems import parse_case
from humming_conformance.protocols_routing import Selects
from humming_conformance.store.routes import layer_routes, read_routes, routes_path

CASE = "dense-w_int4.g128.bf16-a_bf16-m128.n4096.k4096-random"
ONE_ROW = "dense-w_int4.g128.bf16-a_bf16-m1.n4096.k4096-random"


@pytest.fixture
def reference(monkeypatch):
    """The kernel's reference; its folder is searched."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.chdir(Path(__file__).parent)
    return "selecting_kernel:kernel"


def question(reference, folder, *, cases=(CASE,), devices=("a100",), baselines=None):
    """The question of some cases on some devices."""
    options = RunOptions("gate", (reference,), devices, cases)
    setting = Setting(options, folder) if baselines is None else Setting(options, folder, baselines=baselines)
    return RoutingQuestion(setting)


def test_every_recorded_device_is_planned(reference, tmp_path):
    """One subject a case and device, present or not; a kernel without selector has none."""
    asked = question(reference, tmp_path, devices=())
    plan = asked.plan()
    assert [task.subject.device for task in plan] == list(recorded_profiles())
    assert {(task.device.kind, task.device.present, task.support.answer) for task in plan} == {
        ("profile", False, "yes")
    }
    none = plan_on_profiles(RunOptions(kernels=("torch_gemm",)), "routing", lambda kernel: isinstance(kernel, Selects))
    assert none == ()


def test_choices_are_judged(reference, tmp_path):
    """On an A100 all rules hold; on an H100 the class is slower than the formats deserve; a T4 is refused clearly."""
    asked = question(reference, tmp_path, devices=("a100", "h100", "t4"), cases=(CASE.replace("m128", "m256"),))
    try:
        verdicts = {task.subject.device: asked.settle(task) for task in asked.plan()}
    finally:
        asked.close()
    assert {name: verdict.outcome for name, verdict in verdicts.items()} == {
        "a100": "pass",
        "h100": "fail",
        "t4": "pass",
    }
    assert verdicts["h100"].evidence["rules"] == ["mma_class"]
    assert "reproduce: pytest " in verdicts["h100"].message
    assert "--device h100" in verdicts["h100"].message


def test_names_and_sharing_are_asked_once(reference, tmp_path):
    """With M = 2, and with no other M."""
    two = ONE_ROW.replace("m1.", "m2.")
    asked = question(reference, tmp_path, cases=(ONE_ROW, two))
    try:
        rules = [{ruling.rule for ruling in asked.judge(task).rulings} for task in asked.plan()]
    finally:
        asked.close()
    assert rules[1] - rules[0] == {"renamed_device", "shared_state"}


def test_an_accepted_list_is_compared(reference, tmp_path):
    """The layer's list is the accepted one, or the subject fails with both."""
    path = routes_path(tmp_path, "selecting", "a100")
    path.parent.mkdir(parents=True)
    for rows, broken in ((64, []), (32, ["accepted_route"])):
        asked = question(reference, tmp_path, cases=(ONE_ROW,), baselines=tmp_path)
        task = asked.plan()[0]
        line = f"  1- mma {rows}-128x128x64 stages 4 blocks 1\n"
        path.write_text(f"# selecting 1.0 on a100\n{ONE_ROW} {_digest()}\n{line}")
        try:
            assert asked.judge(task).evidence["rules"] == broken
        finally:
            asked.close()


def _digest():
    from selecting_kernel import Selector

    selector = Selector()
    selector.install_profile(load_profile("a100"))
    return layer_routes(selector.intervals(parse_case(ONE_ROW))).digest


def test_lists_are_recorded_and_compared(reference, tmp_path, monkeypatch):
    """What was recorded compares equal; an edited file doesn't, and says how."""
    monkeypatch.setattr("humming_conformance.campaign.on_profiles.load_tier", lambda *_: (ONE_ROW, CASE))
    lines = record_routes(reference, None, tmp_path, ["a100", "t4"])
    assert [line for line in lines if "layers changed" in line]
    assert compare_routes(reference, tmp_path, None, ["a100", "t4"]) == []
    assert read_routes(routes_path(tmp_path, "selecting", "t4")).layers[ONE_ROW].digest == "refused"
    path = routes_path(tmp_path, "selecting", "a100")
    path.write_text(path.read_text().replace("64-128", "32-128"))
    assert any("- 1- mma 32-128x128x64" in line for line in compare_routes(reference, tmp_path, None, ["a100"]))


def test_an_unknown_device_is_named():
    """The text lists the recorded ones."""
    with pytest.raises(PlanError, match=r"'a1000' is not recorded; there are a10, a100"):
        explain_route(parse_case(CASE), "a1000", {})


def test_a_kernel_without_selector_has_no_lists(tmp_path):
    """The text says which kernel, and what would do."""
    with pytest.raises(PlanError, match="'torch_gemm' can't be asked for its routes"):
        record_routes("torch_gemm", None, tmp_path)


def test_a_case_is_explained():
    """Each kernel's answer, who serves it, and which of ours would stand in."""
    lines, served = explain_route(parse_case(CASE), "h100", {})
    assert served
    assert lines[0] == f"{CASE} on h100 (sm_90)"
    assert any(line.startswith("  triton_fused: claims it") for line in lines)
    assert lines[-1] == "where a library refuses, triton_fused would serve it"


def test_devices_are_chosen_by_name():
    """All, or those that are named, in alphabetical order."""
    assert [device.name for device in recorded_devices(("t4", "a100"))] == ["a100", "t4"]
    assert len(recorded_devices()) == len(recorded_profiles())
    assert recorded_devices(("cpu",)) == ()


def test_a_misspelt_device_is_no_empty_plan(reference, tmp_path):
    """The text lists the recorded ones, and the nearest."""
    with pytest.raises(PlanError, match=r"'a1o0' is not recorded; there are a10, .*; did you mean a10"):
        question(reference, tmp_path, devices=("t4", "a1o0")).plan()
