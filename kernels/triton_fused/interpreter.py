# SPDX-License-Identifier: Apache-2.0
# Replacing private parts of Triton is what this module is for.
# ruff: noqa: PLR0917, SLF001
# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""Makes Triton's interpreter compute bf16 rightly, and proves it before anything is judged.

The interpreter keeps a bf16 as its bit pattern in a uint16: arithmetic and ``tl.dot`` work on the integers,
without any error, and conversions truncate where hardware rounds to nearest (triton-lang/triton, #11584).
:func:`install` keeps bf16 in ml_dtypes arrays instead, and refuses fp8, which is as wrong and which no kernel
here uses. It also checks every address of a load or store against the launch's tensors, where the interpreter
would read garbage or corrupt the heap.

All of this replaces private parts of Triton, so :func:`problem` lets only versions through that were tried,
and only after :func:`self_test` has passed in this process. ``tl.fma`` and atomics on bf16 are not covered.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray
from triton.runtime import interpreter as stock

#: Versions of Triton with which the tests of our kernels passed (3.6.0 with NumPy 2.3, which it needs).
TRIED_VERSIONS = ("3.6.0", "3.7.1", "3.8.0", "3.9.0")

_BF16 = np.dtype(ml_dtypes.bfloat16)
_stock_dtype = stock._get_np_dtype
_stock_dot = stock.InterpreterBuilder.create_dot
_stock_arguments = stock.GridExecutor._init_args_hst


@cache
def problem() -> str:
    """Why nothing can be judged in the interpreter of this process; empty where it can.

    The first call in a process with ``TRITON_INTERPRET=1`` installs the corrections and tests them.
    """
    if not triton.knobs.runtime.interpret:
        return "TRITON_INTERPRET was not 1 when this process started"
    if triton.__version__ not in TRIED_VERSIONS:
        return f"the interpreter of triton {triton.__version__} was not tried ({', '.join(TRIED_VERSIONS)} were)"
    install()
    try:
        self_test()
    except Exception as error:  # noqa: BLE001  # a broken interpreter may raise anything
        return f"the interpreter of triton {triton.__version__} fails its self-test: {error!r}"
    return ""


def install() -> None:
    """Correct the interpreter of this process, for good."""
    builder = stock.InterpreterBuilder
    stock._get_np_dtype = _numpy_dtype
    stock.GridExecutor._init_args_hst = _arguments
    builder.create_masked_load, builder.create_masked_store = _load, _store
    builder.cast_impl, builder.create_fp_to_fp = _cast, _float_cast
    builder.create_dot = _dot
    builder.get_bf16 = _bf16_constant  # Triton has it from 3.9 on


def _numpy_dtype(dtype: Any) -> Any:
    """The NumPy dtype in which values of a Triton type (scalar, block or pointer) are kept."""
    scalar = dtype.scalar
    if not scalar.is_ptr() and scalar.is_fp8():
        raise TypeError(f"{scalar} is not modelled: Triton's interpreter rounds fp8 wrongly")
    return _BF16 if scalar == tl.bfloat16 else _stock_dtype(dtype)


def _load(_: Any, ptrs: Any, mask: Any, other: Any, *_policy: Any) -> Any:
    dtype = _numpy_dtype(ptrs.get_element_ty())
    raw = _raw(dtype)
    _memory.check("load", ptrs.data, mask.data, dtype.itemsize)
    filler = np.zeros(ptrs.data.shape, raw) if other is None else other.data.view(raw)
    loaded = stock._interpreter.load(ptrs.data, mask.data, filler, raw)
    return stock.TensorHandle(loaded.view(dtype), ptrs.get_element_ty())


def _store(_: Any, ptrs: Any, value: Any, mask: Any, *_policy: Any) -> Any:
    _memory.check("store", ptrs.data, mask.data, value.data.dtype.itemsize)
    raw = np.ascontiguousarray(value.data).view(_raw(value.data.dtype))
    return stock._interpreter.store(ptrs.data, raw, mask.data)


def _raw(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype as which Triton's own code moves elements: bf16 as its bits, all others as they are."""
    return np.dtype(np.uint16) if dtype == _BF16 else dtype


def _cast(_: Any, source: Any, dtype: Any, *_signed: Any) -> Any:
    return stock.TensorHandle(source.data.astype(_numpy_dtype(dtype)), dtype.scalar)


def _float_cast(builder: Any, source: Any, dtype: Any, rounding: Any) -> Any:
    if rounding not in (None, stock._ir.ROUNDING_MODE.RTNE):
        raise ValueError(f"{rounding} is not modelled: leave fp_downcast_rounding out")
    return _cast(builder, source, dtype)


def _dot(builder: Any, a: Any, b: Any, acc: Any, *precision: Any) -> Any:
    if a.dtype.scalar != tl.bfloat16:
        return _stock_dot(builder, a, b, acc, *precision)
    product = np.matmul(a.data.astype(np.float32), b.data.astype(np.float32))
    return stock.TensorHandle(product + acc.data, acc.dtype.scalar)


def _bf16_constant(_: Any, value: float) -> Any:
    return stock.TensorHandle(np.array([value], _BF16), tl.bfloat16)


def _arguments(executor: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    on_host, named_on_host = _stock_arguments(executor, args, kwargs)
    _memory.register([*on_host, *named_on_host.values()])
    return on_host, named_on_host


class _Memory:
    """The address ranges of a launch's tensors."""

    def __init__(self) -> None:
        self._starts = self._ends = np.zeros(0, np.uint64)

    def register(self, arguments: Sequence[Any]) -> None:
        """Forget the last launch and take the tensors among `arguments`."""
        tensors = sorted((x for x in arguments if hasattr(x, "data_ptr")), key=lambda x: int(x.data_ptr()))
        extents = [1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) for x in tensors]
        self._starts = np.array([x.data_ptr() for x in tensors], np.uint64)
        sizes = [extent * x.element_size() for extent, x in zip(extents, tensors, strict=True)]
        self._ends = self._starts + np.array(sizes, np.uint64)

    def check(self, action: str, addresses: NDArray[np.uint64], mask: NDArray[np.bool_], itemsize: int) -> None:
        """Raise IndexError unless every unmasked element lies within one tensor."""
        wanted = addresses[mask]
        at = np.searchsorted(self._starts, wanted, side="right")
        ends = np.concatenate([np.zeros(1, np.uint64), self._ends])[at]
        outside = int(np.count_nonzero(wanted + np.uint64(itemsize) > ends))
        if outside:
            raise IndexError(f"{action} of {outside} elements outside every tensor of the launch: check its mask")


_memory = _Memory()


@triton.jit
def _convert(narrow, wide, widened, narrowed, NARROW: tl.constexpr, WIDE: tl.constexpr):
    """Store narrow (bf16) as fp32 and wide (fp32) as bf16."""
    i = tl.arange(0, NARROW)
    tl.store(widened + i, tl.load(narrow + i).to(tl.float32))
    i = tl.arange(0, WIDE)
    tl.store(narrowed + i, tl.load(wide + i).to(tl.bfloat16))


@triton.jit
def _compute(x, y, product, scaled, K, BLOCK: tl.constexpr):
    """Store x (BLOCK, K) @ y (K, BLOCK) and x * 1.5 + x, all bf16; BLOCK need not divide K."""
    row = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k_start in range(0, K, BLOCK):
        k = k_start + tl.arange(0, BLOCK)
        a = tl.load(x + row[:, None] * K + k[None, :], mask=k[None, :] < K, other=0.0)
        b = tl.load(y + k[:, None] * BLOCK + row[None, :], mask=k[:, None] < K, other=0.0)
        acc = tl.dot(a, b, acc)
        tl.store(scaled + row[:, None] * K + k[None, :], a * 1.5 + a, mask=k[None, :] < K)
    tl.store(product + row[:, None] * BLOCK + row[None, :], acc.to(tl.bfloat16))


def self_test() -> None:
    """Raise RuntimeError unless bf16 conversions, arithmetic and ``tl.dot`` are right in this process.

    What is expected comes from integer arithmetic on bit patterns: bf16 is the upper half of fp32, and
    rounding to nearest even adds half a unit, less one where the kept part is even. Integers keep sums exact.
    """
    narrow = np.arange(1 << 16, dtype=np.uint32)
    endings = np.array([0, 1, 0x1234, 0x7FFF, 0x8000, 0x8001, 0xABCD, 0xFFFF], np.uint32)
    wide = ((narrow[:, None] << 16) | endings).reshape(-1).view(np.float32)
    widened, narrowed = np.zeros(narrow.size, np.float32), np.zeros(wide.size, np.uint16)
    tensors = [_tensor(array) for array in (narrow.astype(np.uint16), wide, widened, narrowed)]
    with np.errstate(invalid="ignore"):  # signaling NaN
        _convert[(1,)](*tensors, NARROW=narrow.size, WIDE=wide.size)
    _require("conversion from bf16", widened, _widen(narrow))
    _require("conversion to bf16", _widen(narrowed), _nearest_bf16(wide))

    block, k = 16, 24
    x = ((np.arange(block * k) * 37) % 511 - 255).astype(np.float32).reshape(block, k)
    y = ((np.arange(k * block) * 53) % 511 - 255).astype(np.float32).reshape(k, block)
    product, scaled = np.zeros((block, block), np.uint16), np.zeros((block, k), np.uint16)
    inputs = [_tensor((matrix.view(np.uint32) >> 16).astype(np.uint16)) for matrix in (x, y)]
    _compute[(1,)](*inputs, _tensor(product), _tensor(scaled), k, BLOCK=block)
    _require("bf16 tl.dot", _widen(product), _nearest_bf16(x @ y))
    _require("bf16 arithmetic", _widen(scaled), _nearest_bf16(_nearest_bf16(x * np.float32(1.5)) + x))


def _tensor(array: NDArray[Any]) -> Any:
    """A torch tensor on the memory of `array`; uint16 stands for bf16."""
    import torch

    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _widen(bits: NDArray[Any]) -> NDArray[np.float32]:
    """The fp32 values of bf16 bit patterns."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _nearest_bf16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """`values` rounded to bf16 (nearest, ties to even); NaN stays NaN."""
    bits = values.view(np.uint32)
    rounded = _widen((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
    return np.where(np.isnan(values), values, rounded)


def _require(what: str, got: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    wrong = ~((got == expected) | (np.isnan(got) & np.isnan(expected)))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise RuntimeError(
            f"{what} is wrong for {np.count_nonzero(wrong)} of {wrong.size} values, "
            f"first {got[at]} instead of {expected[at]} at {at}"
        )
