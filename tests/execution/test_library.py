# SPDX-License-Identifier: Apache-2.0
"""The build that was asked for is the build that is judged, and a hash tells builds apart."""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from humming_conformance.execution import (
    KernelProcess,
    LibraryBuild,
    LibraryError,
    ProcessSpec,
    parse_library_request,
    resolve_library,
)

LIBRARY = ("gemm", "Sample-Kernels", "sample_gemm")
HERE = str(Path(__file__).parent)


def make_wheel(folder, version, files, distribution="sample_kernels"):
    """A wheel with the given files, as a library's release has it."""
    info = f"{distribution}-{version}.dist-info"
    wheel = folder / f"{distribution}-{version}-py3-none-any.whl"
    metadata = [
        "Metadata-Version: 2.1",
        f"Name: {distribution}",
        f"Version: {version}",
        "Requires-Dist: absent",
    ]
    content = {
        **files,
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    content[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*content, f"{info}/RECORD"])
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in content.items():
            archive.writestr(name, text)
    return wheel


def sample(body):
    """The files of the sample library."""
    return {"sample_gemm/__init__.py": body, "sample_gemm/csrc/tile.cuh": "// tile\n"}


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    """A cache of the test's own, and wheels of the test's own for pip to find."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    return wheels


@pytest.fixture
def unpacked(offline, tmp_path):
    """The sample library as a folder, metadata included."""
    folder = tmp_path / "unpacked"
    zipfile.ZipFile(make_wheel(offline, "1.2", sample("x = 1\n"))).extractall(folder)
    return folder


def test_a_version_a_wheel_and_a_folder_of_one_build_have_one_hash(offline, unpacked, monkeypatch):
    """Equal code is the same build however it came, the installed one included."""
    wheel = offline / "sample_kernels-1.2-py3-none-any.whl"
    by_version = resolve_library(*LIBRARY, "1.2")
    by_wheel = resolve_library(*LIBRARY, str(wheel))
    by_folder = resolve_library(*LIBRARY, str(unpacked))
    monkeypatch.syspath_prepend(str(unpacked))
    installed = resolve_library(*LIBRARY, None)
    assert {build.version for build in (by_version, by_wheel, by_folder, installed)} == {"1.2"}
    assert len({build.build_hash for build in (by_version, by_wheel, by_folder, installed)}) == 1
    assert by_folder.path == str(unpacked)
    assert installed.path is None
    assert len({by_version.path, by_wheel.path, by_folder.path}) == 3
    assert "sample_gemm" not in sys.modules


def test_a_version_is_installed_once(offline):
    """The second request for a version needs neither pip nor the wheel, and nothing half-made is left."""
    make_wheel(offline, "1.2", sample("x = 1\n"))
    first = resolve_library(*LIBRARY, "1.2")
    shutil.rmtree(offline)
    assert resolve_library(*LIBRARY, "1.2") == first
    left = {path.name for path in Path(first.path).parent.iterdir()}
    assert left <= {"1.2", "1.2.lock"}


def test_wheels_of_one_version_are_told_apart(offline):
    """A rebuilt wheel under the same name is another build, beside the first."""
    first = resolve_library(*LIBRARY, str(make_wheel(offline, "1.2", sample("x = 1\n"))))
    second = resolve_library(*LIBRARY, str(make_wheel(offline, "1.2", sample("x = 2\n"))))
    assert first.path != second.path
    assert first.build_hash != second.build_hash
    assert (Path(first.path) / "sample_gemm/__init__.py").read_text() == "x = 1\n"


def test_any_changed_file_changes_the_hash(unpacked):
    """An edited, added or renamed file is another build; compiled Python is not looked at."""
    hashes = [resolve_library(*LIBRARY, str(unpacked)).build_hash]
    (unpacked / "sample_gemm/__pycache__").mkdir()
    (unpacked / "sample_gemm/__pycache__/x.pyc").touch()
    assert resolve_library(*LIBRARY, str(unpacked)).build_hash == hashes[0]
    tile = unpacked / "sample_gemm/csrc/tile.cuh"
    tile.write_text("// tile, one line changed\n")
    hashes.append(resolve_library(*LIBRARY, str(unpacked)).build_hash)
    (unpacked / "sample_gemm/csrc/new.cuh").touch()
    hashes.append(resolve_library(*LIBRARY, str(unpacked)).build_hash)
    tile.rename(tile.with_name("tiles.cuh"))
    hashes.append(resolve_library(*LIBRARY, str(unpacked)).build_hash)
    assert len(set(hashes)) == 4


def test_a_folder_without_metadata_has_no_known_version(tmp_path):
    """A source tree is judged as it is; a module may be a single file."""
    (tmp_path / "sample_gemm.py").write_text("x = 1\n")
    build = resolve_library(*LIBRARY, str(tmp_path))
    assert build == LibraryBuild("gemm", "unknown", str(tmp_path), build.build_hash)
    assert len(build.build_hash) == 12


def test_an_editable_install_is_hashed_where_its_files_are(unpacked, tmp_path, monkeypatch):
    """Where the metadata lies apart from the module, the files that import finds count."""
    apart = tmp_path / "apart"
    apart.mkdir()
    (unpacked / "sample_kernels-1.2.dist-info").rename(apart / "sample_kernels-1.2.dist-info")
    expected = resolve_library(*LIBRARY, str(unpacked)).build_hash
    monkeypatch.syspath_prepend(str(unpacked))
    monkeypatch.syspath_prepend(str(apart))
    assert resolve_library(*LIBRARY, None) == LibraryBuild("gemm", "1.2", None, expected)


def test_a_build_is_what_its_process_imports(offline):
    """With the build's folder on its path, a kernel process imports that build."""
    build = resolve_library(*LIBRARY, str(make_wheel(offline, "1.2", sample("x = 1\n"))))
    with KernelProcess(ProcessSpec("build", python_path=(build.path, HERE))) as process:
        file = process.call("tasks:where", timeout=60.0, module="sample_gemm").value["file"]
    assert file == str(Path(build.path) / "sample_gemm/__init__.py")


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (None, "pip install Sample-Kernels"),
        ("9.9", "pip could not install Sample-Kernels==9.9"),
        ("missing.whl", "there is no such wheel file"),
        ("latest", "neither a version nor an existing folder"),
        ("other", "it holds no sample_gemm/__init__.py"),
        ("other_kernels-1.0-py3-none-any.whl", "its file name begins sample_kernels-VERSION-"),
        ("sample_kernels-2.0-py3-none-any.whl", "it holds no sample_gemm/__init__.py"),
        ("sample_kernels-3.0-py3-none-any.whl", "pip could not install"),
    ],
)
def test_a_request_that_cannot_be_met_says_why(offline, monkeypatch, request_, text):
    """One error names the request, what is wrong with it and what to give instead; no build is kept."""
    monkeypatch.chdir(offline)
    (offline / "other").mkdir()
    make_wheel(offline, "1.0", {"other.py": ""}, distribution="other_kernels")
    make_wheel(offline, "2.0", {"other.py": ""})
    (offline / "sample_kernels-3.0-py3-none-any.whl").write_text("no archive")
    with pytest.raises(LibraryError) as caught:
        resolve_library(*LIBRARY, request_)
    assert text in str(caught.value)
    assert (f"library gemm={request_}" if request_ else "library gemm") in str(caught.value)
    cache = offline.parent / "cache"
    assert not [path for path in cache.rglob("*") if not (path.is_dir() or path.suffix == ".lock")]


@pytest.mark.parametrize("request_", ["0.1.19", "1.0rc1", "1.0.dev3+cu12", "dist/x.whl", "../build=debug"])
def test_a_request_is_parsed(request_):
    """The name ends at the first equals sign."""
    assert parse_library_request(f"humming={request_}") == ("humming", request_)


@pytest.mark.parametrize("text", ["humming", "humming=", "=0.1.19", "0.1.19", "hum ming=1"])
def test_a_request_in_another_form_is_refused(text):
    """The error shows the text and the form."""
    with pytest.raises(LibraryError, match="NAME=REQUEST") as caught:
        parse_library_request(text)
    assert repr(text) in str(caught.value)
