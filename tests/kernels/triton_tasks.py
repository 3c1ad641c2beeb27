# SPDX-License-Identifier: Apache-2.0
"""What the Triton tests run in a kernel process, where Triton may be imported."""

import re
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import triton
import triton.language as tl

from humming_conformance.devices import Device
from humming_conformance.execution.run_case import _launch_all
from humming_conformance.kernels.triton_fused import interpreter, kernel
from humming_conformance.kernels.triton_fused.adapter import K_TILE, choose_schedule, mma_class
from humming_conformance.kernels.triton_fused.decode import decode_element, decode_scale
from humming_conformance.kernels.triton_fused.dense import dense_kernel
from humming_conformance.kernels.triton_fused.moe import moe_kernel
from humming_conformance.problems import build_operands, parse_case


@triton.jit
def copy_kernel(source, target, load_limit, store_limit, BLOCK: tl.constexpr):
    """Copy elements below `store_limit` of those below `load_limit`."""
    i = tl.arange(0, BLOCK)
    tl.store(target + i, tl.load(source + i, mask=i < load_limit), mask=i < store_limit)


def copy(*, load_limit, store_limit):
    """Copy between two tensors of 24 elements, each amid a larger one; report the error and the count."""
    assert not interpreter.problem()
    memory = torch.zeros(2, 64)
    memory[0] = 7
    message = ""
    try:
        copy_kernel[(1,)](memory[0, 8:32], memory[1, 8:32], load_limit, store_limit, BLOCK=32)
    except Exception as error:  # noqa: BLE001  # the interpreter wraps what it raises
        message = str(error)
    return {"error": message, "written": int(memory[1].count_nonzero())}


def stock_interpreter():
    """What the self-test says of the interpreter as Triton ships it, where nothing was installed before."""
    try:
        interpreter.self_test()
    except RuntimeError as error:
        return {"message": str(error)}
    return {"message": ""}


def untried_version():
    """What is said of a version that nobody tried."""
    triton.__version__ = "99.0"
    return {"problem": interpreter.problem()}


def moe_relations(*, case_id, device):
    """Codes (rows, N) of one MoE launch, by kind and by what was changed; permuted rows are put back in order."""
    case, place = parse_case(case_id), Device(**device)
    operands = build_operands(case)
    order = np.random.default_rng(0).permutation(case.problem.m)

    def run(tokens, kind=case.problem.kind):
        problem = replace(case.problem, m=len(tokens), kind=kind)
        chosen = replace(operands, activation=operands.activation[:, tokens], expert=operands.expert[:, tokens])
        changed = replace(case, problem=problem)
        codes, trouble = _launch_all(kernel, kernel.prepare(changed, chosen, place), changed, place, [0])
        assert not trouble
        return codes[0].reshape(len(tokens), problem.top_k, -1)

    everyone = np.arange(case.problem.m)
    results = {kind: run(everyone, kind) for kind in ("moe_indexed", "moe_grouped_contiguous", "moe_grouped_masked")}
    results |= {"permuted": run(order)[np.argsort(order)], "alone": run(everyone[:1]), "again": run(everyone)}
    return results


@triton.jit
def decode_kernel(codes, elements, scales, ELEMENT: tl.constexpr, SCALE_FORMAT: tl.constexpr):
    """Write the values of all 256 bytes as elements and as scales."""
    i = tl.arange(0, 256)
    code = tl.load(codes + i)
    tl.store(elements + i, decode_element(code, ELEMENT))
    tl.store(scales + i, decode_scale(code, SCALE_FORMAT))


def decode_bytes(*, element, scale_format, device):
    """The fp32 values that the kernels see in each byte, as a weight and as a scale."""
    if device == "cpu":
        assert not interpreter.problem()
    codes = torch.arange(256, device=device).to(torch.uint8)
    elements, scales = (torch.zeros(256, device=device) for _ in range(2))
    decode_kernel[(1,)](codes, elements, scales, element, scale_format)
    return {"elements": elements.cpu().numpy(), "scales": scales.cpu().numpy()}


def compile_kernel(*, moe, sm, m, case_id):
    """Compile the dense or the MoE kernel for a bf16 case and an architecture that needn't be here."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = moe_kernel if moe else dense_kernel
    schedule = choose_schedule(m, interpreted=False, moe=moe)
    scheme = parse_case(case_id).weight
    scale = {"bf16": "bf16", "fp32": "fp32"}.get(scheme.scale_format, "u8")
    zero_point = {"float": "*bf16"}.get(scheme.zero_point, "*u8")
    second_scale = {"tensor": "*fp32"}.get(scheme.second_scale, "*bf16")
    types = {"activation": "*bf16", "weight": "*u8", "scale": f"*{scale}", "zero_point": zero_point}
    types |= {"second_scale": second_scale, "bias": "*bf16", "out": "*bf16", "row_ids": "*i32", "expert_ids": "*i32"}
    sizes = ("M", "N", "K", "rows", "top_k", "weight_stride", "scale_stride", "scale_rows")
    types |= dict.fromkeys(sizes, "i32")
    constants = {"ELEMENT": scheme.element, "SCALE_FORMAT": scheme.scale_format}
    constants |= {"GROUP_SIZE": scheme.granularity.group_size or K_TILE, "BLOCK_K": K_TILE}
    constants |= {"BLOCK_M": schedule.block_m, "BLOCK_N": schedule.block_n}
    if scheme.granularity.kind in ("channel", "group"):
        constants["scale_rows"] = 1
    if scheme.zero_point == "none":
        constants["zero_point"] = None
    if scheme.second_scale == "none":
        constants["second_scale"] = None
    types |= dict.fromkeys(constants, "constexpr")
    names = function.arg_names
    source = ASTSource(
        function,
        {name: types[name] for name in names},
        {(names.index(name),): value for name, value in constants.items()},
        {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if name not in {*constants, "top_k"}},
    )
    options = {"num_warps": schedule.warps, "num_stages": schedule.stages}
    compiled = triton.compile(source, target=GPUTarget("cuda", sm, 32), options=options)
    return {
        "mma_class": mma_class(compiled.asm["ptx"]),
        "shared": compiled.metadata.shared,
        "stack": _stack_bytes(compiled.asm["cubin"]),
        "flushes_subnormals": ".ftz" in compiled.asm["ptx"],
    }


def _stack_bytes(cubin):
    """Bytes of stack of the one kernel in a cubin: what its registers spill to."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        listing = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return int(re.search(r"STACK:(\d+)", listing)[1])
