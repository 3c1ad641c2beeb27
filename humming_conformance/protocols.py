# SPDX-License-Identifier: Apache-2.0
"""What a kernel adapter offers, and the typed words the rest of the house exchanges with it.

Nothing here imports a kernel library. An adapter is one object that satisfies :class:`Kernel`; its claims are data,
so that collection can say what would run without importing the library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from humming_conformance.devices import Device, names_pretended_device
from humming_conformance.oracle.contract import Contract
from humming_conformance.problems import Case, Operands

Outcome = Literal["pass", "fail", "error", "unsupported", "waived", "not_run"]


@dataclass(frozen=True)
class Subject:
    """kernel : case : device, the key of verdicts, baselines, waivers and ``repro``."""

    kernel: str
    case_id: str
    device: str

    def __str__(self) -> str:
        return f"{self.kernel}:{self.case_id}:{self.device}"

    @property
    def heading(self) -> str:
        """What reports count the subject under: the kernel, or one of its older paths."""
        return f"{self.kernel} on {self.device}" if names_pretended_device(self.device) else self.kernel

    @classmethod
    def parse(cls, text: str) -> Subject:
        """Read ``kernel:case:device``; raises ValueError naming the text and the rule."""
        parts = text.split(":")
        if len(parts) != 3 or not all(parts):
            raise ValueError(f"subject {text!r} is not kernel:case:device, three parts joined by colons")
        return cls(*parts)


@dataclass(frozen=True)
class Ruling:
    """What one rule found on one subject."""

    rule: str
    outcome: Outcome
    reason: str


@dataclass(frozen=True)
class Verdict:
    """The judgement of one suite on one subject; the worst ruling gives the outcome.

    Attributes:
        reason: one line for tables.
        message: the whole failure text, empty for a pass.
        evidence: what was measured, JSON-able: margins, route, contract text, digests, seconds.
        waiver: the key of the waiver that turned a failure into ``waived``, or of one that passed unexpectedly.
    """

    subject: Subject
    suite: str
    outcome: Outcome
    reason: str = ""
    message: str = ""
    rulings: tuple[Ruling, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)
    waiver: str = ""


@dataclass(frozen=True)
class Support:
    """The typed answer to "does this kernel serve this case on this device?".

    ``yes``: judge it. ``no``: outside the claims; ``reason`` names the claim. ``absent``: claimed, but something is
    missing here (a GPU, a library); ``reason`` says what and ``mend`` how to get it.
    """

    answer: Literal["yes", "no", "absent"]
    reason: str = ""
    mend: str = ""


@dataclass(frozen=True)
class Claim:
    """One product set of what a kernel says it supports; a case is claimed when one claim holds in every field.

    ``calls`` are the call options that the kernel supports, any of them together. ``rules`` are (sentence,
    predicate) pairs for what is no product: the sentence is what must hold and is shown when it doesn't.
    """

    kinds: tuple[str, ...]
    weights: tuple[str, ...]
    granularities: tuple[str, ...]
    scale_formats: tuple[str, ...]
    activations: tuple[str, ...]
    activation_granularities: tuple[str, ...] = ("none",)
    outputs: tuple[str, ...] = ("bf16", "fp16")
    zero_points: tuple[str, ...] = ("none",)
    second_scales: tuple[str, ...] = ("none",)
    bias: tuple[bool, ...] = (False, True)
    calls: tuple[str, ...] = ()
    rules: tuple[tuple[str, Callable[[Case], bool]], ...] = ()


@dataclass(frozen=True)
class Library:
    """The library behind a kernel: its distribution, its import name and the environment its processes need."""

    distribution: str
    module: str
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Variables that must point at a folder of this build's own (a JIT cache), made before the process starts.
    cache_variables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Route:
    """What was really selected: the path, the MMA class, the schedule, the executed activation format."""

    path: str
    mma_class: str = ""
    tile: tuple[int, int, int] | None = None
    stages: int = 0
    split_k: int = 1
    activation_format: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


class OutputBuffer(Protocol):
    """Output memory that the judge owns: pre-filled, guarded on both sides, checked after the run."""

    def allocate(self, rows: int, columns: int, output_format: str) -> Any:
        """A (rows, columns) contiguous torch tensor of the output format on the judged device."""


@dataclass(frozen=True)
class Output:
    """What a launch wrote.

    ``tensor`` is the (rows, N) tensor that :meth:`OutputBuffer.allocate` gave; ``row_of`` maps each logical row
    (token * top_k + slot) to its row there (None: identity). All other rows must be untouched.
    """

    tensor: Any
    row_of: NDArray[np.int64] | None = None


@runtime_checkable
class Kernel(Protocol):
    """An adapter. ``prepare``, ``run``, ``route`` and ``contract`` are called in a kernel process only.

    Two more attributes are optional. ``older_paths: tuple[int, ...]`` are compute capabilities, such as 80, whose code
    the kernel can be made to run on a newer GPU: ``prepare`` is then given a device that is ``pretended``, in a process
    that sees no other. ``reproduction(case, route, device) -> str`` is source for ``repro``.
    """

    #: Name in subjects: lower case, ``[a-z0-9_]+``.
    name: str
    #: ``cuda``, ``cpu`` or ``cpu_interpreter``, best first: the first that the machine has is judged.
    device_kinds: tuple[str, ...]
    claims: tuple[Claim, ...]
    library: Library | None

    def support(self, case: Case, device: Device) -> Support:
        """Whether ``case`` is claimed on ``device``; data only, no library import."""

    def prepare(self, case: Case, operands: Operands, device: Device) -> Any:
        """Load and transform the weights, choose the schedule; the state the other calls take."""

    def run(self, state: Any, launch: int, buffer: OutputBuffer) -> Output:
        """Launch once with the activations and routing of ``launch``."""

    def route(self, state: Any) -> Route:
        """What was selected for this state."""

    def contract(self, case: Case, route: Route) -> Contract:
        """The arithmetic of that route."""


@dataclass(frozen=True)
class BuildUnit:
    """One kernel to compile.

    Attributes:
        key: equal for equal compiled kernels of one library build, and for no others.
        description: one line for people.
        arguments: JSON-able: all that :meth:`BuildsAhead.build` needs, in whichever process.
    """

    key: str
    description: str
    arguments: Mapping[str, Any]


@runtime_checkable
class BuildsAhead(Protocol):
    """An adapter, optionally: what ``prepare`` would compile can be compiled ahead, in another process.

    Its library compiles into a folder that :attr:`Library.cache_variables` name, once for all processes that ask for
    one kernel at the same time. Both are called in a kernel process only.
    """

    def build_unit(self, case: Case, operands: Operands, device: Device) -> BuildUnit:
        """The kernel that ``prepare`` would compile with these arguments; compiles nothing of it."""

    def build(self, unit: BuildUnit) -> None:
        """Compile a unit into the library's cache, or find it there; raises whatever the library raises."""
