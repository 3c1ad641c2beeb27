# SPDX-License-Identifier: Apache-2.0
"""QDQ as a kernel that is compiled, once for each N, into a folder of its library ``toylib``.

What compiling does depends on N and on the file ``broken`` in the state folder, which holds numbers.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from humming_conformance.kernels.qdq import Qdq
from humming_conformance.protocols import BuildUnit, Library
from humming_conformance.support import CannotJudge

#: N whose compiler kills its process, and one whose compiler doesn't end.
KILLS, HANGS = 24, 48
#: N for which no kernel can be selected, and one that can't be judged here.
REFUSED, ABSENT = 40, 56


class Building(Qdq):
    """Compiled ahead or, where that was not done, in ``prepare``."""

    name = "building"
    device_kinds = ("cpu",)
    library = Library("toylib", "toylib", cache_variables=("TOYLIB_CACHE",))

    def build_unit(self, case, operands, device):
        """One kernel for each N."""
        n = case.problem.n
        if n == REFUSED:
            raise ValueError("no tile divides 40")
        if n == ABSENT:
            raise CannotJudge("no compiler", "install one")
        return BuildUnit(f"n{n}", f"a kernel for N={n}", {"n": n})

    def build(self, unit):
        """Write the kernel, and a line about it into the file ``compiled``."""
        n = unit.arguments["n"]
        cache = Path(os.environ["TOYLIB_CACHE"])
        if (cache / unit.key).exists():
            return
        with (cache / "compiled").open("a") as file:
            file.write(f"{unit.key}\n")
        if n == KILLS:
            os.kill(os.getpid(), signal.SIGKILL)
        if n == HANGS:
            time.sleep(3600)
        broken = Path(os.environ["HUMMING_CONFORMANCE_STATE"], "broken")
        if broken.exists() and str(n) in broken.read_text().split():
            sys.stdout.write(
                f"toy.cu(1): warning: an error is near\ntoy.cu(3): error: no tile for {n}\n1 error detected\n"
            )
            raise RuntimeError("the compiler failed with exit code 1")
        (cache / unit.key).touch()

    def prepare(self, case, operands, device):
        """As QDQ, with its kernel compiled."""
        if case.problem.n not in (REFUSED, ABSENT):
            self.build(self.build_unit(case, operands, device))
        return super().prepare(case, operands, device)


building = Building()
