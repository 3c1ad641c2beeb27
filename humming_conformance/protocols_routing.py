# SPDX-License-Identifier: Apache-2.0
"""What an adapter offers so that its library's choices can be judged without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, Self, runtime_checkable

from humming_conformance.devices import DeviceProfile
from humming_conformance.problems import Case
from humming_conformance.protocols import Route

#: How a library is asked: as production asks it (its own list of M-intervals), for one M alone, or as production does
#: while a test runs.
Asked = Literal["production", "single_m", "under_pytest"]

#: Where a library refuses, in the order in which it meets a layer: describing it, before any weight is touched;
#: choosing a configuration, at the first call; accepting the configuration that was chosen.
Stage = Literal["layer", "selection", "kernel"]


@dataclass(frozen=True)
class Refusal:
    """An exception with which a library refuses.

    Attributes:
        stage: where in a layer's life.
        kind: the exception's qualified name, ``AssertionError`` for one that is built in.
        message: its text.
        place: the library's innermost frame, ``tune/base.py:173 get_config``.
        interface: whether the library raised by itself, rather than Python in the middle of it: its innermost frame
            holds a ``raise`` or an ``assert``.
    """

    stage: Stage
    kind: str
    message: str
    place: str
    interface: bool


@dataclass(frozen=True)
class Selection:
    """What a library would run for a case, or how it refuses; one of the two.

    ``route.details`` hold ``threads`` of a block, ``shared_memory_bytes`` of one as the library estimates it,
    ``blocks_per_sm`` and ``tuning_config``, the library's own dictionary. A configuration that the library's kernel
    does not accept has both a route and a refusal of stage ``kernel``.
    """

    route: Route | None
    refusal: Refusal | None = None

    def as_json(self) -> dict[str, Any]:
        """A JSON-able dictionary, for :meth:`from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """The selection that :meth:`as_json` made a dictionary of."""
        route, refusal = stored["route"], stored["refusal"]
        if route is not None:
            route = Route(**(route | {"tile": tuple(route["tile"]) if route["tile"] else None}))
        return cls(route, None if refusal is None else Refusal(**refusal))


@dataclass(frozen=True)
class Interval:
    """One entry of a library's list: for all rows in (``above``, ``through``] it runs ``route``."""

    above: int
    through: int
    route: Route


@dataclass(frozen=True)
class SourceCode:
    """What a library's compiler is given for one kernel.

    Attributes:
        code: CUDA C++ with the kernel instantiated.
        arguments: of nvcc, without input, output and include folders.
        includes: folders of the library's headers.
    """

    code: str
    arguments: tuple[str, ...]
    includes: tuple[str, ...]


class Selector(Protocol):
    """A library that says what it would run on a device that isn't here.

    Called in a kernel process, in a child of it for each profile: what a library has seen, chosen and stored of one
    device says nothing about another. Nothing here touches a weight or needs a GPU.
    """

    def install_profile(self, profile: DeviceProfile) -> None:
        """Let the library see a recorded device, for the rest of this process."""

    def select(self, case: Case, asked: Asked) -> Selection:
        """What the library would run for a case, with its own checks of that; a refusal is an answer."""

    def compatible(self, case: Case) -> bool | None:
        """What the library's own compatibility function says; None for a library that has none.

        Raises:
            whatever that function raises.
        """

    def intervals(self, case: Case) -> tuple[Interval, ...]:
        """The library's whole list for the case's layer, whatever the case's M.

        Raises:
            whatever the library raises.
        """

    def source(self, case: Case) -> Mapping[str, Any]:
        """The fields of the :class:`SourceCode` of what production would run for a case.

        Raises:
            whatever the library raises.
        """

    def shared(self, case: Case) -> str:
        """What one caller can change of another's answer, in one sentence; empty for nothing.

        Raises:
            whatever the library raises.
        """


@runtime_checkable
class Selects(Protocol):
    """An adapter, optionally: its library's choices can be asked for."""

    def selector(self) -> Selector:
        """A selector that has seen nothing yet; called in a kernel process."""
