# SPDX-License-Identifier: Apache-2.0
"""Source that calls Humming with one launch's operands, for scripts that must not need this project.

The text defines ``run(o)``, which returns the logical rows (rows, N) as a float32 array; ``o`` holds the
code arrays of :class:`~humming_conformance.problems.operands.Operands` without their launch dimension. It
does what :mod:`.layout`, the layouts of MoE rows and :mod:`.adapter` do, in plain code that imports numpy, torch and
humming alone.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from humming_conformance.devices import Device
from humming_conformance.formats import IntegerFormat
from humming_conformance.kernels import _moe_layout as moe_layout
from humming_conformance.kernels.humming_lib import layout, pretended
from humming_conformance.kernels.humming_lib.selection import compute_config
from humming_conformance.problems import Case

_HELPERS = '''\
def pack(codes, bits):
    """Codes as int32 words: a little-endian bit stream along the last axis."""
    bit = codes[..., None] >> np.arange(bits, dtype=np.uint8) & 1
    stream = np.packbits(bit.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little")
    return torch.from_numpy(stream.view(np.int32))


def tensor(codes, dtype):
    """A tensor of ``dtype`` with the bits of ``codes``."""
    return torch.from_numpy(codes.view(f"i{codes.itemsize}")).view(dtype)
'''

_PRETENDING = """\
# The library's code for sm_{sm}, executed on sm_{hardware_sm}: the library sees another device, the compiler this one.
from types import SimpleNamespace

import humming.device
from humming.jit.runtime import KernelRuntime

DEVICE = SimpleNamespace(
{fields})


def init_sm_version(kernel):
    kernel.sm_version, kernel.sm_version_str = {sm}, "{hardware_sm}"


humming.device._get_device_info_extension = lambda: SimpleNamespace(_DeviceInfo=lambda index: DEVICE)
KernelRuntime.init_sm_version = init_sm_version
"""

_FORCED = '''\
def choose_schedule(layer):
    """What the library chose for this M where the launch was judged."""
    return {{
{config}    }}
'''

_CHOSEN = '''\
def choose_schedule(layer):
    """The entry for this M of the list that a layer left alone runs by."""
    configs = get_heuristics_config(layer.humming_config, **COMPUTE)
    return next(config for above, up_to, config in configs if above < ROWS <= up_to)
'''

_DENSE = """\
def run(o):
    layer = make_layer(o)
    outputs = torch.full((ROWS, N), float("nan"), dtype=OUTPUT).cuda()
    layer(
        {inputs},
        outputs=outputs,
        compute_config=COMPUTE,
        tuning_config=choose_schedule(layer),
    )
    return outputs.float().cpu().numpy()
"""

_INDEXED = """\
def run(o):
    layer = make_layer(o)
    schedule = choose_schedule(layer)
    block_m = schedule["block_shape"][0]
    expert = o["expert"].reshape(-1)  # of each row, token * TOP_K + slot
    sorted_ids, expert_ids = [], []
    for e in range(EXPERTS):
        rows = np.flatnonzero(expert == e).tolist()
        blocks = -(-len(rows) // block_m)
        sorted_ids += rows + [ROWS] * (blocks * block_m - len(rows))
        expert_ids += [e] * blocks
    num_tokens_padded = len(sorted_ids)
    # One block behind the end, which must not run: real rows with another expert.
    sorted_ids += [i % ROWS for i in range(block_m)]
    expert_ids += [(int(expert[0]) + 1) % EXPERTS]
    outputs = torch.full((ROWS, N), float("nan"), dtype=OUTPUT).cuda()
    layer(
        {inputs},
        outputs=outputs,
        sorted_ids=torch.tensor(sorted_ids, dtype=torch.int32).cuda(),
        expert_ids=torch.tensor(expert_ids, dtype=torch.int32).cuda(),
        num_tokens_padded=torch.tensor([num_tokens_padded], dtype=torch.int32).cuda(),
        top_k=TOP_K,
        compute_config=COMPUTE,
        tuning_config=schedule,
    )
    return outputs.float().cpu().numpy()
"""

_GROUPED = '''\
def place_rows(codes, row_of, capacity, nobody):
    """Each row's token at its place among ``capacity`` rows; the others hold the code ``nobody``."""
    placed = np.full((capacity, codes.shape[1]), nobody, codes.dtype)
    placed[row_of] = codes[np.arange(ROWS) // TOP_K]
    return placed


def run(o):
    layer = make_layer(o)
    expert = o["expert"].reshape(-1)  # of each row, token * TOP_K + slot
    counts = np.bincount(expert, minlength=EXPERTS)
    {layout}
    row_of = np.empty(ROWS, np.int64)
    for e in range(EXPERTS):
        row_of[expert == e] = first[e] + np.arange(counts[e])
    outputs = torch.full((capacity, N), float("nan"), dtype=OUTPUT).cuda()
    layer(
        {inputs},
        outputs=outputs,
        expert_layout=torch.from_numpy(expert_layout.astype(np.int32)).cuda(),
        valid_shape_m=ROWS,
        compute_config=COMPUTE,
        tuning_config=choose_schedule(layer),
    )
    outputs = outputs.float().cpu().numpy()
    written = ~np.isnan(np.delete(outputs, row_of, axis=0)).all(axis=1)
    if written.any():
        print(f"{{written.sum()}} rows that belong to no expert were written")
    return outputs[row_of]
'''

_LAYOUTS = {
    "moe_grouped_contiguous": f"""\
first = np.cumsum(counts) - counts
expert_layout = np.append(first, ROWS)
capacity = ROWS + {moe_layout.SPARE_ROWS}  # the last rows belong to nobody""",
    "moe_grouped_masked": f"""\
max_tokens = int(counts.max()) + {moe_layout.SPARE_ROWS}  # so that some rows of each expert belong to nobody
first = np.arange(EXPERTS) * max_tokens
expert_layout = counts
capacity = EXPERTS * max_tokens""",
}


def source(case: Case, route: Mapping[str, Any] | None, padding: tuple[int, int], device: Device) -> str:
    """The text for a case.

    Args:
        case: what was judged.
        route: the reported :class:`~humming_conformance.protocols.Route` as a dictionary, whose tuning
            configuration is forced; None: the library chooses again.
        padding: multiples that the layer pads N and K to.
        device: where it was judged; a pretended one is pretended by the script too.
    """
    details = route["details"] if route else {}
    library = f"  # humming-kernels {details['library']} on sm_{details['hardware_sm']}" if details else ""
    pretending = [_pretending(device)] if device.pretended else []
    parts = [
        f"from humming.layer import HummingLayer{library}\n"
        + ("" if details else "from humming.tune import get_heuristics_config\n")
        + _sizes(case),
        *pretending,
        _HELPERS,
        _make_layer(case, padding),
        _schedule(details),
        _run(case),
    ]
    return "\n\n".join(parts).rstrip("\n")


def _pretending(device: Device) -> str:
    """Source of what :mod:`.pretended` does."""
    properties = pretended.library_properties(pretended.PROFILES[device.sm])
    fields = "".join(f"    {name}={value!r},\n" for name, value in properties.items())
    return _PRETENDING.format(sm=device.sm, hardware_sm=device.hardware_sm, fields=fields)


def _sizes(case: Case) -> str:
    problem = case.problem
    experts = f"EXPERTS, TOP_K = {problem.experts}, {problem.top_k}\n" if problem.experts else ""
    return (
        f"\nN, K, ROWS = {problem.n}, {problem.k}, {problem.rows}\n{experts}OUTPUT = {_dtype(case.output)}\n"
        f"COMPUTE = {compute_config(case)!r}\n"
    )


def _dtype(format_name: str) -> str:
    return f"torch.{layout.TORCH_DTYPES[format_name]}"


def _make_layer(case: Case, padding: tuple[int, int]) -> str:
    """Source of ``make_layer``: documented tensors from codes, as in :func:`.layout.weight_tensors`."""
    element = case.weight.format
    offset = f" ^ {1 << (element.bits - 1)}" if isinstance(element, IntegerFormat) and element.signed else ""
    one_a_matrix = ".flatten(1)" if case.weight.granularity.kind == "tensor" else ""
    lines = [
        f'"weight": pack(o["weight"]{offset}, {element.bits}),'
        + ("  # two's complement to offset binary" if offset else ""),
        f'"weight_scale": tensor(o["weight_scale"], {_dtype(case.weight.scale_format)}){one_a_matrix},',
    ]
    if case.weight.second_scale != "none":
        second = "torch.float32" if case.weight.second_scale == "tensor" else "OUTPUT"
        lines.append(f'"weight_scale_2": tensor(o["weight_scale_2"], {second}),')
    if case.weight.zero_point == "float":
        lines.append('"zero_point": tensor(o["zero_point"], OUTPUT),')
    if case.weight.zero_point == "integer":
        along_n = f'pack(o["zero_point"].swapaxes(1, 2), {element.bits})'
        lines.append(f'"zero_point": {along_n}.swapaxes(1, 2).contiguous(),  # packed along N')
    if case.problem.bias:
        lines.append('"bias": tensor(o["bias"], OUTPUT),')
    tensors = textwrap.indent("\n".join(lines), " " * 8)
    experts = f"num_experts={case.problem.experts}"
    load = "{name: value.flatten() if value.shape[1:] == (1,) else value for name, value in tensors.items()}"
    if not case.problem.experts:
        experts, load = "num_experts=None", "{name: value[0] for name, value in tensors.items()}"
    return f"""\
def make_layer(o):
    tensors = {{
{tensors}
    }}
    layer = HummingLayer(
        shape_n=N,
        shape_k=K,
        weight_config={layout.weight_config(case)!r},
        input_config={layout.input_config(case)!r},
        pad_n_to_multiple={padding[0]},
        pad_k_to_multiple={padding[1]},
        {experts},
        has_bias={case.problem.bias},
        torch_dtype=OUTPUT,
    )
    layer.load_from_tensors({load})
    layer = layer.cuda()
    layer.transform()
    return layer
"""


def _schedule(details: Mapping[str, Any]) -> str:
    if not details:
        return _CHOSEN
    config = "".join(f"        {name!r}: {value!r},\n" for name, value in details["tuning_config"].items())
    return _FORCED.format(config=config)


def _run(case: Case) -> str:
    kind, activation = case.problem.kind, case.activation
    codes, scale = 'o["activation"]', 'o["activation_scale"]'
    if kind in _LAYOUTS:
        nobody = layout.POISON_CODES[activation.element]
        codes = f"place_rows({codes}, row_of, capacity, 0x{nobody:X})"
        scale = f"place_rows({scale}, row_of, capacity, 0x7FC00000)"
    inputs = f"inputs=tensor({codes}, {_dtype(activation.element)}).cuda()"
    if activation.granularity is not None:
        inputs += f",\n        input_scale=tensor({scale}, torch.float32).cuda()"
    if kind == "dense":
        return _DENSE.format(inputs=inputs)
    if kind == "moe_indexed":
        return _INDEXED.format(inputs=inputs)
    rows = textwrap.indent(_LAYOUTS[kind], " " * 4).lstrip()
    return _GROUPED.format(inputs=inputs, layout=rows)
