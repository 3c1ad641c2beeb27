# SPDX-License-Identifier: Apache-2.0
"""A kernel that claims something and computes nothing: what the tests of the tier arrays draw from."""

from humming_conformance.protocols import Claim
from humming_conformance.support import NEUTRAL_OPERANDS, support_from_claims


class ClaimingKernel:
    """Two claims with rules that tie scheme and size, and one product that holds impossible schemes."""

    name = "claiming"
    device_kinds = ("cpu_interpreter",)
    library = None
    claims = (
        Claim(
            kinds=("dense", "moe_indexed"),
            weights=("int4", "int1"),
            granularities=("g32", "g128"),
            scale_formats=("bf16",),
            activations=("bf16", "int8"),
            activation_granularities=("none", "token"),
            outputs=("bf16",),
            bias=(False,),
            rules=(
                NEUTRAL_OPERANDS,
                (
                    "K is a multiple of the weight group",
                    lambda case: case.problem.k % case.weight.granularity.group_size == 0,
                ),
            ),
        ),
        Claim(
            kinds=("dense",),
            weights=("int8", "uint4"),
            granularities=("channel", "b*"),
            scale_formats=("bf16",),
            activations=("bf16",),
            outputs=("bf16",),
            zero_points=("none", "integer"),
            rules=(NEUTRAL_OPERANDS, ("N is even", lambda case: case.problem.n % 2 == 0)),
        ),
    )

    def support(self, case, device):
        """From the claims alone."""
        return support_from_claims(self.claims, case, device, self.device_kinds)

    prepare = run = route = contract = None


class LyingKernel(ClaimingKernel):
    """Refuses, by itself, a case that its claims allow."""

    name = "lying"

    def support(self, case, device):
        """Refuses int4, whatever the claims say."""
        answer = super().support(case, device)
        return type(answer)("no", "no int4") if case.weight.element == "int4" else answer


kernel = ClaimingKernel()
lying = LyingKernel()
