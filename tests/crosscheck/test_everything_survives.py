# SPDX-License-Identifier: GPL-2.0-or-later
"""What SquashFS can hold comes back: owners, xattrs, links, devices, holes, names, times."""

import os
from pathlib import Path

import pytest

import bootpress
from bootpress import Image, PackOptions
from compare_trees import find_differences
from judges import mounted, need, run
from trees import make_everything, make_wide_directory

pytestmark = pytest.mark.mounts


@pytest.fixture(scope="module", params=["default", "no-fragments", "4K", "no-dedupe", "none"])
def image(
    request: pytest.FixtureRequest, everything: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    options = {
        "default": PackOptions(level=3),
        "no-fragments": PackOptions(codec="gzip", level=1, fragments=False),
        "4K": PackOptions(codec="lz4", block_size=4096),
        "no-dedupe": PackOptions(codec="gzip", level=1, dedupe=False, block_size=1 << 20),
        "none": PackOptions(codec="none"),
    }[request.param]
    path = tmp_path_factory.mktemp("everything-image") / "everything.squashfs"
    bootpress.pack(everything, path, options=options)
    return path


def test_the_kernel_shows_everything(image: Path, everything: Path) -> None:
    with mounted(image) as mountpoint:
        assert find_differences(everything, mountpoint) == []


def test_unpacking_restores_everything(image: Path, everything: Path, tmp_path: Path) -> None:
    report = bootpress.unpack(image, tmp_path / "out")
    assert find_differences(everything, tmp_path / "out") == []
    assert report.skipped == ()


def test_unpacked_holes_are_holes(image: Path, tmp_path: Path) -> None:
    bootpress.unpack(image, tmp_path / "out")
    for name in ("nothing", "begin", "end", "middle"):
        layout = Image(image).layout(f"sparse/{name}")
        stored = sum(block.length > 0 for block in layout.blocks)
        unpacked = (tmp_path / "out/sparse" / name).stat()
        # A tail-end lies in a fragment, so it is written even where it is zeros.
        tail = layout.tail.length if layout.tail else 0
        most = stored * int(Image(image).info()["block_size"] or 0) + tail + 4096
        assert unpacked.st_blocks * 512 <= most, name


def test_unsquashfs_extracts_everything(image: Path, everything: Path, tmp_path: Path) -> None:
    need("unsquashfs")
    run("unsquashfs", "-quiet", "-no-progress", "-d", tmp_path / "out", image)
    assert find_differences(everything, tmp_path / "out") == []


def test_our_own_reader_agrees(image: Path, everything: Path) -> None:
    assert bootpress.verify(image, against=everything).differences == ()
    assert bootpress.diff(everything, image) == ()


def test_an_image_is_a_source_as_well(image: Path, everything: Path, tmp_path: Path) -> None:
    bootpress.pack(image, tmp_path / "again.squashfs", options=PackOptions(level=3))
    with mounted(tmp_path / "again.squashfs") as mountpoint:
        assert find_differences(everything, mountpoint) == []


def test_links_to_one_inode_are_counted_once(image: Path) -> None:
    opened = Image(image)
    stat = opened.stat("links/one")
    assert stat.links == 4
    inodes = {
        opened.layout(name).inode for name in ("links/one", "links/two", "link-from-the-root")
    }
    assert len(inodes) == 1


def test_a_directory_of_100000_entries(needs_root: None, tmp_path: Path) -> None:
    make_wide_directory(tmp_path / "root", 100_000)
    bootpress.pack(tmp_path / "root", tmp_path / "image", options=PackOptions(level=1))
    with mounted(tmp_path / "image") as mountpoint:
        assert sorted(os.listdir(mountpoint)) == sorted(os.listdir(tmp_path / "root"))
        # Look-ups go through the directory's index.
        for index in range(0, 100_000, 997):
            name = f"{index:06}-{'x' * (index % 90)}"
            seen, packed = os.lstat(mountpoint / name), os.lstat(tmp_path / "root" / name)
            assert (seen.st_mode, seen.st_mtime) == (packed.st_mode, int(packed.st_mtime)), name
    assert len(Image(tmp_path / "image")) == 100_001


def test_a_file_over_4_gib(needs_root: None, tmp_path: Path) -> None:
    make_everything(tmp_path / "root", huge=True)
    bootpress.pack(tmp_path / "root", tmp_path / "image", options=PackOptions(codec="lz4"))
    assert (tmp_path / "image").stat().st_size < 64 << 20
    with mounted(tmp_path / "image") as mountpoint:
        assert find_differences(tmp_path / "root", mountpoint) == []
    assert Image(tmp_path / "image").read("sparse/huge", (4 << 30) + 12341) == b"last"


def test_posix_acls_are_reported_once_with_a_count(needs_root: None, tmp_path: Path) -> None:
    need("setfacl")
    root = tmp_path / "root"
    root.mkdir()
    for name in "abc":
        (root / name).write_text(name)
        run("setfacl", "-m", "u:1234:r", root / name)
    report = bootpress.pack(root, tmp_path / "image")
    assert [(loss.kind, loss.count, loss.example) for loss in report.losses] == [
        ("POSIX ACL", 3, "a")
    ]


def test_times_that_the_format_cannot_hold_are_reported_once_with_a_count(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for name, when in (("late", 2**32), ("later", 2**32 + 5), ("fine", 2**32 - 1)):
        (root / name).touch()
        os.utime(root / name, (when, when))
        if int((root / name).stat().st_mtime) != when:
            pytest.skip("the file system of the tests cannot hold such times")
    os.utime(root, (0, 0))
    report = bootpress.pack(root, tmp_path / "image")
    assert [(loss.count, loss.example) for loss in report.losses] == [(2, "late")]
    assert "2106" in report.losses[0].kind
    assert Image(tmp_path / "image").stat("late").mtime == 2**32 - 1


def test_times_before_1970_are_reported_once_with_a_count(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "old").touch()
    os.utime(root / "old", (-5, -5))
    report = bootpress.pack(root, tmp_path / "image")
    assert [(loss.count, loss.example) for loss in report.losses] == [(1, "old")]
    assert "1970" in report.losses[0].kind
    assert Image(tmp_path / "image").stat("old").mtime == 0
