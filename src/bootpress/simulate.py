# SPDX-License-Identifier: GPL-2.0-or-later
"""Replays a recorded boot against an image's layout, as the kernel would read it.

The trace says which pages, inodes and listings a boot needed, in which order. The image says where
they lie. In between stands a model of Linux 6.1 (file and function named where it is modelled):

- **squashfs** keeps 8 metadata units, of all tables alike, and 3 fragments; whatever is not there
  is read again. A unit is read in two steps, its header's two bytes and then its body; a data block
  and a fragment in one. (fs/squashfs/cache.c, block.c)
- Mounted **directly**, each of these is a read of the disk, rounded to 1 KiB: squashfs goes past
  the page cache (block.c, squashfs_bio_read).
- Mounted through a **loop** device, each page of it goes through the page cache of what the loop
  device is backed by, one page at a time (drivers/block/loop.c, lo_read_simple), which reads ahead
  up to 128 KiB (mm/readahead.c) and reads nothing twice.

What it does not model: reads of others (partition scans, udev's blkid), two processes at once, and
memory too small for the page cache.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from bootpress.errors import TraceError
from bootpress.image import Image
from bootpress.imagemap import SYMLINK_BYTES, ImageMap, PlaceKind, Unit, convert_reads
from bootpress.model import Extent, FileLayout
from bootpress.profile import Medium
from bootpress.trace import PAGE_BYTES, Event, Trace

# squashfs_fs.h: SQUASHFS_CACHED_BLKS; CONFIG_SQUASHFS_FRAGMENT_CACHE_SIZE, as Debian sets it.
METADATA_SLOTS = 8
FRAGMENT_SLOTS = 3
# super.c: sb_min_blocksize(sb, SQUASHFS_DEVBLK_SIZE), on a disk with sectors of 512 bytes.
DEVICE_BLOCK = 1024
# mm/readahead.c takes it from the queue: VM_READAHEAD_PAGES, read_ahead_kb=128.
READAHEAD_PAGES = 32
# squashfs_fs.h: the common part of a record, and a file's block list in blocks to one index slot.
BASE_INODE_BYTES = 16
META_INDEXES = 2048
# How many units a report names that were read most often.
HOTTEST = 12


@dataclass(frozen=True, slots=True)
class DiskRead:
    """One read of the disk.

    Attributes:
        offset: bytes from the image's start.
        length: bytes.
        kind: what asked for it.
        repeated: the same unit, fragment or block had been read before.
    """

    offset: int
    length: int
    kind: PlaceKind
    repeated: bool


@dataclass(frozen=True, slots=True)
class KindTotal:
    """Reads of one kind: how many, their bytes, and how many of them were repeats."""

    reads: int
    bytes_read: int
    repeats: int


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a boot would read of an image. Exact: the same input gives the same figures.

    Attributes:
        image: its file.
        attach: "loop" or "direct".
        medium: the medium's name.
        reads: reads of the disk.
        bytes_read: bytes of them.
        jumps: reads that do not begin where the one before them ended.
        seek_bytes: distance over those jumps, summed.
        seconds: on the medium: transfer, and an access for each jump.
        kinds: the same reads by what asked for them.
        hottest: metadata units and fragments that were read most often: (kind, index in its
            table, times), the most often first; empty where nothing is read twice.
        missing: events about paths that the image does not have; they were left out.
        disk_reads: all reads, in their order.
    """

    image: str
    attach: Literal["loop", "direct"]
    medium: str
    reads: int
    bytes_read: int
    jumps: int
    seek_bytes: int
    seconds: float
    kinds: Mapping[str, KindTotal]
    hottest: tuple[tuple[PlaceKind, int, int], ...]
    missing: int
    disk_reads: tuple[DiskRead, ...]


def simulate_boot(
    trace: Trace,
    image: Image,
    *,
    medium: Medium,
    attach: Literal["loop", "direct"] | None = None,
    traced: Image | None = None,
) -> Simulation:
    """Return what the traced boot would read of ``image``, another image of the same tree.

    Args:
        trace: guest events decide; a trace that has none is read by what the disk saw, see
            ``imagemap.convert_reads`` for what that loses.
        image: any image with the trace's paths. Where its blocks are larger than the traced one's,
            a block is read once for all the pages in it; where they are smaller, pages that were
            only read for being in the same block are read all the same.
        medium: for the seconds.
        attach: how the image is mounted; None: as recorded, or "loop" where that is unknown, since
            live media are mounted so.
        traced: the image that was booted, for a trace without guest events; None: it is ``image``.

    Raises:
        TraceError: the trace has no events at all, or fits the image in nothing.
    """
    return replay_trace(
        trace,
        ImageMap(image),
        medium=medium,
        attach=attach,
        traced=None if traced is None else ImageMap(traced),
    )


def replay_trace(
    trace: Trace,
    image_map: ImageMap,
    *,
    medium: Medium,
    attach: Literal["loop", "direct"] | None = None,
    traced: ImageMap | None = None,
) -> Simulation:
    """Do the work of ``simulate_boot`` on maps, which cost more to build than a replay."""
    if all(event.kind == "read" for event in trace.events):
        trace = convert_reads(trace, traced or image_map)
    chosen: Literal["loop", "direct"]
    chosen = attach or ("direct" if trace.attach == "direct" else "loop")
    disk: _Disk = _LoopDisk(image_map.image_bytes) if chosen == "loop" else _DirectDisk()
    kernel = _Kernel(image_map, disk)
    kernel.mount()
    missing = 0
    for event in trace.events:
        if event.kind == "read":
            continue
        if not kernel.replay(event, trace.path_of(event)):
            missing += 1
    if missing and missing == sum(event.kind != "read" for event in trace.events):
        raise TraceError(
            f"{image_map.image.path} has none of the paths of this trace",
            hint="simulate a trace on images of the tree that it was recorded on",
        )
    reads = disk.reads
    jumps, seek_bytes = measure_seeks((read.offset, read.length) for read in reads)
    bytes_read = sum(read.length for read in reads)
    return Simulation(
        image=image_map.image.path,
        attach=chosen,
        medium=medium.name,
        reads=len(reads),
        bytes_read=bytes_read,
        jumps=jumps,
        seek_bytes=seek_bytes,
        seconds=medium.model_seconds(bytes_read=bytes_read, reads=len(reads), jumps=jumps),
        kinds=_sum_kinds(reads),
        hottest=tuple(
            (kind, index, times)
            for (kind, index), times in kernel.loads.most_common(HOTTEST)
            if times > 1 and chosen == "direct"
        ),
        missing=missing,
        disk_reads=tuple(reads),
    )


def measure_seeks(reads: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Return the reads that do not begin where the one before them ended, and the distance in all.

    Args:
        reads: (offset, length) of each, bytes, in their order; the head starts at 0.

    Returns:
        (reads out of sequence, bytes between the end of one and the begin of the next, summed).
    """
    head = jumps = distance = 0
    for offset, length in reads:
        if offset != head:
            jumps += 1
            distance += abs(offset - head)
        head = offset + length
    return jumps, distance


def _sum_kinds(reads: Iterable[DiskRead]) -> dict[str, KindTotal]:
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    repeats: Counter[str] = Counter()
    for read in reads:
        counts[read.kind] += 1
        sizes[read.kind] += read.length
        repeats[read.kind] += read.repeated
    return {kind: KindTotal(counts[kind], sizes[kind], repeats[kind]) for kind in sorted(counts)}


# --- squashfs -----------------------------------------------------------------------------------


class RoundRobinCache:
    """squashfs' cache: a slot each in turn, however recently it was used (cache.c).

    A hit changes nothing. Slots that are in use at the moment are passed over in the kernel; here
    none is.
    """

    def __init__(self, slots: int) -> None:
        self._slots: list[int | None] = [None] * slots
        self._next = 0

    def get(self, key: int) -> bool:
        """Return whether ``key`` is in the cache; it is afterwards."""
        if key in self._slots:
            return True
        self._slots[self._next] = key
        self._next = (self._next + 1) % len(self._slots)
        return False


class _Disk(Protocol):
    reads: list[DiskRead]

    def read(self, extent: Extent, kind: PlaceKind, *, repeated: bool) -> None:
        """Read bytes of the image for squashfs."""


class _Kernel:
    """squashfs, for one process at a time."""

    def __init__(self, image_map: ImageMap, disk: _Disk) -> None:
        self._map = image_map
        self._disk = disk
        self._units = RoundRobinCache(METADATA_SLOTS)
        self._fragments = RoundRobinCache(FRAGMENT_SLOTS)
        self._pages: dict[bytes, set[int]] = {}
        self._blocks: dict[bytes, set[int]] = {}
        self._pages_a_block = image_map.block_size // PAGE_BYTES
        self.loads: Counter[tuple[PlaceKind, int]] = Counter()
        self._seen_blocks: set[int] = set()

    def mount(self) -> None:
        """Read what a mount reads ahead of the root's inode."""
        for kind, extent in self._map.mount_reads():
            self._disk.read(extent, kind, repeated=False)

    def replay(self, event: Event, path: bytes) -> bool:
        """Do what an event of the guest tells; False: the image has no such path."""
        layout = self._map.layout_of(path)
        if layout is None:
            return False
        if event.kind == "inode":
            # Bytes further on are a block list, an index or a target: these are read anew where
            # the pages or the listing ask for them, as this image needs it.
            if event.first == 0:
                self._load_inode(path, layout)
        elif event.kind == "listing":
            self._read_listing(path, layout, event.first, event.length)
        elif layout.type == "symlink":
            # symlink.c, squashfs_symlink_read_folio.
            self._touch(self._map.place_inode(path, SYMLINK_BYTES, self._map.record_bytes(path)))
        elif layout.type == "file":
            self._read_pages(self._map.first_name(path), layout, event.first, event.length)
        return True

    def _touch(self, units: Iterable[Unit]) -> None:
        for unit in units:
            if self._units.get(unit.offset):
                continue
            repeated = self._count_load(unit.table, unit.index)
            # block.c, squashfs_read_data: the length first, then that much.
            self._disk.read(Extent(unit.offset, 2), unit.table, repeated=repeated)
            self._disk.read(Extent(unit.offset + 2, unit.length - 2), unit.table, repeated=repeated)

    def _count_load(self, kind: PlaceKind, index: int) -> bool:
        self.loads[kind, index] += 1
        return self.loads[kind, index] > 1

    def _load_inode(self, path: bytes, layout: FileLayout) -> None:
        """inode.c, squashfs_read_inode: common part, owner, the rest, fragment, xattrs."""
        record = self._map.record_bytes(path)
        fixed = record
        if layout.type == "file":
            fixed = self._map.block_list_start(path)
        elif layout.type == "directory":
            fixed = record - self._map.index_bytes(path)
        self._touch(self._map.place_inode(path, 0, BASE_INODE_BYTES))
        # Which ids they are the layout does not tell; the first unit holds 2,048.
        self._touch(self._map.id_units()[:1])
        self._touch(self._map.place_inode(path, 0, fixed))
        if layout.fragment is not None:
            self._touch((self._map.fragment_unit(layout.fragment),))
        if self._map.xattr_units() and self._map.has_xattrs(path):
            # The same: the first unit holds 512 sets.
            self._touch(self._map.xattr_units()[:1])

    def _read_listing(self, path: bytes, layout: FileLayout, first: int, length: int) -> None:
        """namei.c, squashfs_lookup, and dir.c, squashfs_readdir.

        The recorded bytes are the traced image's; another one's headers lie elsewhere, by some
        twelve bytes each, and so do the places that an index names. So only the end is taken from
        the trace: that is the entry that was looked for.
        """
        end = min(first + length, layout.listing_bytes)
        if end <= 0:
            return
        start = first
        index = self._map.index_bytes(path)
        if index:
            self._touch(self._map.place_inode(path, self._map.record_bytes(path) - index, index))
            whole = first == 0 and end == layout.listing_bytes
            start = 0 if whole else self._map.lookup_start(path, end - 1)
        elif first:
            start = 0
        self._touch(self._map.place_listing(path, start, end - start))

    def _read_pages(self, name: bytes, layout: FileLayout, first: int, count: int) -> None:
        """file.c, squashfs_readahead: whole blocks, whichever pages of them are missing."""
        seen = self._pages.setdefault(name, set())
        blocks = self._blocks.setdefault(name, set())
        wanted: dict[int, list[int]] = {}
        for page in range(first, first + count):
            wanted.setdefault(page // self._pages_a_block, []).append(page)
        for block, pages in wanted.items():
            # A page that comes again had been dropped; new pages of a block that was read whole
            # are there already.
            if block in blocks and not any(page in seen for page in pages):
                seen.update(pages)
                continue
            seen.update(pages)
            if block < len(layout.blocks):
                blocks.add(block)
                self._read_block(name, layout, block)
            elif block == len(layout.blocks) and layout.fragment is not None:
                blocks.add(block)
                self._read_fragment(layout)

    def _read_block(self, name: bytes, layout: FileLayout, block: int) -> None:
        # file.c, read_blocklist: from the list's start, or from a slot that an index remembers.
        start = self._map.block_list_start(name)
        remembered = block // META_INDEXES * META_INDEXES
        self._touch(
            self._map.place_inode(name, start + 4 * remembered, 4 * (block - remembered + 1))
        )
        extent = layout.blocks[block]
        if extent.length:
            repeated = extent.offset in self._seen_blocks
            self._seen_blocks.add(extent.offset)
            self._disk.read(extent, "data", repeated=repeated)

    def _read_fragment(self, layout: FileLayout) -> None:
        extent = layout.fragment_extent
        if extent is None or layout.fragment is None or self._fragments.get(extent.offset):
            return
        repeated = self._count_load("fragments", layout.fragment)
        self._disk.read(extent, "fragments", repeated=repeated)


# --- the disk, mounted directly -----------------------------------------------------------------


class _DirectDisk:
    """Each read of squashfs is one of the disk, in device blocks (block.c, squashfs_bio_read)."""

    def __init__(self) -> None:
        self.reads: list[DiskRead] = []

    def read(self, extent: Extent, kind: PlaceKind, *, repeated: bool) -> None:
        start = extent.offset // DEVICE_BLOCK * DEVICE_BLOCK
        end = -(-(extent.offset + extent.length) // DEVICE_BLOCK) * DEVICE_BLOCK
        self.reads.append(DiskRead(start, end - start, kind, repeated))


# --- the disk behind a loop device --------------------------------------------------------------


class _LoopDisk:
    """Reads go page by page through a page cache that reads ahead."""

    def __init__(self, image_bytes: int) -> None:
        self.reads: list[DiskRead] = []
        self._kind: PlaceKind = "superblock"
        self._ahead = Readahead(-(-image_bytes // PAGE_BYTES), self._submit)

    def read(self, extent: Extent, kind: PlaceKind, *, repeated: bool) -> None:
        self._kind = kind
        start = extent.offset // DEVICE_BLOCK * DEVICE_BLOCK
        end = -(-(extent.offset + extent.length) // DEVICE_BLOCK) * DEVICE_BLOCK
        for page in range(start // PAGE_BYTES, -(-end // PAGE_BYTES)):
            self._ahead.read_page(page, end=min(end, (page + 1) * PAGE_BYTES))

    def _submit(self, page: int, count: int) -> None:
        offset, length = page * PAGE_BYTES, count * PAGE_BYTES
        self.reads.append(DiskRead(offset, length, self._kind, repeated=False))


class _Submit(Protocol):
    def __call__(self, page: int, count: int, /) -> None:
        """Read pages from the disk."""


class Readahead:
    """The page cache of one open file and its read-ahead (mm/filemap.c, mm/readahead.c).

    Names are the kernel's: a window of ``size`` pages from ``start``, of which the last
    ``async_size`` are read ahead; the page that opens those carries a marker, and reading it
    starts the next window.

    Args:
        file_pages: the file's length, in pages.
        submit: called with each run of pages that the disk has to read.
        max_pages: the largest window.
    """

    def __init__(
        self, file_pages: int, submit: _Submit, *, max_pages: int = READAHEAD_PAGES
    ) -> None:
        self._file_pages = file_pages
        self._submit = submit
        self._max = max_pages
        self._cached: set[int] = set()
        self._marked: set[int] = set()
        self._start = self._size = self._async_size = 0
        self._previous_page: int | None = None

    def read_page(self, index: int, *, end: int) -> None:
        """Read one page, or the part of it up to byte ``end`` of the file (filemap_read)."""
        if index not in self._cached:
            self._read_on_demand(index, marked=False)
        if index in self._marked:
            self._marked.discard(index)
            self._read_on_demand(index, marked=True)
        self._previous_page = end // PAGE_BYTES

    def _read_on_demand(self, index: int, *, marked: bool) -> None:
        """ondemand_readahead, for a request of one page."""
        if index == 0:
            self._open_window(index)
        elif index in (self._start + self._size - self._async_size, self._start + self._size):
            self._start += self._size
            self._size = max(self._size, self._next_size())
            self._async_size = self._size
        elif marked:
            # Another reader's stream went by: go on behind what is there.
            behind = index + 1
            while behind - index <= self._max and behind in self._cached:
                behind += 1
            if behind - index > self._max:
                return
            self._start = behind
            self._size = behind - index + 1
            self._size = self._next_size()
            self._async_size = self._size
        elif self._previous_page is not None and 0 <= index - self._previous_page <= 1:
            self._open_window(index)
        elif (history := self._count_history(index)) > 1:
            # Half a stream: what lies in the cache ahead of it is its trace.
            self._start = index
            self._size = min((2 * history if history >= index else history) + 1, self._max)
            self._async_size = 1
        else:
            self._read_pages(index, 1, ahead=0)
            return
        if index == self._start and self._size == self._async_size:
            more = self._next_size()
            if self._size + more <= self._max:
                self._async_size = more
                self._size += more
            else:
                self._size = self._max
                self._async_size = self._max // 2
        self._read_pages(self._start, self._size, ahead=self._async_size)

    def _open_window(self, index: int) -> None:
        # get_init_ra_size for one page: four of them, or two where the window is small.
        self._start = index
        self._size = 4 if self._max >= 32 else 2 if self._max >= 4 else self._max
        self._async_size = self._size - 1 if self._size > 1 else self._size

    def _next_size(self) -> int:
        """get_next_ra_size."""
        if self._size < self._max // 16:
            return 4 * self._size
        if self._size <= self._max // 2:
            return 2 * self._size
        return self._max

    def _count_history(self, index: int) -> int:
        """count_history_pages: how many pages right ahead of this one are there."""
        head = index - 1
        while index - 1 - head < self._max and head in self._cached:
            head -= 1
        return index - 1 - head

    def _read_pages(self, index: int, count: int, *, ahead: int) -> None:
        """page_cache_ra_unbounded: what is missing, in runs; the marker where ``ahead`` begins."""
        run = 0
        mark = index + count - ahead if ahead else -1
        for page in range(index, min(index + count, self._file_pages)):
            if page in self._cached:
                if run:
                    self._submit(page - run, run)
                run = 0
                continue
            self._cached.add(page)
            run += 1
            if page == mark:
                self._marked.add(page)
        if run:
            last = min(index + count, self._file_pages)
            self._submit(last - run, run)
