# SPDX-License-Identifier: Apache-2.0
"""The plan says of every subject whether it can be judged here, and of the rest why not."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from humming_conformance.campaign import kernels, plan
from humming_conformance.campaign.judge import process_spec
from humming_conformance.campaign.kernels import KernelError, find_kernels, load_kernel
from humming_conformance.campaign.plan import PlanError, RunOptions, make_plan
from humming_conformance.campaign.settle import _reproduction
from humming_conformance.devices import NO_GPU, Device
from humming_conformance.execution import LibraryBuild, LibraryError
from humming_conformance.problems.tiers import load_tier
from humming_conformance.report import plan_lines

CASE = "dense-w_int8.channel.bf16-a_bf16-m2.n8.k32-random"
#: Claimed by Humming.
CLAIMED = "dense-w_int4.g128.bf16-a_bf16-m16.n256.k512-readout"
CPU = Device("cpu", "cpu")
INTERPRETER = Device("cpu_interpreter", "cpu_interpreter")
GPUS = (Device("h200", "cuda", sm=90, uuid="GPU-a"), Device("h200", "cuda", sm=90, index=1, uuid="GPU-b"))

ADAPTER = """
from humming_conformance.kernels.qdq import Qdq


class Mine(Qdq):
    name = {name!r}


kernel = Mine()
"""


@pytest.fixture
def machine(monkeypatch):
    """Sets the devices of the machine, and why it has no GPU."""

    def has(*devices, problem=""):
        monkeypatch.setattr(plan, "detect_devices", lambda: devices)
        monkeypatch.setattr(plan, "gpu_problem", lambda: problem)

    has(INTERPRETER, CPU, problem="NVML finds no driver")
    return has


@pytest.fixture
def library(monkeypatch):
    """Sets what the search for library builds finds: a build, or an error."""

    def found(result):
        def resolve(*_arguments):
            if isinstance(result, Exception):
                raise result
            return result

        monkeypatch.setattr(plan, "resolve_library", resolve)

    return found


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes modules into a folder that is searched for adapters; they are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    before = set(sys.modules)
    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def answers(*kernel_names, cases=(CASE,), **more):
    """(kernel, device, answer, reason) of each task."""
    tasks = make_plan(RunOptions(kernels=kernel_names, cases=cases, **more))
    return [(t.subject.kernel, t.device.name, t.support.answer, t.support.reason) for t in tasks]


def test_the_first_preferred_device_is_taken(machine):
    """A kernel is judged once, on the best device it can use here, however many equal GPUs there are."""
    machine(*GPUS, INTERPRETER, CPU)
    assert answers("qdq", "triton_fused") == [
        ("qdq", "h200", "yes", ""),
        ("triton_fused", "h200", "yes", ""),
    ]
    assert answers("qdq", devices=("cpu",)) == [("qdq", "cpu", "yes", "")]
    assert answers("qdq", "triton_fused", devices=("cpu",)) == [("qdq", "cpu", "yes", "")]  # chosen: no GPU stands in
    with pytest.raises(
        PlanError, match="triton_fused can't run on cpu; needed is a device of the kind cuda or cpu_int"
    ):
        answers("triton_fused", devices=("cpu",))
    machine(INTERPRETER, CPU)
    assert [answer[1] for answer in answers("qdq", "triton_fused")] == ["cpu", "cpu_interpreter"]


@pytest.mark.usefixtures("machine")
def test_a_missing_gpu(library):
    """A kernel that needs one has a plan anyway; the reason says why there is none, what isn't claimed stays so."""
    library(LibraryBuild("humming", "0.1.19", None, "0123456789ab"))
    found = make_plan(RunOptions(kernels=("humming",), cases=(CLAIMED,)))
    assert [(task.device, task.support.answer) for task in found] == [(NO_GPU, "absent")]
    assert "NVML finds no driver" in found[0].support.reason
    assert found[0].support.mend
    unclaimed = CLAIMED.replace("a_bf16", "a_fp6_e2m3.token")
    assert answers("humming", cases=(unclaimed,))[0][2] == "no"


def test_a_missing_library(machine, library):
    """It is absent, with the mend, where nobody asked for a build; a build that was asked for must be there."""
    machine(*GPUS, CPU)
    library(LibraryError("library humming: humming-kernels is not installed here; run 'pip install humming-kernels'"))
    task = make_plan(RunOptions(kernels=("humming",), cases=(CLAIMED,)))[0]
    assert (task.device.name, task.support.answer, task.build) == ("h200", "absent", None)
    assert "humming-kernels is not installed" in task.support.reason
    assert "pip install humming-kernels" in task.support.mend
    assert answers("humming", cases=(CLAIMED.replace("a_bf16", "a_fp6_e2m3.token"),))[0][2] == "no"
    with pytest.raises(LibraryError, match="not installed here"):
        make_plan(RunOptions(kernels=("humming",), cases=(CLAIMED,), libraries={"humming": "0.1.16"}))


@pytest.mark.usefixtures("machine")
def test_all_that_is_missing_is_named(library):
    """Without a GPU and without the library, the reason names both."""
    library(LibraryError("library humming: install it"))
    reason = answers("humming", cases=(CLAIMED,))[0][3]
    assert "NVML finds no driver" in reason
    assert "humming-kernels is not installed" in reason


@pytest.mark.usefixtures("machine")
def test_the_tier_is_the_default():
    """Without cases, a kernel gets its own list in order; a case named twice is judged once."""
    found = make_plan(RunOptions("smoke", kernels=("qdq", "torch_gemm")))
    for kernel in ("qdq", "torch_gemm"):
        planned = [task.subject.case_id for task in found if task.subject.kernel == kernel]
        assert planned == list(load_tier("smoke", kernel))
    assert len(answers("qdq", cases=(CASE, CASE))) == 1
    assert len({task.subject for task in found}) == len(found)


OLDER = ["sm_75_on_sm_90", "sm_80_on_sm_90", "sm_86_on_sm_90", "sm_89_on_sm_90"]


def by_device(*kernel_names, **options):
    """Case ids of the plan by kernel and device."""
    found: dict[tuple[str, str], list[str]] = {}
    for task in make_plan(RunOptions(kernels=kernel_names, **options)):
        found.setdefault((task.subject.kernel, task.subject.device), []).append(task.subject.case_id)
    return found


@pytest.mark.parametrize(("tier", "below"), [("smoke", None), ("gate", "smoke"), ("full", "gate")])
def test_older_paths_are_judged_one_tier_lower(machine, library, tier, below):
    """Behind its best device a kernel's older paths, if it has some, on each once; smoke, and no GPU, have none."""
    library(LibraryBuild("humming", "0.1.20", None, "0123456789ab"))
    machine(*GPUS, CPU)
    found = by_device("humming", "qdq", tier=tier)
    expected = {("humming", "h200"): list(load_tier(tier, "humming"))}
    if below is not None:
        expected |= {("humming", name): list(load_tier(below, "humming")) for name in OLDER}
    expected[("qdq", "h200")] = list(load_tier(tier, "qdq"))
    assert found == expected
    assert list(found) == list(expected)
    machine(CPU, problem="NVML finds no driver")
    assert list(by_device("humming", tier=tier)) == [("humming", "no_gpu")]


def test_a_chosen_older_path(machine, library, package):
    """Named devices are judged at the tier that was asked for; a case given without devices on the best one alone."""
    library(LibraryBuild("humming", "0.1.20", None, "0123456789ab"))
    machine(*GPUS, CPU)
    gate = list(load_tier("gate", "humming"))
    assert by_device("humming", devices=("sm_80_on_sm_90",)) == {("humming", "sm_80_on_sm_90"): gate}
    both = by_device("humming", devices=("sm_89_on_sm_90", "h200"))
    assert both == {("humming", "h200"): gate, ("humming", "sm_89_on_sm_90"): gate}
    assert list(by_device("humming", cases=(CLAIMED,))) == [("humming", "h200")]
    assert list(by_device("humming", cases=(CLAIMED,), devices=tuple(OLDER))) == [("humming", name) for name in OLDER]
    with pytest.raises(PlanError, match=r"qdq can't run on sm_80_on_sm_90; .*, or a kernel with these older_paths"):
        by_device("qdq", devices=("sm_80_on_sm_90",))
    package("mine.py", ADAPTER.format(name="mine") + "kernel.older_paths = 80\n")
    with pytest.raises(KernelError, match="older_paths is 80; give compute capabilities as a tuple"):
        by_device("mine:kernel", cases=(CASE,), devices=("sm_80_on_sm_90",))
    machine(CPU)
    with pytest.raises(PlanError, match="'sm_80_on_sm_90' is not here; this machine has cpu"):
        by_device("humming", devices=("sm_80_on_sm_90",))


def test_what_an_older_path_lacks(machine, library):
    """Humming's activation formats are those of the architecture whose code is judged."""
    library(LibraryBuild("humming", "0.1.20", None, "0123456789ab"))
    machine(*GPUS, CPU)
    fp8 = "dense-w_fp4_e2m1.g32.ue8m0-a_fp8_e4m3.token-m16.n256.k512-readout"
    found = answers("humming", cases=(CLAIMED, fp8), devices=("sm_75_on_sm_90", "sm_80_on_sm_90", "sm_89_on_sm_90"))
    assert [reason for *_, reason in found] == [
        "bf16 activations need sm_80, not sm_75",
        "fp8_e4m3 activations need sm_89, not sm_75",
        "",
        "fp8_e4m3 activations need sm_89, not sm_80",
        "",
        "",
    ]


def test_a_process_for_each_pretended_device(machine, library):
    """Each older path has a process of its own, which sees the real GPU; the lease is the real GPU's."""
    library(LibraryBuild("humming", "0.1.20", None, "0123456789ab"))
    machine(*GPUS, CPU)
    tasks = make_plan(RunOptions(kernels=("humming",), cases=(CLAIMED,), devices=("h200", *OLDER)))
    specs = [process_spec(task) for task in tasks]
    assert [spec.name for spec in specs] == [f"humming@{name}" for name in ("h200", *OLDER)]
    assert len(set(specs)) == 5
    assert {dict(spec.environment)["CUDA_VISIBLE_DEVICES"] for spec in specs} == {"GPU-a"}
    assert {task.device.uuid for task in tasks} == {"GPU-a"}
    commands = [_reproduction("numerics", task, "") for task in tasks]
    assert [command.partition("--device ")[2] for command in commands] == ["", *OLDER]


def test_older_paths_stand_apart_in_the_text(machine, library):
    """The plan counts an older path under its device."""
    library(LibraryBuild("humming", "0.1.20", None, "0123456789ab"))
    machine(*GPUS, CPU)
    tasks = make_plan(RunOptions(kernels=("humming",), cases=(CLAIMED,), devices=("h200", "sm_80_on_sm_90")))
    lines = plan_lines((task.subject.heading, task.support) for task in tasks)
    assert lines[1:] == ["      1 humming would be judged", "      1 humming on sm_80_on_sm_90 would be judged"]


@pytest.mark.usefixtures("machine")
def test_nothing_to_judge(package):
    """Kernels and devices that don't go together are an error that names both, and --device only where it was given."""
    package("mine.py", ADAPTER.format(name="mine") + "kernel.device_kinds = ('cpu',)\n")
    with pytest.raises(PlanError, match=r"mine can't run on cpu_interpreter; needed is a device of the kind cpu$"):
        make_plan(RunOptions(kernels=("mine:kernel",), cases=(CASE,), devices=("cpu_interpreter",)))
    package("npu.py", ADAPTER.format(name="npu") + "kernel.device_kinds = ('npu',)\n")
    with pytest.raises(PlanError, match=r"npu can't run on cpu_interpreter, cpu; needed is a device of the kind npu$"):
        make_plan(RunOptions(kernels=("npu:kernel",), cases=(CASE,)))
    with pytest.raises(PlanError, match=r"'h200' is not here; this machine has cpu_interpreter, cpu"):
        make_plan(RunOptions(devices=("h200",)))
    with pytest.raises(PlanError, match=r"'vllm' belongs to no kernel of this run; there are humming"):
        make_plan(RunOptions(kernels=("humming",), libraries={"vllm": "1.0"}))


@pytest.mark.usefixtures("machine")
def test_the_plan_as_text(library):
    """Counts by kernel and answer, with reasons and mends."""
    library(LibraryError("library humming: install it"))
    tasks = make_plan(RunOptions(kernels=("qdq", "humming"), cases=(CLAIMED, CLAIMED.replace("m16", "m32"))))
    lines = plan_lines((task.subject.kernel, task.support) for task in tasks)
    assert lines[0] == "conformance plan: 4 subjects"
    assert [line.split()[:2] for line in lines[1:]] == [["2", "humming"], ["2", "qdq"]]
    assert "not_run: " in lines[1]
    assert "(mend: " in lines[1]
    assert lines[2].endswith("qdq would be judged")


def test_kernel_processes(machine, library, package):
    """Each device and build has a process of its own, which finds the build before all that lies by the adapter."""
    machine(*GPUS, CPU)
    library(LibraryBuild("humming", "0.1.16", "/builds/humming", "0123456789ab"))
    package(
        "mine.py",
        ADAPTER.format(name="mine") + "\nfrom humming_conformance.kernels import humming_lib as lib\n"
        "kernel.library = lib.kernel.library\n",
    )
    task = make_plan(RunOptions(kernels=("mine:kernel",), cases=(CASE,), libraries={"humming": "0.1.16"}))[0]
    spec = process_spec(task)
    assert spec.python_path == ("/builds/humming", str(Path.cwd()))
    assert dict(spec.environment)["CUDA_VISIBLE_DEVICES"] == "GPU-a"
    assert "TRITON_INTERPRET" not in dict(spec.environment)
    interpreted = make_plan(RunOptions(kernels=("qdq",), cases=(CASE,), devices=("cpu",)))[0]
    assert dict(process_spec(interpreted).environment)["CUDA_VISIBLE_DEVICES"] == ""
    machine(INTERPRETER)
    interpreted = make_plan(RunOptions(kernels=("triton_fused",), cases=(CASE,)))[0]
    assert dict(process_spec(interpreted).environment)["TRITON_INTERPRET"] == "1"


def test_adapters_are_found_where_they_lie(package):
    """A module, one in a package, and a package itself: the kernel process searches the folder they start in."""
    top = package("mine.py", ADAPTER.format(name="mine")).parent
    package("deep/__init__.py", "")
    package("deep/inner.py", ADAPTER.format(name="inner"))
    package("whole/__init__.py", ADAPTER.format(name="whole"))
    for reference in ("mine:kernel", "deep.inner:kernel", "whole:kernel"):
        found = load_kernel(reference, search_here=True)
        assert found.reference == reference
        assert found.python_path == (str(top),), reference
    assert find_kernels(["qdq"])[0].python_path == ()


def test_names_of_kernels(package):
    """Names are what subjects carry: simple words, and one for each adapter."""
    package("capital.py", ADAPTER.format(name="Mine"))
    package("none.py", ADAPTER.format(name=None))
    package("twin.py", ADAPTER.format(name="qdq"))
    for module in ("capital", "none"):
        with pytest.raises(KernelError, match="lower case letters, digits and _"):
            load_kernel(f"{module}:kernel")
    with pytest.raises(KernelError, match="both named 'qdq'"):
        find_kernels(["qdq", "twin:kernel"])
    assert [found.reference for found in find_kernels(["twin:kernel", "twin:kernel"])] == ["twin:kernel"]


def test_registered_kernels(package, monkeypatch):
    """An installed package's adapter is judged beside the built-in ones; it must not take their names."""

    class Point:
        name = "theirs"
        value = "theirs:kernel"
        dist = SimpleNamespace(name="their-package")

    package("theirs.py", ADAPTER.format(name="theirs"))
    monkeypatch.setattr(kernels, "entry_points", lambda group: [Point] if group == kernels.ENTRY_POINT_GROUP else [])
    names = [found.kernel.name for found in find_kernels()]
    assert names == ["humming", "qdq", "torch_gemm", "triton_fused", "theirs"]
    assert find_kernels(["theirs"])[0].reference == "theirs:kernel"
    Point.value = "gone:kernel"
    assert find_kernels(["qdq"])[0].kernel.name == "qdq"  # a broken neighbour stops only those who ask for it
    with pytest.raises(KernelError, match=r"entry point 'theirs' of their-package: .*gone"):
        find_kernels()
    with pytest.raises(KernelError, match=r"'their' is not known; .*, theirs, .*did you mean theirs\?"):
        find_kernels(["their"])
    Point.value = "theirs:kernel"
    Point.name = "their"
    with pytest.raises(KernelError, match=r"entry point 'their' of their-package: its kernel is named 'theirs'"):
        find_kernels()
    Point.name = "qdq"
    Point.value = "thieves:kernel"
    package("thieves.py", ADAPTER.format(name="qdq"))
    with pytest.raises(KernelError, match="both named 'qdq'"):
        find_kernels()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("    def support(self, case, device):\n        raise RuntimeError('no')", r"support\(\) raised RuntimeError"),
        (
            "    def support(self, case, device):\n        return True",
            r"support\(\) returned True, which is no Support",
        ),
        ("    library = 'triton'", "its library is 'triton'"),
    ],
)
def test_an_adapter_that_answers_wrongly_is_named(package, body, told):
    """What an adapter says is data of a known type; anything else is one error with its reference."""
    text = f"from humming_conformance.kernels.qdq import Qdq\n\nclass Wrong(Qdq):\n{body}\n\nkernel = Wrong()\n"
    package("wrong_kernel.py", text)
    with pytest.raises(KernelError, match=told):
        make_plan(RunOptions(kernels=("wrong_kernel:kernel",), cases=(CASE,)))


def test_an_adapter_that_exits_at_import_is_named(package):
    """sys.exit in somebody's module doesn't end the run without a word."""
    package("leaves.py", "import sys\n\nsys.exit(0)\n")
    with pytest.raises(KernelError, match="leaves can't be imported"):
        find_kernels(["leaves:kernel"])
