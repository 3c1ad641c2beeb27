# SPDX-License-Identifier: Apache-2.0
"""The order of a run's items: few processes to start, and none where a worker is about to run out of work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def in_shares(items: Sequence[Item], kind: Callable[[Item], tuple[str, ...]], workers: int) -> list[Item]:
    """Items in an order whose equal stretches, one for each worker, begin with what needs a process of its own kind.

    xdist's worksteal hands each worker an equal stretch, and an idle worker takes the end of another's. Few items need
    the process of an older path, say, or one with guard pages: every second worker gets some, sorted by kind, at the
    head of its stretch (every worker where they are more than half). What is stolen is then of the kind that all
    workers have a process for.

    Args:
        items: to judge.
        kind: equal for items that one process serves; empty for those that every worker has a process for.
        workers: how many judge; at least 1.
    """
    special = sorted(filter(kind, items), key=kind)
    plain = [item for item in items if not kind(item)]
    shares: list[list[Item]] = [[] for _ in range(workers)]
    takers = shares if len(special) > len(plain) else shares[::2]
    for number, taker in enumerate(takers):
        taker.extend(special[len(special) * number // len(takers) : len(special) * (number + 1) // len(takers)])
    for number, share in enumerate(shares):
        size = len(items) * (number + 1) // workers - len(items) * number // workers
        room = max(size - len(share), 0)
        share.extend(plain[:room])
        plain = plain[room:]
    return [item for share in shares for item in share] + plain
