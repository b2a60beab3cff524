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

Others read the disk as well. Of these, udev's probe of every disk is modelled, where the trace
shows that udev runs. Not modelled: the firmware and the kernel's scan for partitions (a few
sectors), two processes at once, and memory too small for the page cache.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
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
# A request that is larger than that is read at once, up to the queue's max_sectors_kb: 1280.
REQUEST_PAGES = 320
# What udev's blkid reads of each disk: offset, from the end where below 0, and length. libblkid
# 2.38.1, the reads of "blkid -p" on a SquashFS image, which it declares random.
PROBES: tuple[tuple[int, int], ...] = (
    *((-122880, 64), (-8192, 256), (0, 256), (4096, 256), (-512, 512), (-131584, 512)),
    *((-1024, 48), (-32256, 24), (-130560, 24), (-131072, 24), (-204288, 24), (-302592, 24)),
    *((-345600, 24), (-376320, 24), (-466432, 24), (-498688, 24), (-507392, 24), (-486912, 24)),
    *((-1580544, 24), (-5632, 4), (4096, 1024), (0, 1024), (-4096, 104), (-4096, 1392)),
    *((1024, 1024), (16384, 512), (32768, 512), (65536, 512), (131072, 512), (262144, 512)),
    *((524288, 512), (1048576, 512), (2097152, 512), (4194304, 512), (1048576, 1024)),
    *((3072, 1024), (7168, 1024), (15360, 1024), (31744, 1024), (64512, 1024), (0, 262144)),
    *((262144, 262144), (-778240, 262144), (-516096, 262144), (2097152, 1024)),
)
# It does so about when it first reads this.
PROBE_SIGN = b"udev/hwdb.bin"
# squashfs_fs.h: the common part of a record, and a file's block list in blocks to one index slot.
BASE_INODE_BYTES = 16
META_INDEXES = 2048
# How many units a report names that were read most often.
HOTTEST = 12

ReadKind = PlaceKind | Literal["others"]


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
    kind: ReadKind
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
    disk: _Disk = (
        _LoopDisk(image_map.image_bytes) if chosen == "loop" else _DirectDisk(image_map.image_bytes)
    )
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

    def probe(self) -> None:
        """Read what udev does to tell what the disk holds."""


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
        self._probed = False

    def mount(self) -> None:
        """Read what a mount reads ahead of the root's inode."""
        for kind, extent in self._map.mount_reads():
            self._disk.read(extent, kind, repeated=False)

    def replay(self, event: Event, path: bytes) -> bool:
        """Do what an event of the guest tells; False: the image has no such path."""
        layout = self._map.layout_of(path)
        if layout is None:
            return False
        if not self._probed and event.kind == "pages" and path.endswith(PROBE_SIGN):
            self._probed = True
            self._disk.probe()
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
                if block == len(layout.blocks) - 1 > first // self._pages_a_block:
                    self._read_short_block_again(name, layout, block)
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

    def _read_short_block_again(self, name: bytes, layout: FileLayout, block: int) -> None:
        """Linux 6.1 reads a short last block twice if it comes behind others in one read-ahead.

        squashfs_readahead expects of every block what it expects of the first, so it discards what
        a short one gives; the page is then read by itself. (In 12 files of 12 in a recorded boot.)
        """
        if layout.fragment is None and self._map.size_of(name) % self._map.block_size:
            self._read_block(name, layout, block)

    def _read_fragment(self, layout: FileLayout) -> None:
        extent = layout.fragment_extent
        if extent is None or layout.fragment is None or self._fragments.get(extent.offset):
            return
        repeated = self._count_load("fragments", layout.fragment)
        self._disk.read(extent, "fragments", repeated=repeated)


# --- the disk, mounted directly -----------------------------------------------------------------


class _DirectDisk:
    """Each read of squashfs is one of the disk, in device blocks (block.c, squashfs_bio_read)."""

    def __init__(self, image_bytes: int) -> None:
        self.reads: list[DiskRead] = []
        self._image_bytes = image_bytes

    def read(self, extent: Extent, kind: PlaceKind, *, repeated: bool) -> None:
        start, end = _round_out(extent, DEVICE_BLOCK)
        self.reads.append(DiskRead(start, end - start, kind, repeated))

    def probe(self) -> None:
        # Others read the disk through its page cache, which squashfs goes past.
        cache = PageCache(_count_pages(self._image_bytes), self._submit)
        _probe(cache, self._image_bytes)

    def _submit(self, page: int, count: int) -> None:
        self.reads.append(DiskRead(page * PAGE_BYTES, count * PAGE_BYTES, "others", False))


# --- the disk behind a loop device --------------------------------------------------------------


class _LoopDisk:
    """Reads go page by page through the page cache of what the loop device is backed by."""

    def __init__(self, image_bytes: int) -> None:
        self.reads: list[DiskRead] = []
        self._image_bytes = image_bytes
        self._kind: ReadKind = "superblock"
        self._cache = PageCache(_count_pages(image_bytes), self._submit)
        self._backing = OpenFile(self._cache)

    def read(self, extent: Extent, kind: PlaceKind, *, repeated: bool) -> None:
        self._kind = kind
        start, end = _round_out(extent, DEVICE_BLOCK)
        self._read_backing(start, end)

    def probe(self) -> None:
        self._kind = "others"
        _probe(self._cache, self._image_bytes)
        # Then the loop device itself, which has a page cache and read-ahead of its own.
        loop = PageCache(
            _count_pages(self._image_bytes),
            lambda page, count: self._read_backing(page * PAGE_BYTES, (page + count) * PAGE_BYTES),
        )
        _probe(loop, self._image_bytes)

    def _read_backing(self, start: int, end: int) -> None:
        while start < end:
            page_end = min(end, (start // PAGE_BYTES + 1) * PAGE_BYTES)
            self._backing.read(start, page_end - start)
            start = page_end

    def _submit(self, page: int, count: int) -> None:
        self.reads.append(DiskRead(page * PAGE_BYTES, count * PAGE_BYTES, self._kind, False))


def _round_out(extent: Extent, grain: int) -> tuple[int, int]:
    end = extent.offset + extent.length
    return extent.offset // grain * grain, -(-end // grain) * grain


def _count_pages(length: int) -> int:
    return -(-length // PAGE_BYTES)


def _probe(cache: "PageCache", image_bytes: int) -> None:
    file = OpenFile(cache, is_random=True)
    for offset, length in PROBES:
        start = offset if offset >= 0 else image_bytes + offset
        if 0 <= start < image_bytes:
            file.read(start, min(length, image_bytes - start))


class PageCache:
    """The pages of one file that were read, and the markers of read-ahead on them.

    Args:
        file_pages: the file's length, in pages.
        submit: called with each run of pages that has to be read: (first page, how many).
    """

    def __init__(self, file_pages: int, submit: Callable[[int, int], None]) -> None:
        self._file_pages = file_pages
        self._submit = submit
        self._cached: set[int] = set()
        self._marked: set[int] = set()

    def __contains__(self, page: int) -> bool:
        return page in self._cached

    def has_marker(self, page: int) -> bool:
        """Return whether reading this page starts the next window."""
        return page in self._marked

    def take_marker(self, page: int) -> None:
        """Remove a page's marker."""
        self._marked.discard(page)

    def count_ahead(self, page: int, limit: int) -> int:
        """Return how many pages right ahead of this one are cached, ``limit`` at most."""
        count = 0
        while count < limit and page - 1 - count in self._cached:
            count += 1
        return count

    def fill(self, page: int, count: int, *, ahead: int) -> None:
        """Read what is missing of a window, in runs; page_cache_ra_unbounded.

        Args:
            page: the window's first.
            count: its length; what lies past the file's end is left out.
            ahead: how many of its last pages are read ahead: the first of these gets the marker,
                if it was missing.
        """
        run = 0
        mark = page + count - ahead if ahead else -1
        end = min(page + count, self._file_pages)
        for number in range(page, end):
            if number in self._cached:
                if run:
                    self._submit(number - run, run)
                run = 0
                continue
            self._cached.add(number)
            run += 1
            if number == mark:
                self._marked.add(number)
        if run:
            self._submit(end - run, run)


class OpenFile:
    """One open file over a page cache, with its read-ahead (mm/filemap.c, mm/readahead.c).

    Names are the kernel's: a window of ``size`` pages from ``start``, of which the last
    ``async_size`` are read ahead; the page that opens those carries a marker, and reading it
    starts the next window.

    Args:
        cache: the file's pages, whoever read them.
        is_random: posix_fadvise(POSIX_FADV_RANDOM): reads no more than is asked for, but for a
            marker that another open file left.
    """

    def __init__(self, cache: PageCache, *, is_random: bool = False) -> None:
        self._cache = cache
        self._is_random = is_random
        self._start = self._size = self._async_size = 0
        self._previous_page: int | None = None

    def read(self, offset: int, length: int) -> None:
        """Read bytes of the file (filemap_read). REQUIRES: they lie in it."""
        end = offset + length
        last = _count_pages(end)
        page = offset // PAGE_BYTES
        while page < last:
            if page not in self._cache:
                self._read_ahead(page, last - page, marked=False)
            if self._cache.has_marker(page):
                self._cache.take_marker(page)
                self._read_ahead(page, last - page, marked=True)
            page += 1
            self._previous_page = min(end, page * PAGE_BYTES) // PAGE_BYTES

    def _read_ahead(self, page: int, wanted: int, *, marked: bool) -> None:
        """ondemand_readahead; page_cache_sync_ra for a random reader."""
        if self._is_random and not marked:
            self._cache.fill(page, wanted, ahead=0)
            return
        limit = READAHEAD_PAGES
        if wanted > limit:
            limit = min(wanted, REQUEST_PAGES)
        if page == 0:
            self._open_window(page, wanted, limit)
        elif page in (self._start + self._size - self._async_size, self._start + self._size):
            self._start += self._size
            self._size = max(self._size, self._next_size(limit))
            self._async_size = self._size
        elif marked:
            # Another reader's window: go on behind what is cached.
            behind = page + 1
            while behind - page <= limit and behind in self._cache:
                behind += 1
            if behind - page > limit:
                return
            self._start = behind
            self._size = behind - page + wanted
            self._size = self._next_size(limit)
            self._async_size = self._size
        elif wanted > limit or (
            self._previous_page is not None and 0 <= page - self._previous_page <= 1
        ):
            self._open_window(page, wanted, limit)
        elif (history := self._cache.count_ahead(page, limit)) > wanted:
            # Half a stream: what lies in the cache ahead of it is its trace.
            self._start = page
            self._size = min((2 * history if history >= page else history) + wanted, limit)
            self._async_size = 1
        else:
            self._cache.fill(page, wanted, ahead=0)
            return
        if page == self._start and self._size == self._async_size:
            more = self._next_size(limit)
            if self._size + more <= limit:
                self._async_size = more
                self._size += more
            else:
                self._size = limit
                self._async_size = limit // 2
        self._cache.fill(self._start, self._size, ahead=self._async_size)

    def _open_window(self, page: int, wanted: int, limit: int) -> None:
        """get_init_ra_size."""
        size = 1 << (wanted - 1).bit_length()
        if size <= limit // 32:
            size *= 4
        elif size <= limit // 4:
            size *= 2
        else:
            size = limit
        self._start = page
        self._size = size
        self._async_size = size - wanted if size > wanted else size

    def _next_size(self, limit: int) -> int:
        """get_next_ra_size."""
        if self._size < limit // 16:
            return 4 * self._size
        if self._size <= limit // 2:
            return 2 * self._size
        return limit
