# SPDX-License-Identifier: GPL-2.0-or-later
"""tar and cpio, compressed in every way or on standard input, give the directory's image."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import bootpress
from bootpress import PackOptions
from compare_trees import find_differences
from judges import mounted, need, run

Bootpress = Callable[..., subprocess.CompletedProcess[bytes]]

pytestmark = pytest.mark.usefixtures("needs_root")

FILTERS = {
    "plain": ["cat"],
    "gzip": ["gzip", "-c"],
    "xz": ["xz", "-1", "-T1", "-c"],
    "zstd": ["zstd", "-q", "-c"],
    "lz4": ["lz4", "-q", "-c"],
    "bzip2": ["bzip2", "-c"],
}
OPTIONS = PackOptions(codec="gzip", level=1)


@pytest.fixture(scope="module")
def tree(everything: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything, but for what a tar cannot hold: sockets, and (GNU tar) links of a fifo."""
    root = tmp_path_factory.mktemp("archives") / "root"
    run("cp", "-a", everything, root)
    for name in ("nodes/socket", "links/fifo-again"):
        (root / name).unlink()
        os.utime((root / name).parent, (1_700_000_000, 1_700_000_000))
    return root


@pytest.fixture(scope="module")
def tar(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tar") / "tree.tar"
    need("tar")
    run("tar", "--format=posix", "--xattrs", "--xattrs-include=*", "-C", tree, "-cf", path, ".")
    return path


@pytest.fixture(scope="module")
def expected(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("expected") / "image"
    bootpress.pack(tree, path, options=OPTIONS)
    return path


def compress(archive: Path, how: str, target: Path) -> Path:
    need(FILTERS[how][0])
    with archive.open("rb") as source, target.open("wb") as out:
        subprocess.run(FILTERS[how], stdin=source, stdout=out, check=True)
    return target


@pytest.mark.parametrize("how", list(FILTERS))
def test_a_tar_packs_like_its_directory(
    how: str, tar: Path, tree: Path, expected: Path, tmp_path: Path
) -> None:
    # The name says nothing: the content tells.
    archive = compress(tar, how, tmp_path / "archive")
    bootpress.pack(archive, tmp_path / "image", options=OPTIONS)
    assert bootpress.diff(expected, tmp_path / "image") == ()


@pytest.mark.mounts
def test_the_kernel_shows_a_packed_tar(tar: Path, tree: Path, tmp_path: Path) -> None:
    bootpress.pack(tar, tmp_path / "image", options=OPTIONS)
    with mounted(tmp_path / "image") as mountpoint:
        assert find_differences(tree, mountpoint) == []


@pytest.mark.parametrize("how", list(FILTERS))
def test_a_cpio_packs_like_its_directory(how: str, tmp_path: Path, debian: Path) -> None:
    # newc, what an initramfs is: 32-bit sizes, no xattrs.
    need("cpio")
    root = tmp_path / "root"
    shutil.copytree(debian / "etc", root, symlinks=True)
    (root / "hostname-again").hardlink_to(root / "hostname")
    os.mknod(root / "null", 0o20666, os.makedev(1, 3))
    os.utime(root, (5, 5))
    archive = tmp_path / "plain"
    with archive.open("wb") as out:
        names = b"".join(
            os.path.relpath(os.path.join(top, name), os.fsencode(root)) + b"\0"
            for top, directories, files in os.walk(os.fsencode(root))
            for name in (b".", *directories, *files)
            if name != b"." or top == os.fsencode(root)
        )
        subprocess.run(
            ["cpio", "--quiet", "-0", "-o", "-H", "newc"],
            input=names,
            stdout=out,
            cwd=root,
            check=True,
        )
    bootpress.pack(
        compress(archive, how, tmp_path / "archive"), tmp_path / "image", options=OPTIONS
    )
    found = bootpress.diff(root, tmp_path / "image")
    # shutil.copytree keeps user xattrs where there are any; cpio has none.
    assert [difference for difference in found if difference.what != "xattrs"] == []


@pytest.mark.parametrize("how", ["plain", "gzip"])
def test_a_tar_on_standard_input_packs_like_its_directory(
    how: str, tar: Path, expected: Path, tmp_path: Path, bootpress: Bootpress
) -> None:
    archive = compress(tar, how, tmp_path / "archive")
    with subprocess.Popen(["cat", archive], stdout=subprocess.PIPE) as pipe:
        done = bootpress(
            "pack", "-", tmp_path / "image", "--codec", "gzip", "--level", "1", stdin=pipe.stdout
        )
    assert done.returncode == 0, done.stderr
    assert bootpress("diff", expected, tmp_path / "image").stdout == b""


def test_a_tar_of_bsdtar_packs_like_its_directory(
    tree: Path, expected: Path, tmp_path: Path
) -> None:
    need("bsdtar")
    run("bsdtar", "--format=pax", "-C", tree, "-cf", tmp_path / "tar", ".")
    bootpress.pack(tmp_path / "tar", tmp_path / "image", options=OPTIONS)
    assert bootpress.diff(expected, tmp_path / "image") == ()


def test_excludes_owner_and_xattrs_apply_to_archives_too(tar: Path, tmp_path: Path) -> None:
    options = PackOptions(codec="none", excludes=("sizes", "links/o*"), owner=(7, 8), xattrs=False)
    bootpress.pack(tar, tmp_path / "image", options=options)
    image = bootpress.Image(tmp_path / "image")
    assert "sizes" not in image
    assert "links/one" not in image
    assert image.stat("link-from-the-root").links == 3
    assert {(e.stat.uid, e.stat.gid) for e in image.walk()} == {(7, 8)}
    assert not any(e.stat.xattrs for e in image.walk())
