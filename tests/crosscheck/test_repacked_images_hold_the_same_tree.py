# SPDX-License-Identifier: GPL-2.0-or-later
"""Repacking changes the order and nothing else, whoever made the image."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

import bootpress
from bootpress import Image, PackOptions, RepackOptions, SortList
from bootpress.model import encode_path
from bootpress.sortlist import SortEntry
from compare_trees import find_differences
from judges import mounted, need, run
from trees import make_bytes, make_everything

BLOCK = 131072


def by_bootpress(options: PackOptions) -> Callable[[Path, Path], None]:
    def make(root: Path, image: Path) -> None:
        listed = SortList.from_paths(["sizes/131073", "equal/small-1", "xattrs/3"])
        bootpress.pack(root, image, options=options, sort_list=listed)

    return make


def by_mksquashfs(*arguments: str) -> Callable[[Path, Path], None]:
    def make(root: Path, image: Path) -> None:
        need("mksquashfs")
        run("mksquashfs", root, image, "-noappend", "-quiet", "-no-progress", *arguments)

    return make


def by_gensquashfs(*arguments: str) -> Callable[[Path, Path], None]:
    def make(root: Path, image: Path) -> None:
        need("gensquashfs")
        run("gensquashfs", "-q", "-k", "-x", "-D", root, *arguments, image)

    return make


MAKERS = {
    "zstd": by_bootpress(PackOptions(level=3)),
    "gzip-1M": by_bootpress(PackOptions(codec="gzip", level=2, block_size=1 << 20)),
    "gzip-12": by_bootpress(PackOptions(codec="gzip", level=12)),
    "xz-bcj": by_bootpress(PackOptions(codec="xz", level=1)),
    "lz4hc-4K": by_bootpress(PackOptions(codec="lz4", level=9, block_size=4096)),
    "lzo": by_bootpress(PackOptions(codec="lzo", level=3)),
    "none": by_bootpress(PackOptions(codec="none")),
    "no-fragments": by_bootpress(PackOptions(codec="lz4", fragments=False)),
    "no-dedupe": by_bootpress(PackOptions(codec="lz4", dedupe=False)),
    "mksquashfs": by_mksquashfs(),
    "mksquashfs-zstd-1M": by_mksquashfs("-comp", "zstd", "-Xcompression-level", "3", "-b", "1M"),
    "mksquashfs-xz": by_mksquashfs("-comp", "xz", "-Xbcj", "x86,arm", "-Xdict-size", "8K"),
    "mksquashfs-lz4": by_mksquashfs("-comp", "lz4", "-Xhc"),
    "mksquashfs-lzo": by_mksquashfs("-comp", "lzo", "-Xalgorithm", "lzo1x_1_15"),
    "mksquashfs-strategies": by_mksquashfs("-Xwindow-size", "10", "-Xstrategy", "filtered,default"),
    "mksquashfs-tails": by_mksquashfs("-always-use-fragments", "-b", "16K"),
    "mksquashfs-no-fragments": by_mksquashfs("-no-fragments"),
    "mksquashfs-no-exports": by_mksquashfs("-no-exports"),
    "mksquashfs-no-duplicates": by_mksquashfs("-no-duplicates", "-no-sparse"),
    "mksquashfs-raw-tables": by_mksquashfs("-noI", "-noX"),
    "mksquashfs-raw-data": by_mksquashfs("-noD"),
    "mksquashfs-raw-fragments": by_mksquashfs("-noF"),
    "mksquashfs-raw": by_mksquashfs("-noI", "-noD", "-noF", "-noX"),
    "gensquashfs": by_gensquashfs("-c", "gzip"),
    "gensquashfs-xz-64K": by_gensquashfs("-c", "xz", "-b", "65536"),
    "gensquashfs-exports": by_gensquashfs("-c", "zstd", "-e"),
}

pytestmark = pytest.mark.mounts


def make_list(image: Image) -> SortList:
    """A third of everything in any order, some of it with its metadata only, and some last.

    The data of some comes in another order than their inodes.
    """
    names = [path for path in image if path]
    chosen = random.Random(5).sample(names, len(names) // 3)
    hot = chosen[: len(chosen) * 3 // 4]
    named = [(name, index % 5 == 0 or index % 3 == 0) for index, name in enumerate(hot)]
    named += [(name, False) for name in reversed(hot[::3])]
    entries = [
        SortEntry(encode_path(name), index - len(named), metadata_only=only)
        for index, (name, only) in enumerate(named)
    ]
    last = [SortEntry(encode_path(name), index) for index, name in enumerate(chosen[len(hot) :], 1)]
    return SortList((*entries, *last))


@pytest.fixture(scope="module", params=list(MAKERS))
def source(
    request: pytest.FixtureRequest, everything: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path = tmp_path_factory.mktemp("made") / "image"
    MAKERS[request.param](everything, path)
    return path


@pytest.fixture(scope="module")
def repacked(
    source: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, bootpress.PackReport]:
    path = tmp_path_factory.mktemp("repacked") / "image"
    report = bootpress.repack(source, path, sort_list=make_list(Image(source)))
    return path, report


def test_the_kernel_shows_the_same_tree(
    source: Path, repacked: tuple[Path, bootpress.PackReport]
) -> None:
    with mounted(source) as before, mounted(repacked[0]) as after:
        assert find_differences(before, after) == []


def test_unsquashfs_extracts_the_same_tree(
    source: Path, repacked: tuple[Path, bootpress.PackReport], tmp_path: Path
) -> None:
    need("unsquashfs")
    for image, name in ((source, "before"), (repacked[0], "after")):
        run("unsquashfs", "-quiet", "-no-progress", "-d", tmp_path / name, image)
    assert find_differences(tmp_path / "before", tmp_path / "after") == []


def test_bootpress_sees_no_difference(
    source: Path, repacked: tuple[Path, bootpress.PackReport]
) -> None:
    assert bootpress.diff(source, repacked[0]) == ()
    assert bootpress.verify(repacked[0]).seal == "intact"
    before, after = Image(source).info(), Image(repacked[0]).info()
    kept = ("codec", "block_size", "mkfs_time", "inodes", "ids")
    assert [after[key] for key in kept] == [before[key] for key in kept]


def test_blocks_are_copied_and_none_is_lost(
    source: Path, repacked: tuple[Path, bootpress.PackReport]
) -> None:
    before, (path, report) = Image(source), repacked
    after = Image(path)
    data = {which: Path(which.path).read_bytes() for which in (before, after)}
    blocks = 0
    for layout in before.layouts():
        new = after.layout(layout.path)
        assert len(new.blocks) == len(layout.blocks)
        for old_block, new_block in zip(layout.blocks, new.blocks, strict=True):
            blocks += 1
            assert (
                data[before][old_block.offset : old_block.offset + old_block.length]
                == data[after][new_block.offset : new_block.offset + new_block.length]
            ), layout.path
        assert (new.fragment is None) == (layout.fragment is None)
    assert blocks > 3
    assert 0 < report.copied_bytes <= report.used_bytes


def test_the_order_is_the_list(source: Path, repacked: tuple[Path, bootpress.PackReport]) -> None:
    listed = make_list(Image(source))
    image = Image(repacked[0])
    references = list(dict.fromkeys(image.layout(e.path).reference for e in listed.hot))
    # Directories on the way to a file come before it, so a directory listed later may lie earlier.
    files = [
        image.layout(e.path).reference for e in listed.hot if image[e.path].stat.type != "directory"
    ]
    files = list(dict.fromkeys(files))
    assert files == sorted(files)
    hot = {image[e.path].inode for e in listed.hot}
    cold = [
        e.layout.reference
        for e in image.walk()
        if e.inode not in hot and e.stat.type != "directory"
    ]
    assert max(cold) < min(references)


def test_a_second_time_with_the_same_list_changes_nothing(
    repacked: tuple[Path, bootpress.PackReport], tmp_path: Path
) -> None:
    path, report = repacked
    again = bootpress.repack(path, tmp_path / "again", sort_list=make_list(Image(path)))
    assert again.seal == report.seal
    assert again.copied_bytes >= report.copied_bytes


def test_the_new_image_is_the_same_for_any_number_of_jobs(
    source: Path, repacked: tuple[Path, bootpress.PackReport], tmp_path: Path
) -> None:
    for jobs in (1, 2, 7):
        bootpress.repack(
            source,
            tmp_path / "image",
            sort_list=make_list(Image(source)),
            options=RepackOptions(jobs=jobs, memory=1 << 20),
        )
        assert (tmp_path / "image").read_bytes() == repacked[0].read_bytes(), jobs


def test_what_the_image_does_not_leave_to_choice_is_compressed_anew(
    everything: Path, tmp_path: Path
) -> None:
    bootpress.pack(everything, tmp_path / "image", options=PackOptions(level=3))
    listed = make_list(Image(tmp_path / "image"))
    for options in (
        RepackOptions(codec="lz4"),
        RepackOptions(level=4),
        RepackOptions(block_size=65536),
        RepackOptions(codec="xz", level=1),
    ):
        report = bootpress.repack(
            tmp_path / "image", tmp_path / "new", sort_list=listed, options=options
        )
        assert report.copied_bytes == report.copied_fragments == 0
        assert bootpress.diff(tmp_path / "image", tmp_path / "new") == ()
        before, after = Image(tmp_path / "image").info(), Image(tmp_path / "new").info()
        assert after["mkfs_time"] == before["mkfs_time"]
        assert (after["codec"], after["block_size"]) == (
            options.codec or "zstd",
            options.block_size or BLOCK,
        )
        with mounted(tmp_path / "image") as one, mounted(tmp_path / "new") as two:
            assert find_differences(one, two) == []
    same = RepackOptions(codec="zstd", level=3, block_size=BLOCK)
    report = bootpress.repack(tmp_path / "image", tmp_path / "new", sort_list=listed, options=same)
    assert report.copied_bytes > 0


def test_files_over_four_gibibytes(needs_root: None, tmp_path: Path) -> None:
    make_everything(tmp_path / "root", huge=True)
    with (tmp_path / "root/sizes/more").open("wb") as file:
        for index in range(64):
            file.write(make_bytes(1 << 20, seed=index))
    bootpress.pack(tmp_path / "root", tmp_path / "image", options=PackOptions(codec="lz4"))
    listed = SortList.from_paths(["sizes/more", "sparse/huge"])
    bootpress.repack(tmp_path / "image", tmp_path / "new", sort_list=listed)
    with mounted(tmp_path / "new") as mountpoint:
        assert find_differences(tmp_path / "root", mountpoint) == []


def test_an_image_may_be_repacked_onto_itself(everything: Path, tmp_path: Path) -> None:
    path = tmp_path / "image"
    bootpress.pack(everything, path)
    (tmp_path / "before").write_bytes(path.read_bytes())
    bootpress.repack(path, path, sort_list=make_list(Image(path)))
    assert path.read_bytes() != (tmp_path / "before").read_bytes()
    assert bootpress.diff(tmp_path / "before", path) == ()


@pytest.mark.parametrize("maker", ["bootpress", "mksquashfs"])
def test_a_real_debian(debian: Path, tmp_path: Path, maker: str) -> None:
    options = PackOptions(level=6)
    if maker == "bootpress":
        bootpress.pack(debian, tmp_path / "image", options=options)
    else:
        by_mksquashfs("-comp", "zstd", "-Xcompression-level", "6")(debian, tmp_path / "image")
    image = Image(tmp_path / "image")
    names = [entry.path for entry in image.walk() if entry.stat.type == "file"]
    listed = SortList.from_paths(random.Random(3).sample(names, 300))
    report = bootpress.repack(tmp_path / "image", tmp_path / "new", sort_list=listed)
    with mounted(tmp_path / "new") as mountpoint:
        assert find_differences(debian, mountpoint) == []
    if maker != "bootpress":
        return
    packed = bootpress.pack(debian, tmp_path / "packed", options=options, sort_list=listed)
    # Tail-ends that part from their like cost a little; all else is the same bytes.
    assert report.image_bytes <= packed.image_bytes * 1.005
    assert abs(report.hot_bytes - packed.hot_bytes) <= packed.hot_bytes * 0.005
