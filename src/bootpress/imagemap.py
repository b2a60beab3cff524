# SPDX-License-Identifier: GPL-2.0-or-later
"""An image as a map: what lies at an offset, and at which offset something lies.

Metadata is addressed twice. On disk it comes in units: a header of two bytes (little endian, low 15
bits the stored length, top bit set where nothing is compressed), then the body. Decompressed, each
unit is 8192 bytes of its table but for the last, so a table's bytes are counted from its start:
``unit index * 8192 + offset in the unit``. See Linux fs/squashfs/cache.c, squashfs_read_metadata.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Literal

from bootpress.errors import CorruptError
from bootpress.image import Image
from bootpress.model import Extent, FileLayout, encode_path
from bootpress.trace import PAGE_BYTES, Event, EventKind, Trace

UNIT_BYTES = 8192
HEADER_BYTES = 2
# Bytes of a listing's header and of an entry without its name; the most entries behind one header
# (fs/squashfs/squashfs_fs.h: squashfs_dir_header, squashfs_dir_entry, SQUASHFS_DIR_COUNT).
LISTING_HEADER_BYTES = 12
LISTING_ENTRY_BYTES = 8
LISTING_HEADER_ENTRIES = 256
# Bytes of an inode's record ahead of what varies in length (squashfs_fs.h).
BASIC_FILE_BYTES = 32
EXTENDED_FILE_BYTES = 56
EXTENDED_DIRECTORY_BYTES = 40
SYMLINK_BYTES = 24
# Disks read in sectors; whatever began or ended one was read with it.
READ_GRAIN = 512

TableName = Literal[
    "inode table", "directory table", "fragment table", "export table", "id table", "xattr table"
]
# What a read can be for.
PlaceKind = Literal[
    "data",
    "fragments",
    "inode table",
    "directory table",
    "fragment table",
    "export table",
    "id table",
    "xattr table",
    "superblock",
]


@dataclass(frozen=True, slots=True)
class Unit:
    """A metadata unit.

    Attributes:
        table: the table it is part of.
        index: its place in that table, from 0.
        offset: of its header, in the image.
        length: bytes, header included, as stored.
    """

    table: TableName
    index: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Place:
    """Something in an image that a read of the disk met.

    Attributes:
        kind: what it is.
        extent: where it lies, whole.
        paths: the files whose data it is: one name of each; empty for metadata.
        index: the block's in its file, the fragment's or the unit's in its table.
    """

    kind: PlaceKind
    extent: Extent
    paths: tuple[bytes, ...]
    index: int


class _Table:
    """The units of one table, in its order."""

    def __init__(self, name: TableName, units: Sequence[tuple[int, int]]) -> None:
        self.units = tuple(
            Unit(name, i, offset, length) for i, (offset, length) in enumerate(units)
        )
        self._index = {unit.offset: unit.index for unit in self.units}

    def linearise(self, address: int, offset: int) -> int | None:
        """Return the byte of the table at ``offset`` of the unit at ``address`` of the image."""
        index = self._index.get(address)
        return None if index is None else index * UNIT_BYTES + offset

    def cut(self, first: int, length: int) -> tuple[Unit, ...]:
        """Return the units that hold bytes of the table."""
        last = first + max(length, 1) - 1
        return self.units[first // UNIT_BYTES : last // UNIT_BYTES + 1]


class ImageMap:
    """An image as a map. Built from all layouts at once; one object serves a whole trace.

    Args:
        image: the image; its file is read for the units' headers.

    Raises:
        CorruptError: the units do not add up to their tables.
        SourceError: the file cannot be read.
    """

    def __init__(self, image: Image) -> None:
        self.image = image
        info = image.info()
        self._info = {key: value for key, value in info.items() if isinstance(value, int)}
        self.block_size = self._info["block_size"]
        self.image_bytes = self._info["image_bytes"]
        self.bytes_used = self._info["bytes_used"]
        with Path(image.path).open("rb") as file:
            self._tables = self._read_tables(_ImageFile(file, image.offset))
        self._layouts: dict[bytes, FileLayout] = {}
        self._first_names: dict[int, bytes] = {}
        for layout in image.layouts():
            path = encode_path(layout.path)
            self._layouts[path] = layout
            self._first_names.setdefault(layout.inode, path)
        self._place_records()
        self._indexed: dict[bytes, tuple[int, ...] | None] = {}

    # --- names ------------------------------------------------------------------------------

    @property
    def paths(self) -> Iterator[bytes]:
        """Every path, depth first, names ascending."""
        return iter(self._layouts)

    def path_of_inode(self, number: int) -> bytes | None:
        """Return the first name of an inode, by the number that ``stat`` shows; None: none has it.

        The root's is b"".
        """
        return self._first_names.get(number)

    def layout_of(self, path: bytes) -> FileLayout | None:
        """Return a path's layout, None where the image has no such path."""
        return self._layouts.get(path)

    def first_name(self, path: bytes) -> bytes:
        """Return the name that stands for a file of several: the first. REQUIRES: path exists."""
        return self._first_names[self._layouts[path].inode]

    # --- metadata ---------------------------------------------------------------------------

    def locate_metadata(
        self, block: int, offset: int, length: int
    ) -> tuple[Literal["inode", "listing"], bytes, int, int] | None:
        """Return what the kernel's squashfs_read_metadata reads.

        Args:
            block: the unit's address in the image.
            offset: in the decompressed unit, up to 8192; from there on it is the next unit's.
            length: bytes.

        Returns:
            (kind, path, bytes from the start of the inode's record or the directory's listing,
            bytes). None for the tables of ids, fragments and xattrs, and for no unit at all.
        """
        at = self._tables["inode table"].linearise(block, offset)
        if at is not None:
            number = bisect_right(self._record_starts, at) - 1
            if number < 0:
                return None
            path = self._record_paths[number]
            return "inode", path, at - self._record_starts[number], length
        at = self._tables["directory table"].linearise(block, offset)
        if at is not None:
            number = bisect_right(self._listing_starts, at) - 1
            if number < 0:
                return None
            return "listing", self._listing_paths[number], at - self._listing_starts[number], length
        return None

    def place_inode(self, path: bytes, first: int, length: int) -> tuple[Unit, ...]:
        """Return the units that hold bytes of an inode's record, in their order.

        What lies past the record's end is left out. REQUIRES: the path exists.
        """
        name = self.first_name(path)
        start, size = self._records[name]
        first = min(first, size - 1)
        return self._tables["inode table"].cut(start + first, min(length, size - first))

    def place_listing(self, path: bytes, first: int, length: int) -> tuple[Unit, ...]:
        """Return the units that hold bytes of a directory's listing, in their order.

        What lies past its end is left out: nothing comes back for an empty directory.
        REQUIRES: the path exists.
        """
        layout = self._layouts[path]
        if layout.listing_reference is None or first >= layout.listing_bytes:
            return ()
        start = self._linear_listing(layout)
        return self._tables["directory table"].cut(
            start + first, min(length, layout.listing_bytes - first)
        )

    def record_bytes(self, path: bytes) -> int:
        """Return the length of an inode's record. REQUIRES: the path exists."""
        return self._records[self.first_name(path)][1]

    def listing_bytes(self, path: bytes) -> int:
        """Return the length of a directory's listing. REQUIRES: the path exists."""
        return self._layouts[path].listing_bytes

    def tail_pages(self, path: bytes) -> tuple[int, int]:
        """Return the first page of a file's tail-end and how many there are, 0 for none.

        REQUIRES: the path exists.
        """
        layout = self._layouts[path]
        first = len(layout.blocks) * self.block_size // PAGE_BYTES
        return first, 0 if layout.tail is None else -(-layout.tail.length // PAGE_BYTES)

    def block_list_start(self, path: bytes) -> int:
        """Return where a file's block list begins in its record. REQUIRES: a regular file."""
        words = 4 * len(self._layouts[path].blocks)
        return max(self.record_bytes(path) - words, BASIC_FILE_BYTES)

    def index_bytes(self, path: bytes) -> int:
        """Return how many bytes of a directory's record are its index; 0 where it has none."""
        return max(self.record_bytes(path) - EXTENDED_DIRECTORY_BYTES, 0)

    def lookup_start(self, path: bytes, byte: int) -> int:
        """Return where the kernel begins to read a listing for the entry at ``byte``.

        That is the last header that the directory's index names before it (namei.c,
        get_dir_index_using_name), or the listing's start.
        """
        if not self.index_bytes(path):
            return 0
        if path not in self._indexed:
            self._indexed[path] = self._rebuild_listing(path)
        indexed = self._indexed[path]
        if indexed is None:
            return byte // UNIT_BYTES * UNIT_BYTES
        place = bisect_right(indexed, byte) - 1
        return indexed[place] if place >= 0 else 0

    def size_of(self, path: bytes) -> int:
        """Return a file's bytes. REQUIRES: the path exists."""
        return self.image.tree.row(self.image[path].inode)["size"]

    def has_xattrs(self, path: bytes) -> bool:
        """Return whether an inode has extended attributes. REQUIRES: the path exists."""
        return bool(self.image.tree.row(self.image[path].inode)["xattrs"])

    def id_units(self) -> tuple[Unit, ...]:
        """Return the id table's units."""
        return self._tables["id table"].units

    def fragment_unit(self, fragment: int) -> Unit:
        """Return the fragment table's unit that holds a fragment's entry: 512 to a unit."""
        return self._tables["fragment table"].units[fragment * 16 // UNIT_BYTES]

    def xattr_units(self) -> tuple[Unit, ...]:
        """Return the units of the xattr id table (not of the keys and values)."""
        return self._tables["xattr table"].units

    def table_units(self, table: TableName) -> tuple[Unit, ...]:
        """Return a table's units, in its order; none for a table that the image lacks."""
        return self._tables[table].units

    def mount_reads(self) -> tuple[tuple[PlaceKind, Extent], ...]:
        """Return what a mount reads ahead of the root's inode, in its order.

        super.c, squashfs_fill_super: the superblock, then the indices of the tables of xattrs
        (its header first), ids, exports and fragments.
        """
        reads: list[tuple[PlaceKind, Extent]] = [("superblock", Extent(0, 96))]
        if "xattr_table" in self._info:
            start = self._info["xattr_table"]
            reads.append(("xattr table", Extent(start, 16)))
            if units := len(self.xattr_units()):
                reads.append(("xattr table", Extent(start + 16, 8 * units)))
        tables: tuple[tuple[TableName, str], ...] = (
            ("id table", "id_table"),
            ("export table", "export_table"),
            ("fragment table", "fragment_table"),
        )
        for table, key in tables:
            if key in self._info and (units := len(self._tables[table].units)):
                reads.append((table, Extent(self._info[key], 8 * units)))
        return tuple(reads)

    # --- reads of the disk --------------------------------------------------------------------

    def locate_read(self, offset: int, length: int) -> tuple[Place, ...]:
        """Return what lies under a read of the disk, ascending.

        Blocks and fragments that several files share come once, with all of them.
        """
        end = offset + length
        number = max(bisect_right(self._place_starts, offset) - 1, 0)
        found: list[Place] = []
        for place in self._places[number:]:
            if place.extent.offset >= end:
                break
            if place.extent.offset + place.extent.length > offset:
                found.append(place)
        return tuple(found)

    @cached_property
    def _places(self) -> tuple[Place, ...]:
        blocks: dict[tuple[int, int], tuple[dict[bytes, None], int]] = {}
        fragments: dict[int, dict[bytes, None]] = {}
        for path, layout in self._layouts.items():
            if layout.type != "file" or self.first_name(path) != path:
                continue
            for index, block in enumerate(layout.blocks):
                if block.length:
                    known = blocks.setdefault((block.offset, block.length), ({}, index))
                    known[0].setdefault(path)
            if layout.fragment is not None:
                fragments.setdefault(layout.fragment, {}).setdefault(path)
        places = [
            Place("data", Extent(*where), tuple(paths), index)
            for where, (paths, index) in blocks.items()
        ]
        for index, (start, stored, _) in enumerate(self.image.native.fragments()):
            paths = tuple(fragments.get(index, ()))
            places.append(Place("fragments", Extent(start, stored), paths, index))
        for table in self._tables.values():
            for unit in table.units:
                extent = Extent(unit.offset, unit.length)
                places.append(Place(unit.table, extent, (), unit.index))
        for kind, extent in self.mount_reads():
            places.append(Place(kind, extent, (), -1))
        places.sort(key=lambda place: (place.extent.offset, place.extent.length, place.kind))
        return tuple(places)

    @cached_property
    def _place_starts(self) -> list[int]:
        return [place.extent.offset for place in self._places]

    # --- how it is built ------------------------------------------------------------------------

    def _read_tables(self, file: "_ImageFile") -> dict[TableName, _Table]:
        info = self._info
        pointers: dict[TableName, list[int]] = {
            "fragment table": _read_index(
                file, info.get("fragment_table"), _count_units(info["fragments"], 16)
            ),
            "export table": _read_index(
                file, info.get("export_table"), _count_units(info["inodes"], 8)
            ),
            "id table": _read_index(file, info.get("id_table"), _count_units(info["ids"], 4)),
            "xattr table": [],
        }
        xattr_start: int | None = None
        if "xattr_table" in info:
            head = _read_at(file, info["xattr_table"], 16)
            xattr_start = int.from_bytes(head[:8], "little")
            count = _count_units(int.from_bytes(head[8:12], "little"), 16)
            pointers["xattr table"] = _read_index(file, info["xattr_table"] + 16, count)
        behind = [units[0] for units in pointers.values() if units]
        behind += [start for start in (xattr_start,) if start is not None]
        directory = info["directory_table"]
        end = min((start for start in behind if start >= directory), default=info["bytes_used"])
        tables = {
            "inode table": _Table("inode table", _walk_units(file, info["inode_table"], directory)),
            "directory table": _Table("directory table", _walk_units(file, directory, end)),
        }
        found: dict[TableName, _Table] = {}
        found["inode table"] = tables["inode table"]
        found["directory table"] = tables["directory table"]
        for name, starts in pointers.items():
            units = [(start, _read_unit_length(file, start)) for start in starts]
            found[name] = _Table(name, units)
        return found

    def _place_records(self) -> None:
        table = self._tables["inode table"]
        base = self._info["inode_table"]
        starts: list[tuple[int, bytes]] = []
        for path in self._first_names.values():
            reference = self._layouts[path].reference
            at = table.linearise(base + (reference >> 16), reference & 0xFFFF)
            if at is None:
                raise CorruptError(
                    f"{self.image.path}: an inode lies in no unit of the inode table"
                )
            starts.append((at, path))
        starts.sort()
        self._record_starts = [at for at, _ in starts]
        self._record_paths = [path for _, path in starts]
        self._records = {path: (at, behind - at) for (at, path), (behind, _) in pairwise(starts)}
        last, path = starts[-1]
        self._records[path] = (last, self._guess_record_bytes(path))
        listings = sorted(
            (self._linear_listing(layout), path)
            for path, layout in self._layouts.items()
            if layout.listing_reference is not None
        )
        self._listing_starts = [at for at, _ in listings]
        self._listing_paths = [path for _, path in listings]

    def _guess_record_bytes(self, path: bytes) -> int:
        # The last record has no next one to end at.
        layout = self._layouts[path]
        row = self.image.tree.row(self.image[path].inode)
        if layout.type == "file":
            extended = row["links"] > 1 or bool(row["xattrs"])
            start = EXTENDED_FILE_BYTES if extended else BASIC_FILE_BYTES
            return start + 4 * len(layout.blocks)
        if layout.type == "symlink":
            return SYMLINK_BYTES + len(row["target"])
        return EXTENDED_DIRECTORY_BYTES if row["xattrs"] else BASIC_FILE_BYTES

    def _linear_listing(self, layout: FileLayout) -> int:
        reference = layout.listing_reference or 0
        at = self._tables["directory table"].linearise(
            self._info["directory_table"] + (reference >> 16), reference & 0xFFFF
        )
        if at is None:
            raise CorruptError(
                f"{self.image.path}: a listing lies in no unit of the directory table"
            )
        return at

    def _rebuild_listing(self, path: bytes) -> tuple[int, ...] | None:
        """Return the bytes of a listing that its directory's index names.

        The listing is written again from names, units and numbers, and is believed if its length
        and its index's are those in the image: first as bootpress writes it, then as mksquashfs
        4.5.1 does. None: some other packer's.
        """
        layout = self._layouts[path]
        entries = []
        for name, _ in self.image.tree.entries(self.image[path].inode):
            child = self._layouts[path + b"/" + name if path else name]
            entries.append((len(name), child.reference >> 16, child.inode))
        start = self._linear_listing(layout)
        for far in (None, UNIT_BYTES):
            length, index_bytes, indexed = _write_listing(entries, start=start, far=far)
            if (length, index_bytes) == (layout.listing_bytes, self.index_bytes(path)):
                return indexed
        return None


def _write_listing(
    entries: Sequence[tuple[int, int, int]], *, start: int, far: int | None
) -> tuple[int, int, tuple[int, ...]]:
    """Return a listing's length, its index's length, and the bytes that the index names.

    A header serves at most 256 entries whose inodes lie in one unit and whose numbers differ from
    the first one's by no more than 16 bits.

    Args:
        entries: length of the name, the inode's unit, its number.
        start: the listing's byte in the directory table.
        far: None: the index names the first header in each further unit of the table. A number: a
            header begins, and is named, ahead of the entry that would end further than this from
            the one named last (mksquashfs.c, add_dir).
    """
    indexed: list[int] = []
    at = count = unit = base = index_bytes = named = 0
    for name, own_unit, number in entries:
        is_far = far is not None and at + LISTING_ENTRY_BYTES + name - named > far
        if (
            at == 0
            or count == LISTING_HEADER_ENTRIES
            or own_unit != unit
            or not -(2**15) <= number - base < 2**15
            or is_far
        ):
            if far is None:
                is_far = (start + at) // UNIT_BYTES != (start + named) // UNIT_BYTES
                named = at
            if is_far:
                named = at
                indexed.append(at)
                index_bytes += LISTING_HEADER_BYTES + name
            at += LISTING_HEADER_BYTES
            count, unit, base = 0, own_unit, number
        at += LISTING_ENTRY_BYTES + name
        count += 1
    return at, index_bytes, tuple(indexed)


def convert_reads(trace: Trace, image_map: ImageMap) -> Trace:
    """Return the guest events that reads of the disk stand for, as far as they can tell.

    A data block or fragment counts as needed once all of it was read, so that what read-ahead
    brought of its neighbours does not. In front of a path's first pages come the look-ups that
    lead there: listing and inode of each directory, and the path's own inode.

    What is lost: which of a fragment's files was needed (all of them come), names of a file beyond
    its first, which pages of a block were needed, what was looked up but not read (symlinks,
    directories), and what was read again from memory.

    Args:
        trace: with "read" events; others are left out.
        image_map: of the image that was traced.
    """
    paths: dict[bytes, int] = {}
    events: list[Event] = []
    read: set[int] = set()
    done: set[int] = set()
    known: set[bytes] = set()

    def add(at: int, kind: EventKind, path: bytes, first: int, length: int) -> None:
        events.append(Event(at, kind, paths.setdefault(path, len(paths)), first, length))

    def look_up(at: int, path: bytes) -> None:
        if path in known:
            return
        known.add(path)
        if path:
            parent = path.rpartition(b"/")[0]
            look_up(at, parent)
            length = image_map.listing_bytes(parent)
            add(at, "listing", parent, 0, length)
        add(at, "inode", path, 0, BASIC_FILE_BYTES)

    pages_a_block = image_map.block_size // PAGE_BYTES
    for event in trace.events:
        if event.kind != "read":
            continue
        read.update(
            range(event.first // READ_GRAIN, -(-(event.first + event.length) // READ_GRAIN))
        )
        for place in image_map.locate_read(event.first, event.length):
            extent = place.extent
            if not place.paths or extent.offset in done:
                continue
            grains = range(
                extent.offset // READ_GRAIN, -(-(extent.offset + extent.length) // READ_GRAIN)
            )
            if not all(grain in read for grain in grains):
                continue
            done.add(extent.offset)
            for path in place.paths:
                look_up(event.at, path)
                first, count = place.index * pages_a_block, pages_a_block
                if place.kind == "fragments":
                    first, count = image_map.tail_pages(path)
                add(event.at, "pages", path, first, count)
    return replace(trace, paths=tuple(paths), events=tuple(events))


def _count_units(entries: int, entry_bytes: int) -> int:
    return -(-entries * entry_bytes // UNIT_BYTES)


@dataclass(frozen=True, slots=True)
class _ImageFile:
    """An image in an open file, which may begin with something else."""

    file: BinaryIO
    offset: int

    @property
    def name(self) -> str:
        return self.file.name


def _read_at(file: _ImageFile, offset: int, length: int) -> bytes:
    file.file.seek(file.offset + offset)
    data = file.file.read(length)
    if len(data) != length:
        raise CorruptError(f"{file.name}: ends in the middle of its metadata")
    return data


def _read_index(file: _ImageFile, offset: int | None, count: int) -> list[int]:
    if offset is None or count == 0:
        return []
    return list(struct.unpack(f"<{count}Q", _read_at(file, offset, 8 * count)))


def _read_unit_length(file: _ImageFile, offset: int) -> int:
    header = int.from_bytes(_read_at(file, offset, HEADER_BYTES), "little")
    return HEADER_BYTES + (header & 0x7FFF)


def _walk_units(file: _ImageFile, start: int, end: int) -> list[tuple[int, int]]:
    data = _read_at(file, start, end - start)
    units: list[tuple[int, int]] = []
    at = 0
    while at < len(data):
        length = HEADER_BYTES + (int.from_bytes(data[at : at + HEADER_BYTES], "little") & 0x7FFF)
        units.append((start + at, length))
        at += length
    if at != len(data):
        raise CorruptError(f"{file.name}: the units of a table do not add up to it")
    return units
