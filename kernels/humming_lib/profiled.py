# SPDX-License-Identifier: Apache-2.0
"""Lets Humming see a recorded device on a machine without a GPU, to be asked what it would run there.

Nothing runs: torch answers the library's questions about CUDA, the library's description of its device is the profile,
and its compiler has a fixed version. Releases 0.1.14 to 0.1.20.
"""

from __future__ import annotations

from types import SimpleNamespace, TracebackType
from typing import Any

from humming_conformance.devices import DeviceProfile
from humming_conformance.kernels.humming_lib import pretended

#: The compiler that the library is told of, CUDA 13.0's: its choice depends on that (``use_native_dequant``,
#: config/config.py), and must not depend on what this machine has.
COMPILER = (13, 0)

#: The device that stands in this process.
_installed: list[DeviceProfile] = []


def install(profile: DeviceProfile) -> None:
    """Let the library see ``profile`` for the rest of this process.

    Raises:
        PretendedDeviceError: the library of this process sees another device.
    """
    if _installed == [profile]:
        return
    if _installed:
        raise pretended.PretendedDeviceError(
            f"{profile.product} can't be judged in a process that serves {_installed[0].product}; start another"
        )
    answer_for_cuda()
    import humming.device as description
    from humming.jit.compiler import NVCCCompiler
    from humming.jit.runtime import KernelRuntime

    if description.current_device._value is not None:  # noqa: SLF001  # what the library knows of its device
        raise pretended.PretendedDeviceError(
            f"the library has already seen another device; {profile.product} needs a new process"
        )
    seen = SimpleNamespace(**pretended.described(profile))
    description._get_device_info_extension = lambda: SimpleNamespace(_DeviceInfo=lambda _index: seen)  # noqa: SLF001
    signature = f"nvcc+{'.'.join(map(str, COMPILER))}"
    NVCCCompiler.signature = classmethod(lambda _cls: signature)
    KernelRuntime._get_compiler = staticmethod(lambda: NVCCCompiler)  # noqa: SLF001  # not the one found here
    _installed.append(profile)


def answer_for_cuda() -> None:
    """Let torch answer what the library asks about CUDA: its version, and that device 0 is current."""
    import torch

    if torch.version.cuda is None:
        setattr(torch.version, "cuda", ".".join(map(str, COMPILER)))  # noqa: B010  # the stub says it is a constant
    torch.cuda.current_device = lambda: 0
    setattr(torch.cuda, "device", _NoDevice)  # noqa: B010  # as above


class _NoDevice:
    """Stands in for ``torch.cuda.device``, which would ask the driver."""

    def __init__(self, _index: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass
