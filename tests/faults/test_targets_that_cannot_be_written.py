# SPDX-License-Identifier: GPL-2.0-or-later
"""Full disks, read-only places, directories in the way: status 6, one line, nothing left."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import bootpress
from bootpress import PackOptions, RepackOptions, SortList
from bootpress.errors import TargetError
from judges import mounted, run, small_tmpfs
from trees import make_bytes

Bootpress = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    top = tmp_path / "root"
    top.mkdir()
    for index in range(8):
        (top / str(index)).write_bytes(make_bytes(500_000, seed=index))
    return top


@pytest.mark.parametrize("verify", [True, False])
def test_a_full_disk(root: Path, verify: bool) -> None:
    with small_tmpfs(1 << 20) as place:
        (place / "image").write_bytes(b"the image of before")
        with pytest.raises(TargetError, match="No space left on device") as caught:
            bootpress.pack(root, place / "image", options=PackOptions(verify=verify))
        assert caught.value.hint
        assert os.listdir(place) == ["image"]
        assert (place / "image").read_bytes() == b"the image of before"


@pytest.mark.parametrize("codec", [None, "xz"], ids=["copied", "compressed anew"])
def test_a_disk_that_is_full_while_repacking(root: Path, tmp_path: Path, codec: str | None) -> None:
    bootpress.pack(root, tmp_path / "image")
    with small_tmpfs(1 << 20) as place:
        (place / "image").write_bytes(b"the image of before")
        with pytest.raises(TargetError, match="No space left on device"):
            bootpress.repack(
                tmp_path / "image",
                place / "image",
                sort_list=SortList.from_paths(["3"]),
                options=RepackOptions(codec=codec, level=None if codec is None else 0),
            )
        assert os.listdir(place) == ["image"]
        assert (place / "image").read_bytes() == b"the image of before"


def test_a_disk_that_is_full_at_the_metadata(tmp_path: Path) -> None:
    # Data of a few bytes, many inodes: the tables are what does not fit.
    root = tmp_path / "root"
    root.mkdir()
    for index in range(20_000):
        (root / f"{index}-{make_bytes(60, seed=index).hex()}").touch()
    with small_tmpfs(1 << 20) as place:
        with pytest.raises(TargetError, match="No space left"):
            bootpress.pack(root, place / "image")
        assert os.listdir(place) == []


def test_a_disk_that_is_full_while_unpacking(root: Path, tmp_path: Path) -> None:
    bootpress.pack(root, tmp_path / "image")
    with small_tmpfs(1 << 20) as place:
        with pytest.raises(TargetError, match="No space left"):
            bootpress.unpack(tmp_path / "image", place / "out")
        assert os.listdir(place) == []
        with pytest.raises(OSError, match="No space left"), (place / "t").open("wb") as out:
            bootpress.unpack_to_tar(tmp_path / "image", out)


def test_a_disk_that_is_full_while_writing_a_tar(
    root: Path, tmp_path: Path, bootpress: Bootpress
) -> None:
    bootpress("pack", root, tmp_path / "image")
    with small_tmpfs(1 << 20) as place:
        done = bootpress("unpack", tmp_path / "image", "--tar", place / "tar")
        assert done.returncode == 6
        assert b"No space left" in done.stderr
        assert os.listdir(place) == []


def test_output_to_a_full_device(root: Path, tmp_path: Path) -> None:
    bootpress.pack(root, tmp_path / "image")
    for arguments in (
        ["cat", tmp_path / "image", "0"],
        ["unpack", tmp_path / "image", "--tar", "-"],
        ["list", tmp_path / "image"],
    ):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [sys.executable, "-m", "bootpress", *arguments],
                stdout=full,
                stderr=subprocess.PIPE,
                check=False,
            )
        assert done.returncode == 6, arguments
        assert b"cannot write standard output: No space left on device" in done.stderr


@pytest.mark.mounts
def test_a_read_only_place(root: Path, tmp_path: Path) -> None:
    bootpress.pack(root, tmp_path / "image")
    with (
        mounted(tmp_path / "image") as mountpoint,
        pytest.raises(TargetError, match="Read-only file system"),
    ):
        bootpress.pack(root, mountpoint / "image")


def test_a_directory_in_the_way(root: Path, tmp_path: Path) -> None:
    (tmp_path / "image").mkdir()
    with pytest.raises(TargetError, match="is a directory"):
        bootpress.pack(root, tmp_path / "image")
    assert os.listdir(tmp_path / "image") == []


def test_a_place_that_does_not_exist(root: Path, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="No such file or directory"):
        bootpress.pack(root, tmp_path / "nowhere/image")


def test_unpacking_into_a_directory_that_holds_something(root: Path, tmp_path: Path) -> None:
    bootpress.pack(root, tmp_path / "image")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").write_text("mine")
    with pytest.raises(TargetError, match="out"):
        bootpress.unpack(tmp_path / "image", tmp_path / "out")
    assert (tmp_path / "out/mine").read_text() == "mine"


def test_a_place_of_somebody_else(root: Path, tmp_path: Path, bootpress: Bootpress) -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming somebody else needs root")
    for path in (tmp_path, *tmp_path.parents):
        if path != Path("/") and path.owner() == "root":
            path.chmod(path.stat().st_mode | 0o055)
    run("chmod", "-R", "go+rX", root)
    try:
        usable = bootpress("--version", user=65534).returncode == 0
    except PermissionError:
        usable = False
    if not usable:
        pytest.skip("another user cannot read this installation")
    done = bootpress("pack", root, tmp_path / "image", user=65534)
    assert done.returncode == 6, done.stderr
    assert b"Permission denied" in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["root"]
