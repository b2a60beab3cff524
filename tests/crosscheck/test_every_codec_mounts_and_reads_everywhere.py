# SPDX-License-Identifier: GPL-2.0-or-later
"""A real Debian, with every codec and two block sizes, as the kernel and other readers see it."""

from dataclasses import replace
from pathlib import Path

import pytest

import bootpress
from bootpress import PackOptions
from compare_trees import find_differences
from judges import mounted, need, read_by_dissect, run

KIB = 1024
# Levels below the standard where the standard takes long and the format is the same.
CASES = {
    "gzip": PackOptions(codec="gzip"),
    "zstd": PackOptions(codec="zstd", level=6),
    "xz": PackOptions(codec="xz", level=1, bcj="none"),
    "xz-bcj": PackOptions(codec="xz", level=1, bcj="auto"),
    "lz4": PackOptions(codec="lz4"),
    "lz4hc": PackOptions(codec="lz4", level=9),
    "lzo": PackOptions(codec="lzo"),
    "lzo-fast": PackOptions(codec="lzo", level=0),
    "none": PackOptions(codec="none"),
}

pytestmark = pytest.mark.mounts


@pytest.fixture(scope="module", params=[128 * KIB, 1024 * KIB], ids=["128K", "1M"])
def block_size(request: pytest.FixtureRequest) -> int:
    size: int = request.param
    return size


@pytest.fixture(scope="module", params=list(CASES))
def options(request: pytest.FixtureRequest, block_size: int) -> PackOptions:
    return replace(CASES[request.param], block_size=block_size)


@pytest.fixture(scope="module")
def image(options: PackOptions, debian: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("codec") / "debian.squashfs"
    report = bootpress.pack(debian, path, options=options)
    assert report.image_bytes == path.stat().st_size
    assert path.stat().st_size % 4096 == 0
    return path


@pytest.fixture(scope="module")
def part(debian: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part of the tree for the readers that decompress a fragment again for each file in it."""
    root = tmp_path_factory.mktemp("part") / "root"
    root.mkdir()
    run(
        "cp",
        "-a",
        "--parents",
        "etc",
        "usr/bin",
        "usr/lib/udev",
        "var/lib/pam",
        "dev",
        root,
        cwd=debian,
    )
    return root


@pytest.fixture(scope="module")
def part_image(options: PackOptions, part: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("codec-part") / "part.squashfs"
    bootpress.pack(part, path, options=options)
    return path


def test_the_kernel_shows_what_was_packed(image: Path, debian: Path) -> None:
    with mounted(image) as mountpoint:
        assert find_differences(debian, mountpoint) == []


def test_unsquashfs_extracts_what_was_packed(image: Path, debian: Path, tmp_path: Path) -> None:
    need("unsquashfs")
    run("unsquashfs", "-quiet", "-no-progress", "-d", tmp_path / "out", image)
    assert find_differences(debian, tmp_path / "out") == []


def test_rdsquashfs_unpacks_what_was_packed(part_image: Path, part: Path, tmp_path: Path) -> None:
    need("rdsquashfs")
    out = tmp_path / "out"
    out.mkdir()
    # -D devices, -S sockets, -F fifos, -L symlinks, -C chmod, -O chown, -T times, -X xattrs.
    # It writes several names of an inode as files of their own: groups are judged by the kernel.
    run("rdsquashfs", "-q", "-C", "-O", "-T", "-X", "-u", "/", "-p", out, part_image)
    differences = find_differences(part, out)
    kept = [line for line in differences if ": links:" not in line and ": group:" not in line]
    # 1.2.0 leaves the times of directories at the moment of unpacking.
    assert [line for line in kept if ": mtime:" not in line] == []


def test_dissect_reads_what_was_packed(part_image: Path, part: Path) -> None:
    assert read_by_dissect(part_image, part) > 300


def test_our_own_reader_agrees(image: Path, debian: Path) -> None:
    report = bootpress.verify(image, against=debian)
    assert report.differences == ()
    assert report.seal == "intact"


def test_sqfsdiff_sees_no_difference_to_an_image_of_gensquashfs(part: Path, tmp_path: Path) -> None:
    need("gensquashfs", "sqfsdiff")
    run("gensquashfs", "-q", "-k", "-x", "-D", part, "-c", "gzip", tmp_path / "theirs")
    bootpress.pack(part, tmp_path / "ours", options=PackOptions(codec="gzip", level=1))
    done = run("sqfsdiff", "-a", tmp_path / "theirs", "-b", tmp_path / "ours", check=False)
    # 1.2.0 knows no hard links in a directory that it packs: it stores the file twice, with a basic
    # inode where ours is extended, and sqfsdiff tells only that.
    linked = {
        f"/{entry.path} has an extended type"
        for entry in bootpress.Image(tmp_path / "ours").walk()
        if entry.stat.type == "file" and entry.stat.links > 1
    }
    assert set(done.stdout.decode().splitlines()) <= linked
