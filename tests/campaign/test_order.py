# SPDX-License-Identifier: Apache-2.0
"""Items in an order that starts few kernel processes."""

from collections import Counter
from itertools import groupby, pairwise

import pytest

from humming_conformance.campaign.order import in_shares


def _items(plain, older, poison):
    """Pairs of a number and a kind, shuffled."""
    kinds = [()] * plain + [(f"sm_{number % 3}",) for number in range(older)] + [("guard pages",)] * poison
    items = list(enumerate(kinds))
    return sorted(items, key=lambda item: item[0] * 7919 % len(items))


def _kind(item):
    return item[1]


@pytest.mark.parametrize("workers", [1, 2, 7, 16])
@pytest.mark.parametrize(("plain", "older", "poison"), [(300, 90, 30), (10, 90, 30), (0, 12, 0), (5, 0, 0), (0, 0, 0)])
def test_order_keeps_every_task(plain, older, poison, workers):
    """Each task stands in the order once."""
    items = _items(plain, older, poison)
    ordered = in_shares(items, _kind, workers)
    assert Counter(ordered) == Counter(items)


@pytest.mark.parametrize("workers", [1, 2, 7, 16])
def test_workers_begin_with_what_is_special_and_end_with_what_is_not(workers):
    """Half of the workers' stretches hold special tasks, at their heads, and all end with plain ones."""
    ordered = in_shares(_items(300, 90, 30), _kind, workers)
    ends = [len(ordered) * number // workers for number in range(workers + 1)]
    stretches = [ordered[begin:end] for begin, end in pairwise(ends)]
    with_special = [stretch for stretch in stretches if any(map(_kind, stretch))]
    assert len(with_special) <= -(-workers // 2)
    for stretch in with_special:
        flags = [special for special, _ in groupby(stretch, lambda item: bool(_kind(item)))]
        assert flags == [True, False]


def test_kinds_stand_together():
    """Along the order, each kind of special task forms one row of neighbours but for the plain tasks between."""
    special = list(filter(_kind, in_shares(_items(300, 90, 30), _kind, 8)))
    kinds = [kind for kind, _ in groupby(special, _kind)]
    assert len(kinds) == len(set(kinds)) == 4
