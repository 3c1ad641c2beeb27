# SPDX-License-Identifier: Apache-2.0
"""Units of the real library: what makes them equal, and that what is built ahead is what a layer then uses."""

import json
import subprocess
import sys
from pathlib import Path

from humming_conformance.kernels.humming_lib import kernel
from humming_conformance.protocols import BuildsAhead

CASES = (
    "dense-w_int4.g128.bf16-a_bf16-m16.n256.k512-random",
    "dense-w_int4.g128.bf16-a_bf16-m15.n256.k512-readout",  # the same schedule
    "dense-w_int4.g128.bf16-a_bf16-m16.n256.k512-bias-random",
    "moe_indexed-w_int4.g128.bf16-a_bf16-m16.n256.k512.e8.top2-random",
)


def test_the_adapter_builds_ahead():
    """It offers what the protocol asks for."""
    assert isinstance(kernel, BuildsAhead)


def test_the_real_library_builds_ahead(build_environment: dict[str, str], tmp_path: Path):
    """Finding compiles nothing; two processes compile a unit once; preparing the case then compiles nothing more."""
    command = [sys.executable, str(Path(__file__).with_name("build_ahead.py")), *CASES]
    running = [
        subprocess.Popen(command, env=build_environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    replies = []
    for process in running:
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        replies.append(json.loads(output.splitlines()[-1]))
    assert sum(reply["built"] for reply in replies) == 1
    for reply in replies:
        same, equal, *others = reply["keys"]
        assert same == equal
        assert len({same, *others}) == 3
        assert reply["before"] == 0
        assert reply["prepared"] == reply["built"]
        assert "dense N=256 K=512" in reply["descriptions"][0]
        assert "for sm_90a" in reply["descriptions"][0]
    assert len(list(tmp_path.glob("*/kernel.cubin"))) == 1
