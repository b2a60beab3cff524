# SPDX-License-Identifier: GPL-2.0-or-later
"""``unpack --tar``: GNU tar and bsdtar extract the tree that was packed."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import bootpress
from bootpress import PackOptions
from compare_trees import find_differences
from judges import need, run
from trees import make_sparse

Bootpress = Callable[..., subprocess.CompletedProcess[bytes]]

pytestmark = pytest.mark.usefixtures("needs_root")


@pytest.fixture(scope="module")
def tar(everything: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tar")
    bootpress.pack(everything, place / "image", options=PackOptions(codec="gzip", level=1))
    with (place / "tar").open("wb") as out:
        report = bootpress.unpack_to_tar(place / "image", out)
    assert [(loss.kind, loss.count) for loss in report.skipped] == [("socket", 1)]
    return place / "tar"


EXTRACT = {
    "tar": ("tar", "--xattrs", "--xattrs-include=*", "--same-owner", "-p", "-xf"),
    "bsdtar": ("bsdtar", "--same-owner", "-p", "-xf"),
}


@pytest.mark.parametrize("tool", list(EXTRACT))
def test_it_extracts_to_what_was_packed(
    tool: str, tar: Path, everything: Path, tmp_path: Path
) -> None:
    need(tool)
    out = tmp_path / "out"
    out.mkdir()
    run(*EXTRACT[tool], tar, cwd=out)
    # A tar has no sockets; and bsdtar leaves the directory that it works in alone.
    ignored = ("'nodes/socket'", "'.': mtime") if tool == "bsdtar" else ("'nodes/socket'",)
    found = find_differences(everything, out)
    assert [line for line in found if not line.startswith(ignored)] == []


def test_it_packs_back_to_the_same_tree(tar: Path, everything: Path, tmp_path: Path) -> None:
    bootpress.pack(tar, tmp_path / "image", options=PackOptions(codec="none"))
    found = bootpress.diff(everything, tmp_path / "image")
    assert [(difference.path, difference.what) for difference in found] == [
        ("nodes/socket", "only in a")
    ]


def test_it_streams_a_file_over_8_gib(tmp_path: Path, bootpress: Bootpress) -> None:
    # Octal sizes of ustar end at 8 GiB.
    root = tmp_path / "root"
    root.mkdir()
    size = (8 << 30) + 1
    make_sparse(root / "huge", size, {size - 1: b"z"})
    assert bootpress("pack", root, tmp_path / "image", "--codec", "lz4").returncode == 0
    command = f"bootpress unpack {tmp_path}/image --tar - | tar -tv"
    here = os.path.dirname(sys.executable)
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        check=False,
        env={**os.environ, "PATH": f"{here}:{os.environ['PATH']}"},
    )
    assert str(size).encode() in done.stdout, done.stderr
