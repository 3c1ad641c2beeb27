# SPDX-License-Identifier: Apache-2.0
"""The GPU lease, between real processes; every wait is for an event."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from humming_conformance.execution import LeaseTimeout, gpu_lease, state_folder

KEY = "GPU-4f6a2c1e-0000-1111-2222-333344445555"
PATIENCE = 60.0


@pytest.fixture(autouse=True)
def state(monkeypatch, tmp_path):
    """Lock files of the test's own."""
    monkeypatch.setenv("HUMMING_CONFORMANCE_STATE", str(tmp_path / "state"))


@contextmanager
def holder(mode):
    """Another process that waits for the lease; :func:`wait_held` returns once it has it."""
    command = [sys.executable, str(Path(__file__).parent / "lease_holder.py"), KEY, mode]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_held(process):
    """Wait until ``process`` has the lease."""
    assert process.stdout.readline() == "held\n"


def free(*, exclusive):
    """Whether the lease can be had at once."""
    try:
        with gpu_lease(KEY, exclusive=exclusive, timeout=0):
            return True
    except LeaseTimeout:
        return False


def test_shared_holders_keep_out_exclusive_ones_only():
    """While another process computes, this one may compute too, but not time."""
    with holder("shared") as other:
        wait_held(other)
        assert free(exclusive=False)
        assert not free(exclusive=True)


def test_an_exclusive_holder_keeps_out_all_others():
    """While another process times, nobody computes or times; another GPU is not concerned."""
    with holder("exclusive") as other:
        wait_held(other)
        assert not free(exclusive=False)
        assert not free(exclusive=True)
        with gpu_lease("GPU-other", exclusive=True, timeout=0):
            pass


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_a_lease_is_given_back(mode):
    """When a holder's context closes, one that waits for it goes on."""
    with holder(mode) as other:
        wait_held(other)
        other.stdin.close()
        with gpu_lease(KEY, exclusive=True, timeout=PATIENCE):
            pass


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_a_killed_holder_frees_its_lease(mode):
    """A lease ends with its holder, without anybody's clean-up."""
    with holder(mode) as other:
        wait_held(other)
        assert not free(exclusive=True)
        other.kill()
        with gpu_lease(KEY, exclusive=True, timeout=PATIENCE):
            pass


def test_a_waiting_exclusive_lease_keeps_new_shared_ones_out():
    """One that wants to time gets its turn: once it waits, new shared leases wait behind it."""
    with holder("shared") as first:
        wait_held(first)
        assert free(exclusive=False)
        with holder("exclusive") as waiting:
            deadline = time.monotonic() + PATIENCE
            while free(exclusive=False):
                assert time.monotonic() < deadline, "shared leases are still given"
                time.sleep(0.01)
            first.stdin.close()
            wait_held(waiting)


def test_threads_of_one_process_are_told_apart():
    """Two threads may share a GPU, and one that wants it alone waits for the other."""
    results = {}

    def try_both():
        results.update(shared=free(exclusive=False), exclusive=free(exclusive=True))

    with gpu_lease(KEY, exclusive=False, timeout=0):
        thread = threading.Thread(target=try_both)
        thread.start()
        thread.join()
    assert results == {"shared": True, "exclusive": False}
    assert free(exclusive=True)


def test_a_lease_is_given_back_after_an_exception():
    """An error under a lease does not keep the GPU."""
    with pytest.raises(ZeroDivisionError), gpu_lease(KEY, exclusive=True, timeout=0):
        raise ZeroDivisionError
    assert free(exclusive=True)


def test_a_refused_lease_says_which_and_for_how_long():
    """The error names mode, GPU, time and lock file."""
    with (
        gpu_lease(KEY, exclusive=True, timeout=0),
        pytest.raises(LeaseTimeout) as caught,
        gpu_lease(KEY, exclusive=False, timeout=0.05),
    ):
        pass
    assert f"no shared lease on GPU {KEY} within 0.05 s" in str(caught.value)
    assert str(state_folder()) in str(caught.value)


@pytest.mark.parametrize("key", ["", "../GPU", ".hidden", "GPU 0"])
def test_a_key_that_is_no_file_name_is_refused(key):
    """Keys become file names, so they are plain."""
    with pytest.raises(ValueError, match="UUID"), gpu_lease(key, exclusive=False, timeout=0):
        pass


def test_the_state_folder_is_private(tmp_path):
    """It is made when missing, for this user alone."""
    folder = state_folder()
    assert folder == tmp_path / "state"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_state_folder_of_another_user_is_refused(monkeypatch):
    """Locks in somebody else's folder could be forged."""
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: None)
    monkeypatch.setenv("HUMMING_CONFORMANCE_STATE", "/")
    with pytest.raises(PermissionError, match="HUMMING_CONFORMANCE_STATE"):
        state_folder()
