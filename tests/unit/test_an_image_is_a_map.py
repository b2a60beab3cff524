# SPDX-License-Identifier: GPL-2.0-or-later
"""The map of an image: offsets to things and back, on images of two packers."""

import random

import pytest

import bootpress
from bootpress import Image, PackOptions
from bootpress.imagemap import UNIT_BYTES, ImageMap, convert_reads
from bootpress.model import encode_path
from bootpress.trace import Event, read_trace
from boots import LOOP
from judges import need, run


@pytest.fixture(scope="module", params=["bootpress", "mksquashfs"])
def image_map(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ImageMap:
    """A tree with a directory large enough for an index, packed by us and by others."""
    folder = tmp_path_factory.mktemp("map")
    tree = folder / "tree"
    (tree / "large").mkdir(parents=True)
    for number in range(1500):
        (tree / f"large/file-number-{number:05}").write_text(f"{number}\n")
    (tree / "empty").mkdir()
    (tree / "link").symlink_to("large/file-number-00007")
    (tree / "blocks").write_bytes(random.Random(7).randbytes(400_000))
    (tree / "again").hardlink_to(tree / "blocks")
    (tree / "hole").touch()
    with (tree / "hole").open("r+b") as file:
        file.truncate(300_000)
    if request.param == "bootpress":
        bootpress.pack(tree, folder / "image", options=PackOptions(codec="zstd"))
    else:
        need("mksquashfs")
        run("mksquashfs", tree, folder / "image", "-comp", "zstd", "-noappend", "-quiet")
    return ImageMap(Image(folder / "image"))


def test_inode_numbers_lead_to_paths(image_map: ImageMap) -> None:
    for path in image_map.paths:
        layout = image_map.layout_of(path)
        assert layout is not None
        found = image_map.path_of_inode(layout.inode)
        assert found == image_map.first_name(path)
        assert found is not None
        assert image_map.image[found].inode == image_map.image[path].inode
    assert image_map.path_of_inode(0) is None
    assert image_map.path_of_inode(10**6) is None


def test_records_lie_where_the_kernel_looks_for_them(image_map: ImageMap) -> None:
    start = image_map.image.info()["inode_table"]
    assert isinstance(start, int)
    for path in image_map.paths:
        layout = image_map.layout_of(path)
        assert layout is not None
        block = start + (layout.reference >> 16)
        offset = layout.reference & 0xFFFF
        name = image_map.first_name(path)
        assert image_map.locate_metadata(block, offset, 32) == ("inode", name, 0, 32)
        last = image_map.record_bytes(path) - 1
        units = image_map.place_inode(path, 0, last + 1)
        # The layout's extent is what the core says of the same units.
        assert units[0].offset == layout.inode_extent.offset == block
        assert sum(unit.length for unit in units) == layout.inode_extent.length
        # An offset past the unit is the next unit's.
        assert image_map.locate_metadata(block, offset + last, 1) == ("inode", name, last, 1)


def test_listings_lie_where_the_kernel_looks_for_them(image_map: ImageMap) -> None:
    start = image_map.image.info()["directory_table"]
    assert isinstance(start, int)
    for path in (b"", b"large"):
        layout = image_map.layout_of(path)
        assert layout is not None
        assert layout.listing_reference is not None
        assert layout.listing_extent is not None
        block = start + (layout.listing_reference >> 16)
        offset = layout.listing_reference & 0xFFFF
        for byte in (0, 11, layout.listing_bytes - 1):
            told = image_map.locate_metadata(block, offset + byte, 1)
            assert told == ("listing", path, byte, 1)
        units = image_map.place_listing(path, 0, layout.listing_bytes)
        assert units[0].offset == layout.listing_extent.offset
        assert sum(unit.length for unit in units) == layout.listing_extent.length
        assert image_map.place_listing(path, layout.listing_bytes, 1) == ()
    assert image_map.place_listing(b"empty", 0, 100) == ()


def test_a_look_up_in_a_large_directory_starts_at_its_index(image_map: ImageMap) -> None:
    layout = image_map.layout_of(b"large")
    assert layout is not None
    assert layout.listing_bytes > 4 * UNIT_BYTES
    assert image_map.index_bytes(b"large") > 0
    assert image_map.index_bytes(b"") == 0
    assert image_map.lookup_start(b"large", 100) == 0
    starts = [image_map.lookup_start(b"large", byte) for byte in range(0, layout.listing_bytes, 50)]
    assert starts == sorted(starts)
    assert len(set(starts)) >= 4
    for byte, start in zip(range(0, layout.listing_bytes, 50), starts, strict=True):
        assert start <= byte < start + 2 * UNIT_BYTES


def test_what_is_no_metadata_is_nothing(image_map: ImageMap) -> None:
    info = image_map.image.info()
    assert image_map.locate_metadata(0, 0, 4) is None
    assert image_map.locate_metadata(96, 0, 4) is None
    for table in ("id_table", "bytes_used"):
        at = info[table]
        assert isinstance(at, int)
        assert image_map.locate_metadata(at, 0, 4) is None
    assert image_map.locate_metadata(image_map.id_units()[0].offset, 0, 4) is None
    # In the middle of a unit no unit begins.
    assert image_map.locate_metadata(int(str(info["inode_table"])) + 1, 0, 4) is None


def test_every_byte_but_padding_has_its_place(image_map: ImageMap) -> None:
    at = 96
    known = image_map.locate_read(0, image_map.image_bytes)
    for place in known:
        # Options of the codec may stand between the superblock and the first block.
        assert place.extent.offset - at in range(200) or place.extent.offset < at
        at = max(at, place.extent.offset + place.extent.length)
    assert at == image_map.bytes_used
    kinds = {place.kind for place in known}
    assert {
        "superblock",
        "data",
        "fragments",
        "inode table",
        "directory table",
        "id table",
    } <= kinds


def test_blocks_are_found_under_a_read_with_their_files(image_map: ImageMap) -> None:
    layout = image_map.layout_of(b"blocks")
    assert layout is not None
    block = layout.blocks[1]
    places = image_map.locate_read(block.offset + block.length - 1, 1)
    assert [(place.kind, place.index) for place in places] == [("data", 1)]
    # Both names are one inode: the first stands for it.
    assert places[0].paths == (b"again",)
    before = image_map.locate_read(block.offset - 1, 2)
    assert [place.index for place in before] == [0, 1]


def test_fragments_are_found_with_all_their_files(image_map: ImageMap) -> None:
    layout = image_map.layout_of(b"large/file-number-00003")
    assert layout is not None
    assert layout.fragment_extent is not None
    (place,) = image_map.locate_read(layout.fragment_extent.offset, 1)
    assert place.kind == "fragments"
    assert b"large/file-number-00003" in place.paths
    assert len(place.paths) > 100


def test_the_paths_of_an_image_are_all_there(image_map: ImageMap) -> None:
    assert [encode_path(path) for path in image_map.image] == list(image_map.paths)


def test_reads_of_the_disk_become_what_they_were_for(image_map: ImageMap) -> None:
    layout = image_map.layout_of(b"blocks")
    assert layout is not None
    block = layout.blocks[0]
    trace = read_trace(LOOP)
    half = block.length // 2
    reads = (
        # The second half brings the block to its end; what read-ahead brought of the next one,
        # which was not read whole, does not count.
        Event(1, "read", -1, block.offset, half),
        Event(2, "read", -1, block.offset + half, block.length - half + 4096),
    )
    told = convert_reads(type(trace)(**_with(trace, paths=(), events=reads)), image_map)
    seen = [(event.at, event.kind, told.path_of(event)) for event in told.events]
    assert (2, "pages", b"again") in seen
    assert [row for row in seen if row[1] == "pages"] == [(2, "pages", b"again")]
    # The look-ups that lead there come ahead of it.
    assert seen[0] == (2, "inode", b"")
    assert (2, "listing", b"") in seen


def _with(trace: object, **changes: object) -> dict[str, object]:
    names = type(trace).__slots__  # type: ignore[attr-defined]
    return {**{name: getattr(trace, name) for name in names}, **changes}
