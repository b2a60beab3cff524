# SPDX-License-Identifier: GPL-2.0-or-later
"""From records and reads to a trace's events: by name, clamped, neighbours told as one."""

from pathlib import Path

import pytest

from bootpress import Image, pack
from bootpress.errors import TraceError
from bootpress.imagemap import ImageMap
from bootpress.medium import DiskImage
from bootpress.qemu import DiskRead
from bootpress.record import EventCollector, MetadataEvent, PageEvent, Record
from bootpress.trace import Event


@pytest.fixture
def image_map(small: Path, tmp_path: Path) -> ImageMap:
    pack(small, tmp_path / "image")
    return ImageMap(Image(tmp_path / "image"))


def collect(image_map: ImageMap, *events: PageEvent | MetadataEvent) -> EventCollector:
    collector = EventCollector()
    collector.add_record(Record(1.0, 9.0, events), image_map)
    return collector


def test_pages_in_a_row_are_one_event(image_map: ImageMap) -> None:
    # usr/bin/tool has 300,000 bytes: 74 pages. Its first name, in the image's order, is "again".
    inode = image_map.image.layout("usr/bin/tool").inode
    collector = collect(
        image_map,
        PageEvent(1.5, inode, 0, 1),
        PageEvent(1.6, inode, 4096, 4),
        PageEvent(1.7, inode, 40960, 1),
    )
    assert collector.paths == (b"usr/bin/again",)
    assert collector.in_order() == (
        Event(500_000, "pages", 0, 0, 5),
        Event(700_000, "pages", 0, 10, 1),
    )
    assert not collector.has_metadata


def test_pages_past_the_end_of_a_file_are_left_out(image_map: ImageMap) -> None:
    inode = image_map.image.layout("usr/bin/tool").inode
    collector = collect(
        image_map, PageEvent(2.0, inode, 73 * 4096, 1), PageEvent(2.1, inode, 74 * 4096, 16)
    )
    assert collector.in_order() == (Event(1_000_000, "pages", 0, 73, 1),)


def test_a_symlinks_target_is_a_page(image_map: ImageMap) -> None:
    inode = image_map.image.layout("usr/bin/link").inode
    assert collect(image_map, PageEvent(1.0, inode, 0, 1)).in_order() == (
        Event(0, "pages", 0, 0, 1),
    )


def test_an_inode_that_the_image_does_not_have(image_map: ImageMap) -> None:
    with pytest.raises(TraceError, match="inode 4711, which the image does not have"):
        collect(image_map, PageEvent(1.0, 4711, 0, 1))


def test_looks_at_one_listing_in_a_row_are_one_event(image_map: ImageMap) -> None:
    layout = image_map.image.layout("usr/bin")
    assert layout.listing_reference is not None
    assert layout.listing_extent is not None
    block, offset = layout.listing_extent.offset, layout.listing_reference & 0xFFFF
    collector = collect(
        image_map,
        MetadataEvent(1.0, block, offset, 12),
        MetadataEvent(1.1, block, offset + 12, 8),
        MetadataEvent(1.2, block, offset + 20, 5),
        # The same again is nothing new as long as nothing comes between.
        MetadataEvent(1.3, block, offset, 12),
    )
    assert collector.paths == (b"usr/bin",)
    assert collector.in_order() == (Event(0, "listing", 0, 0, 25),)
    assert collector.has_metadata


def test_looks_at_the_id_table_are_left_out(image_map: ImageMap) -> None:
    unit = image_map.id_units()[0]
    assert collect(image_map, MetadataEvent(1.0, unit.offset, 0, 4)).in_order() == ()


def test_reads_of_a_disk_become_reads_of_the_image_on_it() -> None:
    image = DiskImage("1", offset=1_048_576, length=10_000)
    collector = EventCollector()
    collector.add_reads(
        (
            DiskRead(100.0, 0, 4096),  # before it
            DiskRead(100.5, 1_048_576 - 512, 1024),  # across its beginning
            DiskRead(101.0, 1_048_576 + 4096, 4096),
            DiskRead(101.5, 1_048_576 + 8192, 65536),  # beyond its padded end
            DiskRead(102.0, 1_048_576 + 12288, 4096),  # after it
        ),
        image,
        started_at=100.0,
    )
    assert collector.in_order() == (
        Event(500_000, "read", -1, 0, 512),
        Event(1_000_000, "read", -1, 4096, 4096),
        Event(1_500_000, "read", -1, 8192, 4096),
    )
