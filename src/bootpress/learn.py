# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes a sort list of traces: which files a boot reads, and in which order.

A boot is a sequence of first reads. Some of it is noise: a reader that walks everything, such as a
search for files, an indexer, a checksum of the medium or a read-ahead list, says nothing about what
a boot waits for. Noise is taken out of each trace, then the traces are merged.

Inodes and listings come in the order of the first looks at them, data in that of the first reads:
mounted directly, where the kernel keeps but eight metadata units, a boot looks up and reads in
quite another order. Debian 12, order learned of one boot and replayed on six others: 1 to 7 % fewer
reads than with the inodes in the order of the data, on average; a desktop's own boot: 9 %.

The order of several boots is the mean of each path's place in them. Places are counted by what all
boots have in common, so that a boot that goes on for longer does not pull its beginning forward.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import fsum
from typing import Literal

from bootpress.errors import UsageError
from bootpress.image import Image
from bootpress.imagemap import ImageMap, convert_reads
from bootpress.model import FileLayout
from bootpress.sortlist import PageRange, SortEntry, SortList
from bootpress.trace import PAGE_BYTES, Event, Trace

# A walk: at least so many first looks in so many directories, of each of which nearly all was
# looked at in short order. Three boots of Debian 12, a minimal one and a desktop: 405 such looks at
# most, in 16 directories (494 in 34, guessed without the image).
WALK_LOOKS = 1000
WALK_DIRECTORIES = 64
# Nearly all: this share of a directory, within so many looks to either side.
WALK_SHARE = 0.9
WALK_WINDOW = 400
# Other processes go on meanwhile, but a walk is fast: this share of the looks is its own, counted
# over so many to either side. (In a boot it is a half, but for bursts of some fifty.)
WALK_DENSITY = 0.75
WALK_NEAR = 64
# A directory of one or two says nothing.
WALK_SMALLEST = 3

# Reading in the order of the disk: at least so many files, each further on than the one before it
# but for a few, over a stretch so many times as long as the files themselves. (The boot of an image
# that was packed in its order reads on and on as well, but there is little in between.)
DISK_ORDER_FILES = 300
DISK_ORDER_STRAYS = 3
DISK_ORDER_SPREAD = 3

# A stream of the disk: reads that follow each other without a gap, over so many bytes and this
# share of the image.
STREAM_BYTES = 32 << 20
STREAM_SHARE = 0.1

# Directories that are looked up over this part of a boot and more come first, the smallest listings
# ahead: so as many as possible share a metadata unit, of which the kernel keeps eight. Debian 12,
# mounted directly, order learned of one boot and replayed on another: 102 to 112 units read where
# directories come in order of their first look-up, 61 to 62 with this (about the same from 0.2 to
# 0.35).
LASTING_SHARE = 0.25

# Reading past what nobody needs of a file costs as much as an access at this many bytes, of a CD:
# 110 ms at 3.6 MB/s, profiles/media/cd.toml.
ACCESS_BYTES = 396_000


@dataclass(frozen=True, slots=True)
class Noise:
    """A reader that walked everything.

    Attributes:
        kind: "walk": directory by directory. "disk order": files as they lie in the image, as a
            read-ahead list does. "stream": the disk itself.
        boot: when the trace was recorded.
        at_seconds: when it began, from the trace's begin.
        paths: how many paths it alone brought up; they are not in the list for its sake.
        directories: in how many directories.
        bytes_read: of the disk, where that is known, else 0.
        example: the first path, or "".
    """

    kind: Literal["walk", "disk order", "stream"]
    boot: str
    at_seconds: float
    paths: int
    directories: int
    bytes_read: int
    example: bytes


@dataclass(frozen=True, slots=True)
class LearnReport:
    """What became of the traces.

    Attributes:
        boots: traces.
        files: paths of the list whose data is read.
        metadata_only: paths of which only the inode or listing is.
        hot_bytes: of those files as stored, 0 where no image was given.
        seldom: paths left out, since fewer boots than asked for read them.
        missing: paths left out, since the image does not have them.
        noise: what was filtered, in order of time within each boot.
        last: files put at the end of the list, since little of each is read.
        fragments_guessed: files listed only for a tail-end in a fragment that was read: the disk
            does not tell which of them was needed.
        warnings: what to know about the list, in words.
    """

    boots: int
    files: int
    metadata_only: int
    hot_bytes: int
    seldom: int
    missing: int
    noise: tuple[Noise, ...]
    last: tuple[bytes, ...]
    fragments_guessed: int
    warnings: tuple[str, ...]


@dataclass(slots=True)
class _Boot:
    """What one boot needed, in the order of its events."""

    trace: Trace
    looks: dict[bytes, int]  # path → its first event
    reads: dict[bytes, int]  # path → its first event of pages
    pages: dict[bytes, set[int]]
    listed: dict[bytes, tuple[int, int]]  # path → the first and last event of its listing
    late: frozenset[bytes] = frozenset()  # whose place in this boot says nothing
    of_disk: bool = False  # made of reads of the disk: a fragment's files come in its order

    def in_order(self, first: Mapping[bytes, int], kept: Container[bytes]) -> list[bytes]:
        """Return the paths of ``looks`` or ``reads`` in their order."""
        return sorted(
            (path for path in first if path in kept),
            key=lambda path: (path in self.late, first[path]),
        )


def learn_order(
    traces: Sequence[Trace],
    *,
    image: Image | None,
    min_boots: int = 1,
    date: str | None = None,
    tool: str = "bootpress",
) -> tuple[SortList, LearnReport]:
    """Return the order in which boots read, and what was left out of it.

    Args:
        traces: at least one.
        image: the image that was traced, or another of the same tree. It tells files from
            directories, how much of a file is not read, and how much of a directory a walk
            covered; None: guess. Traces of the disk alone need the image that was traced.
        min_boots: leave out what fewer boots than this read.
        date: for the list's header; None: the day of the newest trace.
        tool: for the header: name and version.

    Returns:
        The list does not depend on the order of ``traces``. Its header names kernel, image, number
        of boots, date and tool.

    Raises:
        UsageError: no traces, more boots asked for than there are, or traces of the disk without
            their image.
    """
    if not traces:
        raise UsageError("no traces to learn from", hint="bootpress trace records them")
    if not 1 <= min_boots <= len(traces):
        raise UsageError(
            f"files of at least {min_boots} boots: there are {len(traces)}",
            hint="lower --min-boots, or record more boots",
        )
    image_map = None if image is None else ImageMap(image)
    # In an order of their own, so that nothing depends on the command line's.
    ordered = sorted(
        traces, key=lambda trace: (trace.created, trace.image_digest, len(trace.events))
    )
    noise: list[Noise] = []
    guessed: set[bytes] = set()
    boots = [_read_trace(trace, image_map, noise, guessed) for trace in ordered]
    sizes = _count_children(boots, image_map)
    for boot in boots:
        noise += _filter_walks(boot, sizes, image_map)
        if image_map is not None:
            noise += _filter_disk_order(boot, image_map)

    times = Counter(path for boot in boots for path in boot.looks)
    kept = {path for path, count in times.items() if count >= min_boots}
    seldom = len(times) - len(kept)
    missing = 0
    if image_map is not None:
        present = {path for path in kept if image_map.layout_of(path) is not None}
        missing, kept = len(kept) - len(present), present
    pages = _merge_pages(boots, kept, image_map)
    last = _find_partly_read(pages, image_map)
    looks = _merge_orders([boot.in_order(boot.looks, kept) for boot in boots])
    looks = list(dict.fromkeys([*_order_lasting(looks, boots, image_map), *looks]))
    reads = _merge_orders([boot.in_order(boot.reads, pages.keys()) for boot in boots])
    reads.sort(key=lambda path: path in last)
    joined = _join_orders(looks, reads)
    entries = tuple(
        SortEntry(
            path,
            rank,
            pages=pages[path] if of_data else (),
            metadata_only=not of_data and _has_data(path, boots, image_map),
        )
        for rank, (path, of_data) in enumerate(joined, -len(joined))
    )
    newest = ordered[-1]
    kernels = sorted({trace.kernel for trace in ordered if trace.kernel})
    images = sorted({trace.image_digest for trace in ordered})
    sort_list = SortList(
        entries=entries,
        provenance=(
            ("kernel", ", ".join(kernels) or "unknown"),
            ("image", ", ".join(images)),
            ("boots", str(len(ordered))),
            ("date", date or newest.created[:10]),
            ("tool", tool),
        ),
    )
    report = LearnReport(
        boots=len(ordered),
        files=len(reads),
        metadata_only=len(looks) - len(reads),
        hot_bytes=_sum_stored(entries, image_map),
        seldom=seldom,
        missing=missing,
        noise=tuple(noise),
        last=tuple(path for path in reads if path in last),
        fragments_guessed=len(guessed & kept),
        warnings=_find_warnings(ordered, image_map, guessed & kept),
    )
    return sort_list, report


def _find_warnings(
    traces: Sequence[Trace], image_map: ImageMap | None, guessed: set[bytes]
) -> tuple[str, ...]:
    warnings: list[str] = []
    if len({trace.block_size for trace in traces}) > 1:
        warnings.append("the traces are of images with different block sizes: pages are merged")
    if not any(event.kind in {"inode", "listing"} for trace in traces for event in trace.events):
        warnings.append(
            "no trace recorded metadata: directories and symlinks are only in the list where files "
            "below them are"
        )
    if guessed:
        warnings.append(
            f"{len(guessed)} files are listed only for sharing a fragment with one that was read"
        )
    if image_map is None:
        warnings.append(
            "without the image, how much of a directory was walked and of a file left unread is "
            "not known"
        )
    return tuple(warnings)


# --- one trace ----------------------------------------------------------------------------------


def _read_trace(
    trace: Trace, image_map: ImageMap | None, noise: list[Noise], guessed: set[bytes]
) -> _Boot:
    of_disk = all(event.kind == "read" for event in trace.events)
    if of_disk:
        if image_map is None:
            raise UsageError(
                f"the trace of {trace.image} ({trace.created}) is the disk's: it needs its image",
                hint="name the image that was traced with --image",
            )
        trace, streams = _filter_streams(trace)
        noise += streams
        trace = convert_reads(trace, image_map)
        guessed |= _find_guessed(trace, image_map)
    boot = _Boot(trace, {}, {}, {}, {}, of_disk=of_disk)
    for number, event in enumerate(trace.events):
        if event.kind == "read":
            continue
        path = trace.path_of(event)
        boot.looks.setdefault(path, number)
        if event.kind == "pages":
            boot.reads.setdefault(path, number)
            boot.pages.setdefault(path, set()).update(
                range(event.first, event.first + event.length)
            )
        elif event.kind == "listing":
            boot.listed[path] = (boot.listed.get(path, (number, number))[0], number)
    return boot


def _find_guessed(trace: Trace, image_map: ImageMap) -> set[bytes]:
    """Return the files that nothing but a shared fragment speaks for."""
    alone: dict[int, list[bytes]] = {}
    certain: set[bytes] = set()
    for event in trace.events:
        if event.kind != "pages":
            continue
        path = trace.path_of(event)
        layout = image_map.layout_of(path)
        if layout is None or layout.fragment is None:
            continue
        if event.first < image_map.tail_pages(path)[0]:
            certain.add(path)
        else:
            alone.setdefault(layout.fragment, []).append(path)
    return {
        path
        for paths in alone.values()
        if len(set(paths)) > 1
        for path in paths
        if path not in certain
    }


# --- noise --------------------------------------------------------------------------------------


def _filter_streams(trace: Trace) -> tuple[Trace, list[Noise]]:
    """Leave out reads of the disk that go on and on: a checksum, or a stream into memory."""
    least = max(STREAM_BYTES, int(trace.image_bytes * STREAM_SHARE))
    noise: list[Noise] = []
    kept: list[Event] = []
    run: list[Event] = []

    def close() -> None:
        total = sum(event.length for event in run)
        if total >= least:
            noise.append(Noise("stream", trace.created, run[0].at / 1e6, 0, 0, total, b""))
        else:
            kept.extend(run)
        run.clear()

    for event in trace.events:
        if run and event.first != run[-1].first + run[-1].length:
            close()
        run.append(event)
    if run:
        close()
    return replace(trace, events=tuple(kept)), noise


def _count_children(
    boots: Iterable[_Boot], image_map: ImageMap | None
) -> dict[tuple[bytes, bool], int]:
    """Return how many directories, and how many others, each directory holds.

    Without an image these are all that any trace has seen.
    """
    sizes: Counter[tuple[bytes, bool]] = Counter()
    if image_map is not None:
        for path in image_map.paths:
            layout = image_map.layout_of(path)
            if path and layout is not None:
                sizes[_parent(path), layout.type == "directory"] += 1
        return sizes
    seen: set[bytes] = set()
    listed: set[bytes] = set()
    for boot in boots:
        seen.update(boot.looks)
        listed.update(boot.listed)
    for path in seen:
        if path:
            sizes[_parent(path), path in listed] += 1
    return sizes


def _filter_walks(
    boot: _Boot, sizes: Mapping[tuple[bytes, bool], int], image_map: ImageMap | None
) -> list[Noise]:
    """Take out what readers looked at that went through whole subtrees, one path after the other.

    Such a reader shows by how much of each directory it covers in short order: look-ups of a boot
    pick from many directories, and read but a few whole.
    """
    looks = sorted((path for path in boot.looks if path), key=boot.looks.__getitem__)
    keys = [(_parent(path), _is_listed(path, (boot,), image_map)) for path in looks]
    places: dict[tuple[bytes, bool], list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    swept = [False] * len(looks)
    for place, key in enumerate(keys):
        size = sizes.get(key, 0)
        if size < WALK_SMALLEST:
            continue
        own = places[key]
        before = bisect_left(own, place - WALK_WINDOW)
        near = bisect_right(own, place + WALK_WINDOW) - before
        # Of what was left of it: what others had looked at the walk finds in the caches. (How much
        # is left only the image tells.)
        left = size if image_map is None else size - before
        swept[place] = near >= WALK_SHARE * min(left, WALK_WINDOW)
    noise: list[Noise] = []
    for begin, end in _find_dense(swept):
        run = [place for place in range(begin, end) if swept[place]]
        directories = {keys[place][0] for place in run}
        if len(run) < WALK_LOOKS or len(directories) < WALK_DIRECTORIES:
            continue
        noise.append(_drop_walk(boot, [looks[place] for place in run], len(directories)))
    return noise


def _drop_walk(boot: _Boot, walked: Sequence[bytes], directories: int) -> Noise:
    """Take a walk out of a boot, but for what others read as well.

    A walk that reads what it finds hides who else needed it. One that only looks does not: what was
    read all the same stays.
    """
    begin, end = boot.looks[walked[0]], boot.looks[walked[-1]]
    files = [path for path in walked if path not in boot.listed]
    at_once = sum(begin <= boot.reads.get(path, -1) <= end for path in files)
    reads_all = 2 * at_once > len(files)
    dropped = [path for path in walked if reads_all or path not in boot.reads]
    at = boot.trace.events[begin].at / 1e6
    for path in dropped:
        del boot.looks[path]
        boot.reads.pop(path, None)
        boot.pages.pop(path, None)
    for path in walked:
        # Who else looked at it before the first read does not show.
        if path in boot.looks:
            boot.looks[path] = boot.reads[path]
    return Noise("walk", boot.trace.created, at, len(dropped), directories, 0, walked[0])


def _find_dense(swept: Sequence[bool]) -> list[tuple[int, int]]:
    """Return the stretches (begin, end) in which most looks are a walk's; WALK_DENSITY."""
    total = [0, *accumulate(swept)]
    stretches: list[tuple[int, int]] = []
    for place in range(len(swept)):
        low, high = max(place - WALK_NEAR, 0), min(place + WALK_NEAR + 1, len(swept))
        if total[high] - total[low] < WALK_DENSITY * (high - low):
            continue
        if stretches and stretches[-1][1] == place:
            stretches[-1] = (stretches[-1][0], place + 1)
        else:
            stretches.append((place, place + 1))
    return stretches


def _filter_disk_order(boot: _Boot, image_map: ImageMap) -> list[Noise]:
    """Find files that were read as they lie on the disk; their order then is the disk's.

    They stay in the list, since a read-ahead list names what a boot needs, but behind all others.
    """
    if boot.of_disk or boot.trace.image_bytes != image_map.bytes_used:
        return []
    files: list[tuple[int, int, bytes]] = []
    for path in sorted(boot.reads, key=boot.reads.__getitem__):
        layout = image_map.layout_of(path)
        if layout is not None and (place := _place_of(layout)) is not None:
            files.append((*place, path))
    noise: list[Noise] = []
    for run in _find_ascents(files):
        own = sum(_stored_bytes(image_map, path) for _, _, path in run)
        span = run[-1][0] - run[0][0]
        if len(run) < DISK_ORDER_FILES or span < DISK_ORDER_SPREAD * own:
            continue
        paths = [path for _, _, path in run]
        boot.late = boot.late | frozenset(paths)
        at = boot.trace.events[boot.reads[paths[0]]].at / 1e6
        directories = len({_parent(path) for path in paths})
        noise.append(
            Noise("disk order", boot.trace.created, at, len(paths), directories, own, paths[0])
        )
    return noise


def _find_ascents(files: Sequence[tuple[int, int, bytes]]) -> list[list[tuple[int, int, bytes]]]:
    """Split first reads where they stop going up; a few strays in between do not count."""
    runs: list[list[tuple[int, int, bytes]]] = []
    strays = 0
    for file in files:
        if runs and file[:2] >= runs[-1][-1][:2]:
            runs[-1].append(file)
            strays = 0
        elif runs and strays < DISK_ORDER_STRAYS:
            strays += 1
        else:
            runs.append([file])
            strays = 0
    return runs


# --- all traces -----------------------------------------------------------------------------------


def _merge_orders(orders: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Return all paths by their mean place; ties by name.

    A place is counted in paths that all boots share: one that lies between the 7th and the 8th of
    these has a place between 7 and 8, in equal steps.
    """
    shared = set(orders[0]).intersection(*orders[1:])
    places: dict[bytes, list[float]] = {}
    for order in orders:
        anchors = [i for i, path in enumerate(order) if path in shared]
        bounds = [-1, *anchors, len(order)]
        for number, (low, high) in enumerate(pairwise(bounds)):
            for i in range(low + 1, high):
                places.setdefault(order[i], []).append(number + (i - low) / (high - low))
            if high < len(order):
                places.setdefault(order[high], []).append(number + 1.0)
    # fsum rounds once, so the mean does not depend on the order of the boots either.
    return sorted(places, key=lambda path: (fsum(places[path]) / len(places[path]), path))


def _order_lasting(
    looks: Iterable[bytes], boots: Sequence[_Boot], image_map: ImageMap | None
) -> list[bytes]:
    """Return the directories that are looked up all along, the smallest ahead; LASTING_SHARE."""
    lasting = [
        path
        for path in looks
        if _is_listed(path, boots, image_map) and _mean_span(path, boots) > LASTING_SHARE
    ]
    # Sorting is stable: equals, and all where no image is known, stay in order of the first look.
    if image_map is not None:
        lasting.sort(key=image_map.listing_bytes)
    return lasting


def _mean_span(path: bytes, boots: Iterable[_Boot]) -> float:
    """Return over which part of the boots that look a directory up they do so."""
    spans = [
        (boot.listed[path][1] - boot.listed[path][0]) / len(boot.trace.events)
        for boot in boots
        if path in boot.listed
    ]
    return fsum(spans) / len(spans) if spans else 0.0


def _join_orders(looks: Sequence[bytes], reads: Sequence[bytes]) -> list[tuple[bytes, bool]]:
    """Return the shortest list that has inodes in the one order and data in the other.

    Args:
        looks: each path once.
        reads: some of them in another order, each once.

    Returns:
        (path, whether of data): of data only, for a path whose data can come as early as its inode.
    """
    joined: list[tuple[bytes, bool]] = []
    named: set[bytes] = set()
    left = list(reversed(reads))
    for path in looks:
        named.add(path)
        if not left or left[-1] != path:
            joined.append((path, False))
        while left and left[-1] in named:
            joined.append((left.pop(), True))
    return joined


def _merge_pages(
    boots: Sequence[_Boot], kept: set[bytes], image_map: ImageMap | None
) -> dict[bytes, tuple[PageRange, ...]]:
    """Return which pages were read of each file."""
    merged: dict[bytes, set[int]] = {}
    for boot in boots:
        for path, pages in boot.pages.items():
            if path in kept and _has_data(path, boots, image_map):
                merged.setdefault(path, set()).update(pages)
    return {path: _to_ranges(sorted(pages)) for path, pages in merged.items()}


def _to_ranges(pages: Sequence[int]) -> tuple[PageRange, ...]:
    ranges: list[PageRange] = []
    for page in pages:
        if ranges and ranges[-1][1] == page - 1:
            ranges[-1] = (ranges[-1][0], page)
        else:
            ranges.append((page, page))
    return tuple(ranges)


def _find_partly_read(
    pages: Mapping[bytes, tuple[PageRange, ...]], image_map: ImageMap | None
) -> frozenset[bytes]:
    """Return the files that would fill the hot region with what nobody reads.

    A stream of the region reads past that; left out of it, each part that is read costs an access.
    The stream is the worse choice where it reads more than ACCESS_BYTES for each part. (Without a
    stream it hardly matters: the hardware data base of udev, 25 parts of 2.4 MB, costs one access
    more at the end of the list than in its place.)
    """
    if image_map is None:
        return frozenset()
    found: set[bytes] = set()
    pages_a_block = image_map.block_size // PAGE_BYTES
    for path, ranges in pages.items():
        layout = image_map.layout_of(path)
        if layout is None or not layout.blocks:
            continue
        read = {
            block
            for first, end in ranges
            for block in range(first // pages_a_block, end // pages_a_block + 1)
        }
        parts = sum(block - 1 not in read for block in read)
        unread = sum(block.length for i, block in enumerate(layout.blocks) if i not in read)
        if unread > parts * ACCESS_BYTES:
            found.add(path)
    return frozenset(found)


def _sum_stored(entries: Iterable[SortEntry], image_map: ImageMap | None) -> int:
    if image_map is None:
        return 0
    return sum(_stored_bytes(image_map, entry.path) for entry in entries if entry.pages)


# --- small things ---------------------------------------------------------------------------------


def _parent(path: bytes) -> bytes:
    return path.rpartition(b"/")[0]


def _is_listed(path: bytes, boots: Iterable[_Boot], image_map: ImageMap | None) -> bool:
    """Return whether a path is a directory; without an image, one whose listing was read."""
    layout = None if image_map is None else image_map.layout_of(path)
    if layout is not None:
        return layout.type == "directory"
    return any(path in boot.listed for boot in boots)


def _has_data(path: bytes, boots: Iterable[_Boot], image_map: ImageMap | None) -> bool:
    """Return whether a path is a regular file; without an image, whether it may be one.

    Others have no data to order, and no pages worth noting: a symlink's target is in its inode.
    """
    layout = None if image_map is None else image_map.layout_of(path)
    return not _is_listed(path, boots, None) if layout is None else layout.type == "file"


def _place_of(layout: FileLayout) -> tuple[int, int] | None:
    """Return where a file's data begins: byte of the image, and in the fragment there."""
    for block in layout.blocks:
        if block.length:
            return block.offset, 0
    if layout.fragment_extent is not None and layout.tail is not None:
        return layout.fragment_extent.offset, layout.tail.offset
    return None


def _stored_bytes(image_map: ImageMap, path: bytes) -> int:
    """Return the bytes of a file's blocks as stored, and of its fragment the tail-end's share."""
    layout = image_map.layout_of(path)
    if layout is None:
        return 0
    total = sum(block.length for block in layout.blocks)
    if layout.tail is not None and layout.fragment_extent is not None:
        # As if the fragment were full, which all but the last of a region nearly are.
        total += layout.fragment_extent.length * layout.tail.length // image_map.block_size
    return total
