# SPDX-License-Identifier: Apache-2.0
"""How records reach the disk: a shard per worker, flushed line by line; whole files written atomically."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import TracebackType
from typing import Self

from humming_conformance.ledger.jsonl import format_record
from humming_conformance.ledger.records import Entry, LedgerError
from humming_conformance.protocols import Verdict

_WORKER_NAME = re.compile(r"[A-Za-z0-9_]+")


def replace_text(path: Path, text: str) -> None:
    """Write ``text`` to a temporary file beside ``path``, then rename it: readers see the old or the new."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class ShardWriter:
    """Appends the verdicts of one worker to ``shard-<worker>.jsonl``, each line flushed when it is written.

    A worker that is killed loses at most the line it was writing. Raises LedgerError when the shard exists:
    two workers of one name, or a run whose shards nobody merged.
    """

    def __init__(self, folder: Path, worker: str) -> None:
        if not _WORKER_NAME.fullmatch(worker):
            raise LedgerError(f"worker {worker!r}: a worker's name is letters, digits and _")
        self.worker = worker
        self.path = folder / f"shard-{worker}.jsonl"
        try:
            self._file = self.path.open("x", encoding="utf-8")
        except FileExistsError:
            raise LedgerError(
                f"{self.path} exists: another worker of that name writes it, or an earlier run left it; "
                f"give each worker its own name, or continue the run with --resume {folder}"
            ) from None

    def append(self, verdict: Verdict) -> None:
        """Write one verdict; raises LedgerError, with nothing written, for evidence that JSON can't hold."""
        self._file.write(format_record(Entry(verdict, self.worker)))
        self._file.flush()

    def close(self) -> None:
        """Close the shard; nothing can be appended afterwards."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
