# SPDX-License-Identifier: Apache-2.0
"""The kernel processes of one test worker: at most a few, each started when first needed."""

from __future__ import annotations

import logging
from collections import OrderedDict
from types import TracebackType
from typing import Any, Self

from humming_conformance.execution.process import KernelProcess, ProcessSpec, Reply

_log = logging.getLogger(__name__)


class ProcessPool:
    """One :class:`KernelProcess` per spec, started at its first call and again after it ended.

    A process costs the memory of its library and CUDA context, so at most ``max_processes`` live at a time;
    the one unused for longest gives way. For one thread at a time.

    Raises:
        ValueError: ``max_processes`` is below 1.
    """

    def __init__(self, max_processes: int = 2) -> None:
        if max_processes < 1:
            raise ValueError(f"max_processes is {max_processes}; a pool needs room for at least 1 process")
        self._max_processes = max_processes
        self._processes: OrderedDict[ProcessSpec, KernelProcess] = OrderedDict()

    def call(self, spec: ProcessSpec, function: str, *, timeout: float, **arguments: Any) -> Reply:
        """:meth:`KernelProcess.call` on the process of ``spec``; its start doesn't count towards ``timeout``.

        Raises:
            ProcessStartFailed: the process could not be started.
            ExecutionError: as :meth:`KernelProcess.call`.
        """
        return self._process(spec).call(function, timeout=timeout, **arguments)

    def _process(self, spec: ProcessSpec) -> KernelProcess:
        """The living process of ``spec``, now the most recently used."""
        process = self._processes.pop(spec, None)
        if process is not None and not process.alive:
            if not process.ended:
                _log.warning("kernel process %r died between two tasks; starting another", spec.name)
            process.close()
            process = None
        if process is None:
            while len(self._processes) >= self._max_processes:
                self._processes.popitem(last=False)[1].close()
            process = KernelProcess(spec)
        self._processes[spec] = process
        return process

    def close(self) -> None:
        """End every process. The pool can be used again."""
        while self._processes:
            self._processes.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
