# SPDX-License-Identifier: Apache-2.0
"""Beside other people's tests the plugin does nothing, and where it works its main process stays light."""

from __future__ import annotations

import os
import subprocess
import sys

UNRELATED = """
import sys


def test_nothing_heavy_was_imported(pytestconfig):
    assert {"numpy", "torch", "triton", "humming", "ml_dtypes"} & sys.modules.keys() == set()
    assert not any(name.startswith("humming_conformance.campaign") for name in sys.modules)


def test_the_plugin_is_there_and_takes_no_part(pytestconfig):
    plugin = pytestconfig.pluginmanager.get_plugin("humming_conformance")
    assert plugin.__name__ == "humming_conformance.pytest_plugin"
    assert not pytestconfig.pluginmanager.has_plugin("humming_conformance_session")
    assert plugin.pytest_xdist_auto_num_workers(pytestconfig) is None
"""

#: A plugin that tells what the main process of a run has imported at its end.
IMPORTS = """
import sys


def pytest_unconfigure(config):
    if not hasattr(config, "workerinput"):
        print("imported:", *sorted({"torch", "triton", "humming"} & sys.modules.keys()), "and no more")
"""


def _pytest(folder, *options):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_unrelated_tests(tmp_path):
    """Nothing is imported, printed or written, with options of ours given or not, and xdist is left alone."""
    (tmp_path / "test_unrelated.py").write_text(UNRELATED)
    for options in ((), ("-n1",), ("--kernel=none:such", "--ledger=made")):
        ran = _pytest(tmp_path, *options, "test_unrelated.py")
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "2 passed" in ran.stdout
        assert "conformance plan" not in ran.stdout
        assert "= conformance =" not in ran.stdout
        assert "WorkStealing" not in ran.stdout
    assert not (tmp_path / ".conformance").exists()
    assert not (tmp_path / "made").exists()


def test_our_tests_collected_without_being_named(suites):
    """Where a folder above the suites is named, they refuse to run unaccounted, and say how to run them."""
    ran = _pytest(suites.suites.parents[1], "--collect-only", ".", "--ignore=tests")
    assert ran.returncode != 0
    assert "name the suites on the command line: pytest suites" in ran.stdout


def test_the_main_process_of_a_run_imports_no_library(suites):
    """With workers, the main process plans, merges and reports without torch, triton or a kernel library."""
    (suites.folder / "imports.py").write_text(IMPORTS)
    ran = suites.run("-n1", "-p", "imports", kernels=["right"], tokens=[1])
    assert ran.code == 0, ran.output
    assert "imported: and no more" in ran.output
