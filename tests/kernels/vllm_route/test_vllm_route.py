# SPDX-License-Identifier: Apache-2.0
"""Cases as checkpoints, environments that are there or not, and a whole run with a made-up vLLM."""

from __future__ import annotations

import json

import pytest

from humming_conformance.campaign.plan import RunOptions
from humming_conformance.campaign.run import Run
from humming_conformance.cli import main
from humming_conformance.execution.lease import STATE_VARIABLE
from humming_conformance.kernels._vllm_route import environments
from humming_conformance.kernels._vllm_route.asking import REQUESTS, checkpoint
from humming_conformance.kernels._vllm_route.environments import (
    EnvironmentMissingError,
    build_environment,
    find_environment,
    supported_versions,
)
from humming_conformance.problems import parse_case
from humming_conformance.problems.tiers import load_tier

#: Layers in which no vLLM has a known fault, whatever its number.
NOT_WAIVED = ("dense-w_int4.g128.bf16-a_bf16-m1.n96.k128-random", "dense-w_int4.g32.bf16-a_bf16-m1.n96.k128-random")
#: Answers as the probe does, without vLLM: humming is honoured, all else gets CUTLASS.
FAKE_PYTHON = """#!/bin/sh
exec {python} - "$2" "$3" <<'END'
import json, os, sys
answers = {{}}
for query in json.load(open(sys.argv[1])):
    backend = "HUMMING" if query["request"] == "humming" else "CUTLASS"
    method = os.environ["CONFORMANCE_SM"]
    answers[query["key"]] = {{"backend": backend, "experts": "", "method": method, "warnings": []}}
json.dump(answers, open(sys.argv[2], "w"))
END
"""


@pytest.fixture
def state(tmp_path, monkeypatch):
    """A state folder of the test's own, without any environment."""
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("scheme", "method", "told"),
    [
        ("w_int4.g128.bf16-a_bf16", "compressed-tensors", {"format": "pack-quantized", "group_size": 128}),
        ("w_int8.channel.bf16-a_bf16", "compressed-tensors", {"format": "pack-quantized", "strategy": "channel"}),
        ("w_int8.channel.bf16-a_int8.token", "compressed-tensors", {"format": "int-quantized", "dynamic": True}),
        ("w_fp8_e4m3.channel.bf16-a_fp8_e4m3.token", "compressed-tensors", {"format": "float-quantized"}),
        ("w_fp8_e4m3.b128x128.fp32-a_fp8_e4m3.g128", "fp8", {"weight_block_size": [128, 128]}),
        ("w_fp4_e2m1.g32.ue8m0-a_bf16", "mxfp4", {"quant_method": "mxfp4"}),
        ("w_int3.g128.bf16-a_bf16", None, {}),
    ],
)
def test_schemes_as_checkpoints(scheme, method, told):
    """The method and the words of its configuration; a scheme that no format has is none."""
    found = checkpoint(parse_case(f"dense-{scheme}-m1.n256.k256-random"))
    assert (found[0] if found else None) == method
    text = json.dumps(found[1]) if found else ""
    assert all(f'"{key}": {json.dumps(value)}' in text for key, value in told.items())


def test_every_listed_layer_can_be_asked_about():
    """The lists hold what checkpoints have."""
    assert all(checkpoint(parse_case(case_id)) for case_id in load_tier("gate", "vllm", "vllm"))
    assert {"0.29.0", "0.33.0"} <= set(supported_versions())


def test_a_missing_environment_says_how_to_build_it(state, capsys):
    """For a run, and on the command line for a version that nobody supports; a half-built one is none."""
    (state / "vllm" / "0.33.0" / "bin").mkdir(parents=True)
    with pytest.raises(EnvironmentMissingError, match=r"vLLM 0\.33\.0 isn't built") as error:
        find_environment("0.33.0", state / "vllm")
    assert error.value.mend == "humming-conformance vllm build 0.33.0"
    (state / "vllm" / "0.33.0" / "built.json").write_text(json.dumps({"cudart": "/nowhere", "contents": "older"}))
    with pytest.raises(EnvironmentMissingError, match=r"vLLM 0\.33\.0 was built from other requirements"):
        find_environment("0.33.0", state / "vllm")
    assert main(["vllm", "build", "9.9.9"]) == 2
    assert "vLLM 9.9.9 has no requirements file; name one of 0.29.0, 0.31.0, 0.32.0, 0.33.0" in capsys.readouterr().err


def test_a_build_that_fails_leaves_nothing(state, monkeypatch):
    """What was begun is removed, and the error says what failed."""

    def fails(_command):
        raise EnvironmentMissingError("pip failed (1): no such package", "see that pip can install")

    monkeypatch.setattr(environments, "_run", fails)
    monkeypatch.setattr(environments, "_cudart", lambda: state)
    monkeypatch.setattr(
        environments.venv, "create", lambda folder, **_: (folder / "lib/python3/site-packages").mkdir(parents=True)
    )
    with pytest.raises(EnvironmentMissingError, match="pip failed"):
        build_environment("0.33.0", state / "vllm")
    assert list((state / "vllm").iterdir()) == []


@pytest.mark.usefixtures("state")
def test_without_environments_nothing_is_judged(tmp_path):
    """Every layer is not_run with the mend, never a pass."""
    run = Run(RunOptions("smoke"), tmp_path / "ledger", suites=("vllm",))
    assert len(run.tasks) == 2 * 6 * 4
    assert {task.support.mend.rsplit(" ", 1)[0] for task in run.tasks.values()} == {"humming-conformance vllm build"}


def test_a_whole_run(state, tmp_path):
    """Asked once for each device in the controller, judged by what it answered there."""
    import sys

    folder = state / "vllm" / "0.33.0"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text(FAKE_PYTHON.format(python=sys.executable))
    (folder / "bin" / "python").chmod(0o755)
    built = {"cudart": "/nowhere", "contents": environments._contents("0.33.0")}
    (folder / "built.json").write_text(json.dumps(built))
    options = RunOptions("smoke", ("vllm_0_33_0",), ("h100", "t4"), NOT_WAIVED)
    run = Run(options, tmp_path / "ledger", suites=("vllm",))
    planned = list(run.tasks)
    run.begin(planned, ["test"])
    told = []
    run.prepare(planned, told.append)
    verdicts = [run.settle(item, "main") for item in planned]
    run.close()
    assert sorted(told) == [f"vLLM 0.33.0 asked about 2 layers on {device}" for device in ("h100", "t4")]
    assert {verdict.outcome for verdict in verdicts} == {"fail"}
    assert {verdict.reason for verdict in verdicts} == {
        "a request is honoured: without a word, marlin got CUTLASS, triton got CUTLASS"
    }
    methods = {verdict.subject.device: verdict.evidence["answers"]["auto"]["method"] for verdict in verdicts}
    assert methods == {"h100": "90", "t4": "75"}
    assert set(verdicts[0].evidence["answers"]) == set(REQUESTS)
