# SPDX-License-Identifier: Apache-2.0
"""Accepted routes: what a library runs for a few layers on a recorded device, a line for each range of rows.

A file is text, made to be read in a diff:

    # humming 0.1.20 on h100
    dense-w_int4.g128.bf16-a_bf16-m1.n4096.k4096-random 2c1f0e8a9b77
      1-32 mma_scaled_weight 8-32x128x128 stages 4 blocks 1 stream_k
      33-… …

The first line names kernel, library version and device; then for each layer the id of its case with M = 1 and a digest
of the library's whole list, of which the lines below show what a reader wants to know: neighbours that differ in the
rows of a tile, or in what isn't shown, are one line.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from humming_conformance.protocols import Route
from humming_conformance.protocols_routing import Interval

_HEAD = re.compile(r"# (?P<kernel>\w+) (?P<library>\S+) on (?P<device>\w+)")
#: What stands for a layer that the library has no list for.
REFUSED = "refused"
#: Lists end here, for want of an end.
_ENDLESS = 1 << 30


class RoutesError(ValueError):
    """A file of routes is missing or malformed; the text names it, the rule and the mend."""


@dataclass(frozen=True)
class LayerRoutes:
    """A library's list for one layer: a digest of all of it, and the lines that show it."""

    digest: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class RouteTable:
    """The routes of one kernel and library version on one device, by layer (the id of its case with M = 1)."""

    kernel: str
    library: str
    device: str
    layers: Mapping[str, LayerRoutes]


def routes_path(folder: Path, kernel: str, device: str) -> Path:
    """Where the routes of a kernel on a device are kept below the folder of all baselines."""
    return folder / "routes" / kernel / f"{device}.txt"


def layer_routes(intervals: Sequence[Interval]) -> LayerRoutes:
    """A library's list as it is kept; the digest is over every range and all of its configuration."""
    whole = [(entry.above, entry.through, entry.route.details["tuning_config"]) for entry in intervals]
    digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:12]
    merged: list[tuple[int, int, str, str, list[int]]] = []
    for entry in intervals:
        path, rest = _shown(entry.route)
        rows = entry.route.tile[0] if entry.route.tile else 0
        if merged and merged[-1][2:4] == (path, rest):
            above, _, _, _, tiles = merged[-1]
            merged[-1] = (above, entry.through, path, rest, [*tiles, rows])
        else:
            merged.append((entry.above, entry.through, path, rest, [rows]))
    lines = []
    for above, through, path, rest, tiles in merged:
        end = "" if through >= _ENDLESS else str(through)
        few, most = min(tiles), max(tiles)
        lines.append(f"{above + 1}-{end} {path} {few if few == most else f'{few}-{most}'}x{rest}")
    return LayerRoutes(digest, tuple(lines))


def refused_layer(text: str) -> LayerRoutes:
    """A layer that the library refuses, with what it said."""
    return LayerRoutes(REFUSED, (" ".join(text.split()),))


def _shown(route: Route) -> tuple[str, str]:
    """The path, and what is shown behind the rows of the tile."""
    tile = route.tile or (0, 0, 0)
    config = route.details["tuning_config"]
    flags = sorted(key.removeprefix("use_") for key, value in config.items() if value is True)
    rest = f"{tile[1]}x{tile[2]} stages {route.stages} blocks {route.details['blocks_per_sm']}"
    return route.path, " ".join([rest, *flags])


def write_routes(path: Path, table: RouteTable) -> None:
    """Write a table, through a temporary file."""
    text = f"# {table.kernel} {table.library} on {table.device}\n"
    for layer, routes in sorted(table.layers.items()):
        text += f"{layer} {routes.digest}\n" + "".join(f"  {line}\n" for line in routes.lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(path)


def read_routes(path: Path) -> RouteTable:
    """The table of a file.

    Raises:
        RoutesError: there is none, or it isn't as :func:`write_routes` writes it.
    """
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        raise RoutesError(f"{path}: no routes are recorded there; humming-conformance routes record does it") from None
    head = _HEAD.fullmatch(lines[0]) if lines else None
    if head is None:
        raise RoutesError(f"{path}: the first line is not '# KERNEL VERSION on DEVICE'; restore the file")
    layers: dict[str, LayerRoutes] = {}
    layer = ""
    for number, line in enumerate(lines[1:], start=2):
        if line.startswith("  ") and layer:
            known = layers[layer]
            layers[layer] = LayerRoutes(known.digest, (*known.lines, line.strip()))
            continue
        layer, _, digest = line.partition(" ")
        if not layer or not digest or layer in layers:
            raise RoutesError(f"{path}, line {number}: neither a range of rows nor a new layer; restore the file")
        layers[layer] = LayerRoutes(digest, ())
    return RouteTable(head["kernel"], head["library"], head["device"], layers)


def changed_layers(before: RouteTable, after: RouteTable) -> dict[str, list[str]]:
    """Lines that say how each layer that differs does: ``-`` before, ``+`` after; a digest alone says so."""
    found: dict[str, list[str]] = {}
    for layer in sorted(before.layers.keys() | after.layers.keys()):
        old, new = before.layers.get(layer), after.layers.get(layer)
        if old == new:
            continue
        if old is not None and new is not None and old.lines == new.lines:
            found[layer] = ["~ the lines are the same; ranges or entries that they don't show differ"]
            continue
        gone = old.lines if old else ()
        come = new.lines if new else ()
        found[layer] = [f"- {line}" for line in gone if line not in come]
        found[layer] += [f"+ {line}" for line in come if line not in gone]
    return found
