# SPDX-License-Identifier: GPL-2.0-or-later
"""The values that go in and come out: options, attributes, extents, reports.

Names inside an image are bytes. Here they are ``str`` in UTF-8 with ``surrogateescape``, whatever
the locale, so any name survives the way to JSON and back.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from bootpress.errors import UsageError

AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Codec = Literal["gzip", "xz", "lzo", "lz4", "zstd", "none"]
ColdOrder = Literal["similarity", "path", "gathered"]
SortStyle = Literal["auto", "bootpress", "mksquashfs", "gensquashfs"]

CODECS: tuple[str, ...] = ("gzip", "xz", "lzo", "lz4", "zstd", "none")
COLD_ORDERS: tuple[str, ...] = ("similarity", "path", "gathered")
SORT_STYLES: tuple[str, ...] = ("auto", "bootpress", "mksquashfs", "gensquashfs")

# The kernel's bounds (fs/squashfs/squashfs_fs.h: SQUASHFS_FILE_MAX_SIZE is 1 MiB; a mount refuses
# a block smaller than a page).
SMALLEST_BLOCK = 4096
LARGEST_BLOCK = 1 << 20

# Content is read in pieces of this size: one crossing into the core each, whole blocks of any size.
CHUNK_BYTES = 4 << 20

# (stage, done bytes, total bytes or 0, done files, total files or 0), about ten times a second.
# What it raises stops the work.
Monitor = Callable[[str, int, int, int, int], None]


def encode_path(path: AnyPath) -> bytes:
    """Return a path inside an image as the core wants it: relative to the root, the root ``b""``.

    Leading, trailing and doubled slashes and ``.`` are dropped; ``..`` is a name like any other
    (no image may hold it), so nothing climbs.
    """
    raw = os.fspath(path)
    name = raw.encode("utf-8", "surrogateescape") if isinstance(raw, str) else raw
    return b"/".join(part for part in name.split(b"/") if part not in {b"", b"."})


def decode_path(path: bytes) -> str:
    """Return a name's bytes as ``str``; bytes that are not UTF-8 become surrogate escapes."""
    return path.decode("utf-8", "surrogateescape")


def escape_name(name: bytes) -> str:
    r"""Return a name that stays on one line and leaves a terminal alone.

    Printable UTF-8 stays; a backslash, tab and newline become ``\\``, ``\t``, ``\n``, and every
    other byte ``\xNN``. The inverse is ``sortlist.unescape_name``.
    """
    text = name.decode("utf-8", "surrogateescape")
    if text.isprintable() and "\\" not in text:
        return text
    short = {"\\": "\\\\", "\t": "\\t", "\n": "\\n"}
    return "".join(
        short.get(char)
        or (
            char
            if char.isprintable()
            else "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))
        )
        for char in text
    )


@dataclass(frozen=True, slots=True)
class Extent:
    """A run of bytes: ``offset`` from the image's start unless said otherwise, and ``length``."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Stat:
    """One inode's attributes.

    Attributes:
        type: "directory", "file", "symlink", "block device", "char device", "fifo", "socket".
        mode: permission bits, 0 to 0o7777.
        uid: owner, 32 bits.
        gid: group, 32 bits.
        links: names that lead here; for a directory, 2 and its subdirectories.
        size: bytes of a file; of a symlink, its target's length; else 0.
        mtime: seconds since 1970, 0 to 2**32 - 1 inside an image.
        device: (major, minor) of a device node, else None.
        target: a symlink's target, else None.
        xattrs: extended attributes by full name ("user.note"), values as stored.
    """

    type: str
    mode: int
    uid: int
    gid: int
    links: int
    size: int
    mtime: int
    device: tuple[int, int] | None
    target: str | None
    xattrs: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class FileLayout:
    """Where one inode lies in its image. Extents are bytes of the image unless said otherwise.

    Attributes:
        path: the name it was asked for by.
        type: as in ``Stat.type``.
        inode: the number that ``stat`` shows on the mounted image.
        reference: where the inode stands in the inode table: unit offset << 16 | offset in it.
        inode_extent: the metadata unit or units that hold the inode.
        listing_extent: directories: the units that hold the listing, else None.
        listing_reference: where the listing begins in the directory table, as ``reference``; None
            where there is none, as in an empty directory.
        listing_bytes: of the listing, uncompressed, without the three that its size field adds; 0
            where there is none.
        blocks: one per data block, in file order, as stored; length 0 is a hole.
        fragment: index of the fragment that holds the tail-end, else None.
        fragment_extent: the whole fragment block as stored, else None.
        tail: the tail-end inside the decompressed fragment, else None.
    """

    path: str
    type: str
    inode: int
    reference: int
    inode_extent: Extent
    listing_extent: Extent | None
    listing_reference: int | None
    listing_bytes: int
    blocks: tuple[Extent, ...]
    fragment: int | None
    fragment_extent: Extent | None
    tail: Extent | None


@dataclass(frozen=True, slots=True)
class Difference:
    """One way in which two trees differ.

    Attributes:
        path: relative to the root, which is "".
        what: "only in a", "only in b", "type", "mode", "owner", "mtime", "size", "content",
            "target", "device", "xattrs", "hard links".
        a: what stands in the first tree, as text; empty where there is nothing to show.
        b: the same for the second.
    """

    path: str
    what: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Loss:
    """What could not be kept, told once with a count.

    Attributes:
        kind: "POSIX ACL", "time after 2106", …
        count: files concerned.
        example: the first path.
    """

    kind: str
    count: int
    example: str


@dataclass(frozen=True, slots=True)
class PackOptions:
    """How to pack. The values are checked on construction.

    Attributes:
        codec: "gzip" (libdeflate), "xz", "lzo", "lz4" (level 2 and up: HC), "zstd", "none".
        level: in the codec's own scale; None is its standard.
        block_size: bytes, a power of two from 4 KiB to 1 MiB.
        bcj: xz only: a filter's name, "auto" (judged block by block) or "none"; None is "auto"
            for xz and "none" elsewhere.
        cold_order: order of what no sort list names: "similarity", "path" or "gathered"; None:
            by similarity, or by path where nothing is compressed and likeness gains nothing.
        fragments: put tail-ends of several files into one block.
        dedupe: store equal files once.
        xattrs: keep extended attributes.
        excludes: patterns of names to leave out; one with a slash matches the path from the root.
        owner: (uid, gid) for everything, or None to keep each one's own.
        source_date_epoch: seconds since 1970: the image's own time, and no file is newer. None:
            the image's time is the newest file's, so the same tree still gives the same bytes.
        allow_stale: accept sort lists that name paths the tree does not have.
        jobs: worker threads; 0: one for each CPU this process may use.
        memory: bytes of blocks in flight; 0: the core's default.
        verify: read the image back before it gets its name.
    """

    codec: str = "zstd"
    level: int | None = None
    block_size: int = 131072
    bcj: str | None = None
    cold_order: str | None = None
    fragments: bool = True
    dedupe: bool = True
    xattrs: bool = True
    excludes: tuple[str | bytes, ...] = ()
    owner: tuple[int, int] | None = None
    source_date_epoch: int | None = None
    allow_stale: bool = False
    jobs: int = 0
    memory: int = 0
    verify: bool = True

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise UsageError(
                f"unknown codec '{self.codec}'", hint="choose one of " + ", ".join(CODECS)
            )
        size = self.block_size
        if not SMALLEST_BLOCK <= size <= LARGEST_BLOCK or size & (size - 1):
            raise UsageError(
                f"block size {size} is not a power of two from 4K to 1M",
                hint="128K is the usual choice, 1M gives the smallest image",
            )
        if self.cold_order is not None and self.cold_order not in COLD_ORDERS:
            raise UsageError(
                f"unknown cold order '{self.cold_order}'",
                hint="choose one of " + ", ".join(COLD_ORDERS),
            )
        if self.bcj not in {None, "none"} and self.codec != "xz":
            raise UsageError(
                f"codec {self.codec} takes no branch filter", hint="--bcj goes with --codec xz"
            )
        for name, value in zip(("user", "group"), self.owner or (), strict=False):
            # 2**32 - 1 is "no change" to chown(2), so no file can have it.
            if not 0 <= value < 2**32 - 1:
                raise UsageError(f"{name} id {value} is not from 0 to {2**32 - 2}")
        epoch = self.source_date_epoch
        if epoch is not None and not 0 <= epoch < 2**32:
            raise UsageError(
                f"source date epoch {epoch} is not from 0 to {2**32 - 1}",
                hint="SquashFS keeps times in 32 unsigned bits, seconds since 1970",
            )
        if self.jobs < 0 or self.memory < 0:
            raise UsageError("jobs and memory cannot be negative")


@dataclass(frozen=True, slots=True)
class RepackOptions:
    """How to repack an image. The values are checked on construction.

    Where ``codec``, ``level``, ``block_size`` and ``bcj`` leave what the image records as it is,
    its blocks are copied as they are stored; otherwise everything is compressed anew. xz records
    no level, and gzip none above 9: such a level holds for what is made anew and nothing else.

    Attributes:
        codec: as in ``PackOptions``; None: the image's.
        level: in the codec's own scale; None: what the image records, else the codec's standard.
        block_size: bytes; None: the image's.
        bcj: xz only; None: what the image records, or with another codec as in ``PackOptions``.
        cold_order: as in ``PackOptions``, where everything is compressed anew. Copied fragments
            stay together, so otherwise the tail-ends keep the image's order.
        allow_stale: accept sort lists that name paths the image does not have.
        jobs: worker threads; 0: one for each CPU this process may use.
        memory: bytes of blocks in flight; 0: the core's default.
        verify: read the new image back before it gets its name.
    """

    codec: str | None = None
    level: int | None = None
    block_size: int | None = None
    bcj: str | None = None
    cold_order: str | None = None
    allow_stale: bool = False
    jobs: int = 0
    memory: int = 0
    verify: bool = True

    def __post_init__(self) -> None:
        # Whatever is given here stands there as well, with the same checks.
        size = SMALLEST_BLOCK if self.block_size is None else self.block_size
        self.complete(codec=self.codec or "xz", block_size=size)

    def complete(self, *, codec: str, block_size: int) -> PackOptions:
        """Return what these say to a packer, with an image's codec and block size filled in."""
        return PackOptions(
            codec=codec,
            level=self.level,
            block_size=block_size,
            bcj=self.bcj,
            cold_order=self.cold_order,
            allow_stale=self.allow_stale,
            jobs=self.jobs,
            memory=self.memory,
            verify=self.verify,
        )


@dataclass(frozen=True, slots=True)
class SortListUse:
    """What became of a sort list.

    Attributes:
        path: the file, as given.
        style: the dialect it was read in.
        provenance: its header's lines, in order.
        hot: inodes that it put first, of any type.
        metadata_only: those of them whose data it left where it was.
        last: inodes that it put last.
        stale: entries that nothing in the tree matched.
        warnings: what the list asks for and bootpress does otherwise, each once.
    """

    path: str
    style: str
    provenance: tuple[tuple[str, str], ...]
    hot: int
    metadata_only: int
    last: int
    stale: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PackReport:
    """What a pack or a repack did. Sizes are bytes.

    Attributes:
        source: as given. image: the file written.
        options: with every default filled in.
        image_bytes: the file's size, padding included. used_bytes: the file system's.
        input_bytes: of all regular files, duplicates and holes included.
        inodes, files: counted after excludes; a hard link is no inode of its own.
        duplicate_files, duplicate_bytes: found before compression; repacked without compression:
            what the image shares already.
        data_blocks, raw_blocks, hole_blocks, fragments: raw: stored as they are, since they
            would not shrink; fragments may be among them.
        hot_files: what the sort list put first, inodes of any type, ``pages=none`` included.
        hot_bytes: the hot region, from the start of the data.
        metadata_bytes: inodes, listings and tables as stored.
        copied_bytes: data blocks and fragments that a repack took as they are stored; what the
            rest of the data region holds was made anew. copied_fragments: among those. Copied
            data blocks are all of ``data_blocks`` or, where everything is compressed, none.
        stages: seconds by stage, in the order of the work.
        seal: xxh3-128 of the image, in hex.
        losses: what the format cannot hold.
        sort_list: what became of it, or None.
        libraries: version of each codec's library by codec name.
    """

    source: str
    image: str
    options: PackOptions
    image_bytes: int
    used_bytes: int
    input_bytes: int
    inodes: int
    files: int
    duplicate_files: int
    duplicate_bytes: int
    data_blocks: int
    raw_blocks: int
    hole_blocks: int
    fragments: int
    hot_files: int
    hot_bytes: int
    metadata_bytes: int
    stages: Mapping[str, float]
    seal: str
    losses: tuple[Loss, ...] = ()
    sort_list: SortListUse | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)
    copied_bytes: int = 0
    copied_fragments: int = 0


@dataclass(frozen=True, slots=True)
class UnpackReport:
    """What an unpack wrote: inodes, bytes of content, and what the target could not take."""

    inodes: int
    bytes: int
    skipped: tuple[Loss, ...]


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a verification read.

    Attributes:
        files: regular files.
        blocks: data blocks and fragments, each decompressed once.
        bytes: decompressed.
        seal: "intact", or "absent" for an image that carries none. (A broken one is an error.)
        differences: against a directory, where one was given.
    """

    files: int
    blocks: int
    bytes: int
    seal: str
    differences: tuple[Difference, ...] = ()
