# SPDX-License-Identifier: Apache-2.0
"""Who may use a GPU now: tasks that only compute share it, one that times has it alone.

Held by the process that uses the GPU, against every process of the same user on the machine, other runs
included. The lock is :class:`filelock.ReadWriteLock`: an SQLite file whose locks the kernel drops when their
holder dies, and in which a waiting writer keeps new readers out.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import ReadWriteLock, Timeout

from humming_conformance.execution.errors import LeaseTimeout

#: Names the folder of the lock files where the system's temporary folder does not serve.
STATE_VARIABLE = "HUMMING_CONFORMANCE_STATE"


def state_folder() -> Path:
    """The folder through which this user's runs on this machine know of each other, made when missing.

    Raises:
        PermissionError: it belongs to another user.
    """
    named = os.environ.get(STATE_VARIABLE)
    folder = Path(named) if named else Path(tempfile.gettempdir()) / f"humming-conformance-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(
            f"the state folder {folder} belongs to another user; set {STATE_VARIABLE} to a folder of your own"
        )
    return folder


@contextmanager
def gpu_lease(device_key: str, *, exclusive: bool, timeout: float | None) -> Iterator[None]:
    """Hold the GPU ``device_key`` while the context is open.

    Args:
        device_key: its UUID.
        exclusive: alone, for timing; otherwise beside other shared holders.
        timeout: seconds to wait for it; None waits without end.

    Not reentrant: with a shared lease held, a second one waits behind any exclusive one that waits for the
    first.

    Raises:
        LeaseTimeout: others held it for all of ``timeout``.
        ValueError: ``device_key`` cannot name a file.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", device_key):
        raise ValueError(f"device key {device_key!r}: only letters, digits, '_', '.' and '-'; give the GPU's UUID")
    path = state_folder() / f"{device_key}.lease"
    lock = ReadWriteLock(path, is_singleton=False)  # an object of its own for each thread, as filelock asks
    acquire = lock.acquire_write if exclusive else lock.acquire_read
    try:
        hold = acquire(-1 if timeout is None else timeout)
    except Timeout:
        raise LeaseTimeout(
            f"no {'exclusive' if exclusive else 'shared'} lease on GPU {device_key} within {timeout:g} s: "
            f"other processes of this user hold it ({path}); let them finish, or end them"
        ) from None
    with hold:
        yield
