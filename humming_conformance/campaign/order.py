# SPDX-License-Identifier: Apache-2.0
"""The order of a run's items: few processes to start, and none where a worker is about to run out of work."""

from __future__ import annotations

from collections.abc import Sequence

from humming_conformance.campaign.plan import Task


def in_shares(tasks: Sequence[Task], workers: int) -> list[Task]:
    """Tasks in an order whose equal stretches, one for each worker, begin with what needs a process of its own kind.

    xdist's worksteal hands each worker an equal stretch, and an idle worker takes the end of another's. Few tasks need
    the process of an older path or one with guard pages: every second worker gets some, sorted by kind, at the head of
    its stretch (every worker where they are more than half). What is stolen is then of the kind that all workers have
    a process for.

    Args:
        tasks: of the plan.
        workers: how many judge; at least 1.
    """
    special = sorted((task for task in tasks if _kind(task) != _PLAIN), key=_kind)
    plain = [task for task in tasks if _kind(task) == _PLAIN]
    shares: list[list[Task]] = [[] for _ in range(workers)]
    takers = shares if len(special) > len(plain) else shares[::2]
    for number, taker in enumerate(takers):
        taker.extend(special[len(special) * number // len(takers) : len(special) * (number + 1) // len(takers)])
    for number, share in enumerate(shares):
        size = len(tasks) * (number + 1) // workers - len(tasks) * number // workers
        room = max(size - len(share), 0)
        share.extend(plain[:room])
        plain = plain[room:]
    return [task for share in shares for task in share] + plain


_PLAIN = ("", False)


def _kind(task: Task) -> tuple[str, bool]:
    """Equal for tasks that one kernel process serves, :data:`_PLAIN` for most."""
    return (task.device.name if task.device.pretended else "", task.case.regime == "poison")
