# SPDX-License-Identifier: Apache-2.0
"""The task of asking a library what it would run on a recorded device. Called in kernel processes.

Each call answers in a child of the kernel process, so that what the library keeps of one device (described, chosen,
cached) is gone with the child; the library itself is imported once, before.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

from humming_conformance.devices import DeviceProfile
from humming_conformance.execution.run_case import load_adapter
from humming_conformance.problems import parse_case
from humming_conformance.protocols_routing import Selector, Selects

#: What can be asked about a case: the ways of :data:`.protocols_routing.Asked`, and a selector's other methods.
Question = Literal["production", "single_m", "under_pytest", "compatible", "intervals", "shared", "source"]


def ask(*, kernel: str, profile: dict[str, Any], questions: Sequence[tuple[Question, str]]) -> dict[str, Any]:
    """Answer questions about one recorded device.

    Args:
        kernel: ``module:attribute`` of the adapter, which :class:`~humming_conformance.protocols_routing.Selects`.
        profile: fields of the :class:`~humming_conformance.devices.DeviceProfile`.
        questions: what is asked, and the id of the case it is asked about.

    Returns:
        ``answers``, one a question: of a selection :meth:`.Selection.as_json`; of ``compatible``, ``shared`` and
        ``source`` what the selector says, of ``intervals`` the fields of each :class:`.Interval`, or
        ``{"refused": text}`` where the library raised.

    Raises:
        TypeError: the adapter's library can't be asked.
        RuntimeError: the child ended without an answer, or could not begin.
    """
    adapter = load_adapter(kernel)
    if not isinstance(adapter, Selects):
        raise TypeError(f"kernel {kernel} offers no selector")
    if adapter.library is not None:
        # so that a child need not
        importlib.import_module(adapter.library.module)
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _answer(adapter, profile, questions, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        text = stream.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0 or not text:
        raise RuntimeError(f"the child that was to ask the library ended with status {status}")
    answered: dict[str, Any] = json.loads(text)
    if "failed" in answered:
        raise RuntimeError(answered["failed"])
    return answered


def _answer(adapter: Selects, profile: dict[str, Any], questions: Sequence[tuple[Question, str]], writer: int) -> None:
    """The child's whole life: write the answers, and be gone without what an interpreter does at its end."""
    status = 1
    try:
        try:
            selector = adapter.selector()
            selector.install_profile(DeviceProfile(**profile))
            value: dict[str, Any] = {"answers": [_one(selector, what, case) for what, case in questions]}
        except Exception:  # noqa: BLE001  # the parent tells it
            value = {"failed": traceback.format_exc()}
        with os.fdopen(writer, "wb") as stream:
            stream.write(json.dumps(value).encode())
        status = 0
    finally:
        sys.stdout.flush()
        os._exit(status)


def _one(selector: Selector, what: Question, case_id: str) -> Any:
    case = parse_case(case_id)
    if what in ("production", "single_m", "under_pytest"):
        return selector.select(case, what).as_json()
    try:
        if what == "intervals":
            return [asdict(interval) for interval in selector.intervals(case)]
        return getattr(selector, what)(case)
    except Exception as error:  # noqa: BLE001  # a library that raises where it is asked has refused
        return {"refused": f"{type(error).__name__}: {str(error) or 'no message'}"}
