# SPDX-License-Identifier: Apache-2.0
"""What is left of a kernel process when it fails: its last output, its stacks, how it ended."""

from __future__ import annotations

import os
import re
import signal
import tempfile

#: Bytes of the end of an output that are kept.
TAIL = 8192

_CONTEXT_LOST = re.compile(
    r"CUDA error|cudaError|CUDA_ERROR|illegal memory access|device-side assert|AcceleratorError",
    re.IGNORECASE,
)


class CapturedOutput:
    """A file without a name that a kernel process writes and its parent reads."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process

    def fileno(self) -> int:
        return self._file.fileno()

    def tail(self) -> str:
        """The end of what was written; other encodings than UTF-8 show as replacement characters."""
        size = os.fstat(self.fileno()).st_size
        return os.pread(self.fileno(), TAIL, max(0, size - TAIL)).decode(errors="replace")

    def clear(self) -> None:
        """Forget what was written. The writer shares the file's position, so it goes on at the beginning."""
        os.ftruncate(self.fileno(), 0)
        os.lseek(self.fileno(), 0, os.SEEK_SET)

    def close(self) -> None:
        self._file.close()


def exit_status(code: int) -> str:
    """A return code in words: a signal's name or ``exit status N``."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def cuda_context_lost(traceback: str) -> bool:
    """Whether a traceback, causes included, names an error after which a CUDA context may be unusable.

    Such a context answers every later call with the same error, so that later tasks would be blamed for it:
    their process has to be ended. Taking a harmless error for one of these costs a restart.
    """
    return _CONTEXT_LOST.search(traceback) is not None
