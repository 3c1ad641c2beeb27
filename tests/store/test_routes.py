# SPDX-License-Identifier: Apache-2.0
"""Accepted routes as text: written, read, compared."""

from __future__ import annotations

import pytest

from humming_conformance.protocols import Route
from humming_conformance.protocols_routing import Interval
from humming_conformance.store.routes import (
    LayerRoutes,
    RoutesError,
    RouteTable,
    changed_layers,
    layer_routes,
    read_routes,
    refused_layer,
    routes_path,
    write_routes,
)

LAYER = "dense-w_int4.g128.bf16-a_bf16-m1.n4096.k4096-random"
OTHER = "dense-w_int8.channel.bf16-a_int8.token-m1.n4096.k4096-random"


def interval(above, through, rows, mma="wgmma", **config):
    """An entry of a library's list whose tile has so many rows."""
    tuning = {"block_shape": [rows, 128, 64], "use_tma": True, "use_pdl": False, **config}
    details = {"tuning_config": tuning, "blocks_per_sm": 2}
    return Interval(above, through, Route(f"{mma}_scaled_weight", mma, (rows, 128, 64), 4, details=details))


LIST = [
    interval(0, 8, 8, "mma"),
    interval(8, 16, 16),
    interval(16, 24, 24),
    interval(24, 1 << 30, 64, use_stream_k=True),
]


def table(routes=None, library="0.1.20"):
    """A table of one layer, or of those given."""
    return RouteTable("humming", library, "h100", routes or {LAYER: layer_routes(LIST)})


def test_neighbours_of_one_kind_are_one_line():
    """Rows of the tile are a range, flags that are on are named, the last line has no end."""
    assert layer_routes(LIST).lines == (
        "1-8 mma_scaled_weight 8x128x64 stages 4 blocks 2 tma",
        "9-24 wgmma_scaled_weight 16-24x128x64 stages 4 blocks 2 tma",
        "25- wgmma_scaled_weight 64x128x64 stages 4 blocks 2 stream_k tma",
    )


def test_what_is_written_is_read(tmp_path):
    """Layers, digests and lines come back, in whichever order they were; no temporary file stays."""
    path = routes_path(tmp_path, "humming", "h100")
    written = table({OTHER: refused_layer("AssertionError:\nno message"), LAYER: layer_routes(LIST)})
    write_routes(path, written)
    assert read_routes(path) == written
    assert path.read_text().splitlines()[0] == "# humming 0.1.20 on h100"
    assert [found.name for found in path.parent.iterdir()] == ["h100.txt"]


def test_changes_are_both_routes():
    """A line that went and the lines that came; a layer that is the same says nothing."""
    changed = layer_routes([*LIST[:3], interval(24, 1 << 30, 32, use_stream_k=True)])
    after = table({LAYER: changed, OTHER: refused_layer("KeyError: 'bfloat16'")}, "0.1.21")
    assert changed_layers(table(), table()) == {}
    assert changed_layers(table(), after) == {
        LAYER: [
            "- 25- wgmma_scaled_weight 64x128x64 stages 4 blocks 2 stream_k tma",
            "+ 25- wgmma_scaled_weight 32x128x64 stages 4 blocks 2 stream_k tma",
        ],
        OTHER: ["+ KeyError: 'bfloat16'"],
    }


def test_what_no_line_shows_is_a_change():
    """Another boundary inside a line, or an entry that isn't shown: the digest alone differs, and that is said."""
    moved = [LIST[0], interval(8, 12, 16), interval(12, 24, 24), LIST[3]]
    hidden = [*LIST[:3], interval(24, 1 << 30, 64, use_stream_k=True, producer_stage_unroll=2)]
    for changed in (moved, hidden):
        found = changed_layers(table(), table({LAYER: layer_routes(changed)}))
        assert found[LAYER][0].startswith("~ ")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the first line"),
        ("# humming on h100\n", "the first line"),
        (f"# humming 0.1.20 on h100\n{LAYER}\n", "line 2"),
        (f"# humming 0.1.20 on h100\n{LAYER} abc\n{LAYER} abc\n", "line 3"),
        ("# humming 0.1.20 on h100\n  1-8 mma\n", "line 2"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, text, told):
    """The file, the line and the mend."""
    path = tmp_path / "h100.txt"
    path.write_text(text)
    with pytest.raises(RoutesError, match=f"h100.txt.*{told}.*restore the file"):
        read_routes(path)


def test_nothing_recorded_is_named(tmp_path):
    """The text says how to record."""
    with pytest.raises(RoutesError, match="routes record"):
        read_routes(tmp_path / "h100.txt")


def test_routes_that_are_equal_have_one_digest():
    """Equal lists, and only they: the digest is of all entries."""
    assert layer_routes(LIST) == layer_routes(list(LIST))
    assert isinstance(layer_routes(LIST), LayerRoutes)
    assert layer_routes(LIST).digest != layer_routes(LIST[:3]).digest
