# SPDX-License-Identifier: Apache-2.0
"""The wheel and the sdist carry the whole package, under one top-level name."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINKED = ("kernels", "suites", "baselines")


def package_files(root):
    """Every file of the package below `root`, links followed, relative to `root`."""
    return {
        Path(folder, name).relative_to(root).as_posix()
        for folder, _, names in os.walk(root / "humming_conformance", followlinks=True)
        for name in names
        if not folder.endswith("__pycache__") and ".conformance" not in Path(folder).parts  # what a run writes
    }


def build(command, cwd):
    """Run a build without network and show its output if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def wheel_names(source, target):
    """Build the wheel of `source` into `target` and list its files."""
    build(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", target, "."],
        source,
    )
    (wheel,) = target.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of what is packaged: a build writes beside its sources."""
    copy = tmp_path_factory.mktemp("source")
    for path in [*ROOT.glob("*.toml"), *ROOT.glob("*.md"), ROOT / "LICENSE"]:
        shutil.copy(path, copy)
    for folder in ("humming_conformance", *LINKED):
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    """The files of the wheel built from the source tree."""
    return wheel_names(source, tmp_path_factory.mktemp("wheel"))


@pytest.mark.parametrize("folder", LINKED)
def test_link_is_relative(folder):
    """A link names its folder relative to itself, so that it holds in any checkout."""
    assert (ROOT / "humming_conformance" / folder).readlink() == Path("..", folder)


def test_wheel_has_one_top_level_name(wheel):
    """Nothing named `kernels` or `suites` is installed beside the package."""
    tops = {name.split("/")[0] for name in wheel}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"humming_conformance"}


def test_wheel_is_complete(source, wheel):
    """Every file of the package, linked folders and data included, is in the wheel."""
    expected = package_files(source)
    assert {f"humming_conformance/{folder}" for folder in LINKED} <= {name.rpartition("/")[0] for name in expected}
    assert {name for name in wheel if ".dist-info/" not in name} == expected


def test_sdist_builds_the_same_wheel(source, wheel, tmp_path):
    """The sdist holds files instead of links, and the wheel built from it is no different."""
    build(
        [
            sys.executable,
            "-c",
            "import sys, setuptools.build_meta as b; b.build_sdist(sys.argv[1])",
            tmp_path,
        ],
        source,
    )
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        assert not [member.name for member in tar if member.issym() or member.islnk()]
        tar.extractall(tmp_path, filter="data")
    (unpacked,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert wheel_names(unpacked, tmp_path / "wheel") == wheel
