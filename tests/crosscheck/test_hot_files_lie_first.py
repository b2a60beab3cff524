# SPDX-License-Identifier: GPL-2.0-or-later
"""A sort list's order is the order in the image: data, fragments, inodes, listings."""

import random
from pathlib import Path

import pytest

import bootpress
from bootpress import FileLayout, Image, PackOptions, SortList
from bootpress.image import Entry
from bootpress.sortlist import SortEntry
from judges import mounted
from trees import make_bytes

BLOCK = 131072


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 files of unlike sizes, none equal to another."""
    top = tmp_path_factory.mktemp("hot") / "root"
    sizes = random.Random(1)
    for index in range(300):
        size = sizes.choice([10, 900, 5000, 40_000, BLOCK, BLOCK + 77, 3 * BLOCK + 500])
        path = top / f"d{index % 7}/f{index:03}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_bytes(size, seed=index))
    return top


@pytest.fixture(scope="module")
def hot(root: Path) -> list[str]:
    names = sorted(str(path.relative_to(root)) for path in root.rglob("f*"))
    return random.Random(2).sample(names, 60)


@pytest.fixture(scope="module", params=["fragments", "no-fragments"])
def packed(
    request: pytest.FixtureRequest,
    root: Path,
    hot: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Image, bootpress.PackReport]:
    path = tmp_path_factory.mktemp("hot-image") / "image"
    last = ["d0/f000", "d1/f001"]
    listed = [name for name in hot if name not in last]
    report = bootpress.pack(
        root,
        path,
        sort_list=SortList.from_paths(listed, last=last),
        options=PackOptions(codec="lz4", fragments=request.param == "fragments"),
    )
    return Image(path), report


def split(image: Image, hot: list[str]) -> tuple[list[FileLayout], list[FileLayout]]:
    chosen = [name for name in hot if name not in {"d0/f000", "d1/f001"}]
    cold = [e.path for e in image.walk() if e.stat.type == "file" and e.path not in chosen]
    return [image.layout(p) for p in chosen], [image.layout(p) for p in cold]


def first_block(layout: FileLayout) -> int | None:
    return next((block.offset for block in layout.blocks if block.length), None)


def test_data_comes_in_list_order_ahead_of_all_other(
    packed: tuple[Image, bootpress.PackReport], hot: list[str]
) -> None:
    hot_layouts, cold_layouts = split(packed[0], hot)
    starts = [start for layout in hot_layouts if (start := first_block(layout)) is not None]
    assert starts == sorted(starts)
    cold = [start for layout in cold_layouts if (start := first_block(layout)) is not None]
    assert max(starts) < min(cold)


def test_hot_tails_share_fragments_in_list_order_and_with_no_cold_one(
    packed: tuple[Image, bootpress.PackReport], hot: list[str]
) -> None:
    hot_layouts, cold_layouts = split(packed[0], hot)
    tails = [
        (layout.fragment_extent.offset, layout.tail.offset)
        for layout in hot_layouts
        if layout.fragment_extent and layout.tail
    ]
    assert tails == sorted(tails)
    hot_fragments = {layout.fragment for layout in hot_layouts} - {None}
    cold_fragments = {layout.fragment for layout in cold_layouts} - {None}
    assert not hot_fragments & cold_fragments


def test_the_hot_region_holds_all_hot_data_and_nothing_else(
    packed: tuple[Image, bootpress.PackReport], hot: list[str]
) -> None:
    image, report = packed
    hot_layouts, cold_layouts = split(image, hot)

    def ends(layouts: list[FileLayout]) -> list[tuple[int, int]]:
        extents = [b for layout in layouts for b in (*layout.blocks, layout.fragment_extent) if b]
        return [(e.offset, e.offset + e.length) for e in extents if e.length]

    begin = min(start for start, _ in ends(hot_layouts))
    assert begin + report.hot_bytes == max(end for _, end in ends(hot_layouts))
    assert min(start for start, _ in ends(cold_layouts)) >= begin + report.hot_bytes
    assert report.hot_files == len(hot_layouts)


def test_inodes_of_hot_files_end_the_inode_table_beside_the_hot_listings(
    packed: tuple[Image, bootpress.PackReport], hot: list[str]
) -> None:
    hot_layouts, cold_layouts = split(packed[0], hot)
    references = [layout.reference for layout in hot_layouts]
    assert references == sorted(references)
    assert min(references) > max(layout.reference for layout in cold_layouts)
    image = packed[0]
    ends = image.layout(hot[-1]).inode_extent
    assert ends.offset + ends.length == image.info()["directory_table"]
    listing = image.layout("").listing_extent
    assert listing is not None
    assert listing.offset == image.info()["directory_table"]


def test_what_is_listed_last_lies_last(packed: tuple[Image, bootpress.PackReport]) -> None:
    image, _ = packed
    starts = {
        e.path: start
        for e in image.walk()
        if e.stat.type == "file" and (start := first_block(e.layout)) is not None
    }
    for name in ("d0/f000", "d1/f001"):
        if name in starts:
            others = [start for path, start in starts.items() if path not in {"d0/f000", "d1/f001"}]
            assert starts[name] > max(others)


@pytest.mark.mounts
def test_the_kernel_knows_the_inode_numbers_that_layout_tells(
    packed: tuple[Image, bootpress.PackReport],
) -> None:
    image, _ = packed
    with mounted(Path(image.path)) as mountpoint:
        for entry in image.walk():
            assert (mountpoint / entry.path).lstat().st_ino == entry.layout.inode


def test_layout_extents_hold_what_they_say(packed: tuple[Image, bootpress.PackReport]) -> None:
    image, _ = packed
    data = Path(image.path).read_bytes()
    for entry in image.walk():
        if entry.stat.type != "file":
            continue
        content = entry.read()
        # The content is random, so lz4 stores it raw: extents are checked by the bytes themselves.
        stored = b"".join(data[b.offset : b.offset + b.length] for b in entry.layout.blocks)
        assert content.startswith(stored), entry.path


def test_an_equal_file_that_is_hot_makes_the_shared_data_hot(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for name in ("a", "m", "z"):
        (root / name).write_bytes(make_bytes(BLOCK, seed=ord(name)))
    (root / "copy-of-z").write_bytes(make_bytes(BLOCK, seed=ord("z")))
    bootpress.pack(
        root,
        tmp_path / "image",
        options=PackOptions(codec="none", cold_order="path"),
        sort_list=SortList.from_paths(["z"]),
    )
    image = Image(tmp_path / "image")
    assert first_block(image.layout("z")) == first_block(image.layout("copy-of-z"))
    assert first_block(image.layout("z")) < first_block(image.layout("a"))  # type: ignore[operator]


def test_metadata_only_makes_inodes_hot_and_leaves_the_data_where_it_was(
    root: Path, hot: list[str], tmp_path: Path
) -> None:
    entries = tuple(
        SortEntry(name.encode(), index - len(hot), metadata_only=index % 2 == 0)
        for index, name in enumerate(hot)
    )
    options = PackOptions(codec="lz4")
    report = bootpress.pack(root, tmp_path / "one", options=options, sort_list=SortList(entries))
    with_data = [name for index, name in enumerate(hot) if index % 2]
    other = bootpress.pack(
        root, tmp_path / "two", options=options, sort_list=SortList.from_paths(with_data)
    )
    assert (report.hot_files, other.hot_files) == (len(hot), len(with_data))
    assert report.sort_list is not None
    assert report.sort_list.metadata_only == len(hot) - len(with_data)
    one, two = Image(tmp_path / "one"), Image(tmp_path / "two")
    for layout in two.layouts():
        mine = one.layout(layout.path)
        assert (mine.blocks, mine.fragment_extent, mine.tail) == (
            layout.blocks,
            layout.fragment_extent,
            layout.tail,
        )
    references = [one.layout(name).reference for name in hot]
    assert references == sorted(references)
    assert min(references) > max(e.layout.reference for e in one.walk() if is_cold(e, hot))


def test_inodes_follow_the_first_looks_and_data_the_first_reads(
    root: Path, hot: list[str], tmp_path: Path
) -> None:
    read = random.Random(3).sample(hot, len(hot))
    named = [(name, True) for name in hot] + [(name, False) for name in read]
    entries = tuple(
        SortEntry(name.encode(), index - len(named), metadata_only=only)
        for index, (name, only) in enumerate(named)
    )
    options = PackOptions(codec="lz4")
    report = bootpress.pack(root, tmp_path / "image", options=options, sort_list=SortList(entries))
    assert report.sort_list is not None
    assert (report.hot_files, report.sort_list.metadata_only) == (len(hot), 0)
    image = Image(tmp_path / "image")
    references = [image.layout(name).reference for name in hot]
    assert references == sorted(references)
    starts = [at for name in read if (at := first_block(image.layout(name))) is not None]
    assert starts == sorted(starts)
    cold = [first_block(entry.layout) for entry in image.walk() if is_cold(entry, hot)]
    assert starts[-1] < min(at for at in cold if at is not None)


def is_cold(entry: Entry, hot: list[str]) -> bool:
    return entry.stat.type == "file" and entry.path not in hot


def test_data_that_a_hot_file_shares_is_hot_for_an_entry_of_metadata_only_too(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for name, seed in (("a", 1), ("copy", 2), ("hot", 2)):
        (root / name).write_bytes(make_bytes(BLOCK + 10, seed=seed))
    entries = (SortEntry(b"copy", -2, metadata_only=True), SortEntry(b"hot", -1))
    bootpress.pack(root, tmp_path / "image", sort_list=SortList(entries))
    image = Image(tmp_path / "image")
    copy, hot, cold = (image.layout(name) for name in ("copy", "hot", "a"))
    assert (copy.blocks, copy.fragment, copy.tail) == (hot.blocks, hot.fragment, hot.tail)
    assert hot.blocks[0].offset < cold.blocks[0].offset
    assert hot.fragment != cold.fragment
    assert cold.reference < copy.reference < hot.reference


def test_listings_of_hot_directories_lie_side_by_side_in_first_look_up_order(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    for name in ("z/y/file", "a/b/file", "m/file", "cold/file"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    listed = SortList.from_paths(["z/y/file", "m/file", "a/b/file"])
    bootpress.pack(root, tmp_path / "image", sort_list=listed)
    image = Image(tmp_path / "image")
    at = 0
    for path in ("", "z", "z/y", "m", "a", "a/b", "cold"):
        layout = image.layout(path)
        assert layout.listing_reference == at  # all in the table's first unit
        at += layout.listing_bytes
