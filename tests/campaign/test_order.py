# SPDX-License-Identifier: Apache-2.0
"""Items in an order that starts few kernel processes."""

from collections import Counter
from itertools import groupby, pairwise
from types import SimpleNamespace

import pytest

from humming_conformance.campaign.order import in_shares


def _task(number, device="h200", regime="random"):
    pretended = device if device != "h200" else ""
    return SimpleNamespace(
        number=number,
        device=SimpleNamespace(name=device, pretended=pretended),
        case=SimpleNamespace(regime=regime),
    )


def _tasks(plain, older, poison):
    devices = ["sm_75_on_sm_90", "sm_80_on_sm_90", "sm_89_on_sm_90"]
    tasks = [_task(number) for number in range(plain)]
    tasks += [_task(plain + number, device=devices[number % 3]) for number in range(older)]
    tasks += [_task(plain + older + number, regime="poison") for number in range(poison)]
    return sorted(tasks, key=lambda task: task.number * 7919 % len(tasks))


def _special(task):
    return (task.device.pretended, task.case.regime == "poison") != ("", False)


@pytest.mark.parametrize("workers", [1, 2, 7, 16])
@pytest.mark.parametrize(("plain", "older", "poison"), [(300, 90, 30), (10, 90, 30), (0, 12, 0), (5, 0, 0), (0, 0, 0)])
def test_order_keeps_every_task(plain, older, poison, workers):
    """Each task stands in the order once."""
    tasks = _tasks(plain, older, poison)
    ordered = in_shares(tasks, workers)
    assert Counter(task.number for task in ordered) == Counter(task.number for task in tasks)


@pytest.mark.parametrize("workers", [1, 2, 7, 16])
def test_workers_begin_with_what_is_special_and_end_with_what_is_not(workers):
    """Half of the workers' stretches hold special tasks, at their heads, and all end with plain ones."""
    ordered = in_shares(_tasks(300, 90, 30), workers)
    ends = [len(ordered) * number // workers for number in range(workers + 1)]
    stretches = [ordered[begin:end] for begin, end in pairwise(ends)]
    with_special = [stretch for stretch in stretches if any(map(_special, stretch))]
    assert len(with_special) <= -(-workers // 2)
    for stretch in with_special:
        flags = [special for special, _ in groupby(stretch, _special)]
        assert flags == [True, False]


def test_kinds_stand_together():
    """Along the order, each kind of special task forms one row of neighbours but for the plain tasks between."""
    special = [task for task in in_shares(_tasks(300, 90, 30), 8) if _special(task)]
    kinds = [kind for kind, _ in groupby(special, lambda task: (task.device.pretended, task.case.regime))]
    assert len(kinds) == len(set(kinds)) == 4
