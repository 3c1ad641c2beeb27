# SPDX-License-Identifier: Apache-2.0
"""The cases of the performance suite: formats side by side, real models' layers, reported issues.

``python -m humming_conformance.campaign.timed_cases`` adds what the tier lists lack; lists are append-only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from humming_conformance.problems.models import SCHEMES, Model, Projection, load_models, projections
from humming_conformance.problems.tiers import TIERS, append_to_tier, listed_kernels, load_tier

#: Schemes that are timed of each kernel with a list.
KERNELS = {"humming": tuple(SCHEMES), "triton_fused": ("int4_g128", "int8_weights", "mxfp4")}
#: Weights of one case: what is prepared in a second or two.
MOST_WEIGHTS = 135_000_000
#: Experts that one rank holds where they are shared out.
_HELD = 32
_TP = (1, 2, 4, 8)
#: Rows by tier: of dense layers, and tokens of layers with experts.
_DENSE_ROWS = {"gate": (1, 64, 1024), "full": (1, 8, 64, 1024, 8192)}
_MOE_ROWS = {"gate": (1, 16, 256), "full": (1, 16, 256, 4096)}
_MOE_KINDS = {
    "gate": ("moe_indexed", "moe_grouped_contiguous"),
    "full": ("moe_indexed", "moe_grouped_contiguous", "moe_grouped_masked"),
}
#: Scheme, M, N, K of reported issues, with what they are compared with.
_ISSUES = (
    # github.com/inclusionAI/humming/issues/38: mxfp4 with fp8 activations in groups of 32, and with bf16 ones
    ("mxfp4_fp8_g32", 4096, 3072, 4096),
    ("mxfp4_fp8_g32", 4096, 14336, 4096),
    ("mxfp4", 4096, 3072, 4096),
    ("mxfp4", 4096, 14336, 4096),
    # github.com/inclusionAI/humming/issues/72: int3 at M = 1, and int4 beside it
    ("int3_g128", 1, 17408, 5120),
    ("int4_g128", 1, 17408, 5120),
)


def timed_cases(tier: str, schemes: Sequence[str]) -> list[str]:
    """Ids of the cases of a tier whose scheme is one of these; lower tiers' cases are among them."""
    found = list(_smoke())
    if tier != TIERS[0]:
        found += [_dense(*issue) for issue in _ISSUES]
        # Llama-3-8B's down projection in every format.
        found += [_dense(scheme, m, 4096, 14336) for scheme in SCHEMES for m in (1, 16, 2048)]
        found += [case for name in TIERS[1 : TIERS.index(tier) + 1] for case in _models(name)]
    words = tuple(f"-{SCHEMES[scheme]}-m" for scheme in schemes)
    return [case for case in dict.fromkeys(found) if any(word in case for word in words)]


def _smoke() -> Iterator[str]:
    for scheme in ("int4_g128", "mxfp4", "fp8_channel"):
        for m in (1, 1024):
            yield _dense(scheme, m, 4096, 4096)
    for m in (1, 16):
        yield _moe("mxfp4", "moe_indexed", m, Projection("expert gate and up", 1440, 2880, 32, 4))


def _models(tier: str) -> Iterator[str]:
    """Each model's layers: in ``gate`` its largest that fits, in its first scheme; in ``full`` all, in all schemes."""
    for model in load_models().values():
        for scheme in model.schemes if tier == "full" else model.schemes[:1]:
            fitting = list(_fitting(model, 32 if scheme.startswith("mxfp4") else 128))
            for layer in fitting if tier == "full" else _one_of_each(fitting):
                if scheme == "fp8_block" and layer.n % 128:
                    continue
                if not layer.experts:
                    yield from (_dense(scheme, m, layer.n, layer.k) for m in _DENSE_ROWS[tier])
                    continue
                for kind in _MOE_KINDS[tier]:
                    yield from (_moe(scheme, kind, m, layer) for m in _MOE_ROWS[tier])


def _fitting(model: Model, group_size: int) -> Iterator[Projection]:
    """Layers of at most :data:`MOST_WEIGHTS` weights in whole groups, experts as a rank holds them, least TP first."""
    for tp in _TP:
        for layer in projections(model, tp):
            held = min(layer.experts, _HELD)
            if max(held, 1) * layer.n * layer.k <= MOST_WEIGHTS and layer.n % 8 == 0 and layer.k % group_size == 0:
                yield Projection(layer.name, layer.n, layer.k, held, min(layer.top_k, held or 1))


def _one_of_each(layers: Sequence[Projection]) -> list[Projection]:
    """The first gate-and-up layer: of the experts where there are any, else dense."""
    gates = [layer for layer in layers if layer.name.endswith("gate and up")]
    return sorted(gates, key=lambda layer: not layer.experts)[:1]


def _dense(scheme: str, m: int, n: int, k: int) -> str:
    return f"dense-{SCHEMES[scheme]}-m{m}.n{n}.k{k}-random"


def _moe(scheme: str, kind: str, m: int, layer: Projection) -> str:
    return f"{kind}-{SCHEMES[scheme]}-m{m}.n{layer.n}.k{layer.k}.e{layer.experts}.top{layer.top_k}-random"


def main() -> None:
    """Add to the lists of every kernel and tier."""
    for kernel, schemes in KERNELS.items():
        for tier in TIERS:
            known = load_tier(tier, kernel, "performance") if kernel in listed_kernels("performance") else ()
            append_to_tier(
                tier, kernel, [case for case in timed_cases(tier, schemes) if case not in known], "performance"
            )


if __name__ == "__main__":
    main()
