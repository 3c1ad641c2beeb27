# SPDX-License-Identifier: Apache-2.0
"""What a ledger's head says, and what makes two runs different."""

from __future__ import annotations

import json

from humming_conformance.campaign.environment import IDENTITY, describe_environment
from humming_conformance.campaign.plan import RunOptions, make_plan

CASE = "dense-w_int8.channel.bf16-a_bf16-m2.n8.k32-random"


def test_the_head_names_what_is_judged_and_by_what(tmp_path):
    """Every part of the identity is there, hashes of adapters, waivers and our own source among it, as plain JSON."""
    waivers = tmp_path / "waivers.toml"
    waivers.write_text("")
    plan = make_plan(RunOptions(kernels=("qdq", "torch_gemm"), cases=(CASE,)))
    told = describe_environment(plan, [waivers])
    assert json.loads(json.dumps(told)) == told
    assert set(IDENTITY) <= told.keys()
    assert len(told["kernels"]) == 2
    assert told["conformance"]["source"] == describe_environment(plan, [])["conformance"]["source"]


def test_an_edited_adapter_or_waiver_file_is_another_run(tmp_path, monkeypatch):
    """A verdict settled before an edit must not survive it: the hash of the file changes, and nothing else does."""
    waivers = tmp_path / "waivers.toml"
    waivers.write_text("")
    adapter = tmp_path / "edited_kernel.py"
    adapter.write_text("from humming_conformance.kernels.qdq import kernel\n")
    monkeypatch.chdir(tmp_path)
    plan = make_plan(RunOptions(kernels=("edited_kernel:kernel",), cases=(CASE,)))
    before = describe_environment(plan, [waivers])
    adapter.write_text(adapter.read_text() + "# edited\n")
    waivers.write_text("# edited\n")
    after = describe_environment(plan, [waivers])
    assert {key for key in IDENTITY if before[key] != after[key]} == {"kernels", "waivers"}
