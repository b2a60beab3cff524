# SPDX-License-Identifier: GPL-2.0-or-later
"""The native core. Private: the public names are in ``bootpress``.

Paths are ``bytes`` and relative to the tree's root (the root is ``b""``), since names on Linux
are bytes. Every function that works on data releases the GIL, calls ``monitor`` about ten times a
second from the calling thread, and stops cleanly when ``monitor`` raises or a signal handler does
(KeyboardInterrupt included). Errors are the classes of ``bootpress.errors``, raised with a message
and a hint.
"""

from collections.abc import Callable, Sequence
from typing import TypedDict, final

# (stage, done bytes, total bytes or 0, done files, total files or 0)
type_monitor = Callable[[str, int, int, int, int], None]

class CodecRow(TypedDict):
    name: str
    version: str  # the library's, at run time: "libdeflate 1.14"
    lowest: int
    highest: int
    standard: int

class InodeRow(TypedDict):
    type: str  # "directory", "file", "symlink", "block device", "char device", "fifo", "socket"
    mode: int
    uid: int
    gid: int
    links: int
    size: int  # bytes
    mtime: int  # seconds since 1970
    device_major: int
    device_minor: int
    target: bytes  # symlinks, else b""
    xattrs: dict[bytes, bytes]

class LayoutRow(TypedDict):
    inode: int  # the inode number that stat() shows on the mounted image
    reference: int  # as in the superblock: unit offset << 16 | offset in the unit
    inode_extent: tuple[int, int]  # (offset, length), bytes in the image
    listing_extent: tuple[int, int] | None  # directories
    listing_reference: int | None  # where the listing begins in the directory table; as reference
    listing_bytes: int  # uncompressed, 0 where there is none
    # one (offset, stored bytes) per block, (0, 0) for a hole; a length of stored bytes
    blocks: list[tuple[int, int]]
    fragment: int | None  # index
    fragment_extent: tuple[int, int] | None  # (offset, stored bytes) of the whole fragment block
    tail: tuple[int, int] | None  # (offset, length) inside the decompressed fragment

class PackResult(TypedDict):
    image_bytes: int  # the file's size, padding included
    used_bytes: int  # the superblock's bytes_used
    input_bytes: int  # of all regular files, duplicates and holes included
    inodes: int
    files: int
    duplicate_files: int
    duplicate_bytes: int
    data_blocks: int
    raw_blocks: int  # data blocks and fragments stored raw
    hole_blocks: int
    fragments: int
    hot_files: int  # inodes of any type
    hot_bytes: int  # stored bytes of the hot region, from the start of the data
    copied_bytes: int  # repack: data blocks and fragments taken from the old image as stored
    copied_fragments: int
    metadata_bytes: int
    # seconds by stage: dedupe (repack: check), order, plan, compress (copy), write, verify, flush
    stages: dict[str, float]
    seal: bytes  # the image's xxh3-128 digest, 16 bytes

@final
class Selection:
    def __init__(
        self,
        *,
        excludes: Sequence[bytes] = (),
        xattrs: bool = True,
        owner: tuple[int, int] | None = None,
        newest_mtime: int | None = None,
    ) -> None: ...

@final
class Tree:
    """Inode ids are ``range(len(tree))``; the root is 0."""

    def __len__(self) -> int: ...
    @property
    def file_count(self) -> int: ...  # regular files
    @property
    def byte_count(self) -> int: ...  # their sizes summed
    @property
    def losses(self) -> list[tuple[str, int, bytes]]: ...  # (kind, count, first path)
    def find(self, path: bytes) -> int | None: ...
    def path(self, inode: int) -> bytes: ...  # the first name of an inode
    def names(self) -> list[tuple[bytes, int]]: ...  # every name, depth first, names ascending
    def entries(self, inode: int) -> list[tuple[bytes, int]]: ...  # of a directory
    def row(self, inode: int) -> InodeRow: ...
    def read(self, inode: int, offset: int, size: int) -> bytes: ...  # clamped to the file's end

@final
class Image:
    """A SquashFS image, read by the independent reader."""

    # a part of the file; length 0: to its end
    def __init__(self, path: bytes, *, offset: int = 0, length: int = 0) -> None: ...
    @property
    def tree(self) -> Tree: ...
    # None: the image has no such table; "codec_record" is the options record as stored
    def info(self) -> dict[str, int | str | bytes | None]: ...
    def layout(self, inode: int) -> LayoutRow: ...
    # index → (offset, stored bytes, raw)
    def fragments(self) -> list[tuple[int, int, bool]]: ...
    # (codec, level, block size, branch filter) as far as the image tells; "none": all of it is raw
    def recorded_options(self) -> tuple[str, int, int, str]: ...
    # whether what these options make may stand beside the image's own blocks
    def keeps_blocks(self, codec: str, level: int, block_size: int, bcj: str) -> bool: ...

def codecs() -> list[CodecRow]: ...
def bcj_filters() -> list[str]: ...
def scan_directory(
    path: bytes, selection: Selection, *, jobs: int = 1, monitor: type_monitor | None = None
) -> Tree: ...
def read_archive(
    fd: int,
    name: str,
    spool_directory: bytes,
    selection: Selection,
    monitor: type_monitor | None = None,
) -> Tree: ...
def select(tree: Tree, selection: Selection) -> Tree: ...
def pack(
    tree: Tree,
    target: bytes,
    *,
    codec: str,
    level: int,
    block_size: int,
    bcj: str,
    hot: Sequence[int],  # inode ids of any type, in the order of their inodes and listings
    hot_data: Sequence[int],  # those of them whose data goes first, in the order of that
    last: Sequence[int],  # inode ids to place behind everything else, in this order
    cold_order: str,
    fragments: bool,
    dedupe: bool,
    mkfs_time: int | None,
    jobs: int,
    memory: int,  # bytes of blocks in flight, 0: the default
    verify: bool,
    monitor: type_monitor | None = None,
) -> PackResult: ...
def repack(  # REQUIRES: image.keeps_blocks(), of the image's codec and block size
    image: Image,
    target: bytes,
    *,
    level: int,  # of what is made anew
    bcj: str,
    hot: Sequence[int],  # these three as for pack, ids of image.tree
    hot_data: Sequence[int],
    last: Sequence[int],
    jobs: int,
    memory: int,
    verify: bool,
    monitor: type_monitor | None = None,
) -> PackResult: ...
def unpack(
    image: Image,
    directory: bytes,
    *,
    jobs: int,
    owners: bool,
    xattrs: bool,
    monitor: type_monitor | None = None,
) -> tuple[int, int, list[tuple[str, int, bytes]]]: ...  # inodes, bytes, what was skipped
def compare(
    a: Tree,
    b: Tree,
    *,
    jobs: int,
    xattrs: bool,
    owners: bool,
    times: bool,
    monitor: type_monitor | None = None,
) -> list[tuple[bytes, str, str, str]]: ...  # path, what, in a, in b
def verify(
    image: Image, *, jobs: int, monitor: type_monitor | None = None
) -> dict[str, int | str]: ...  # files, blocks, bytes, seal: "absent" | "intact" | "broken"
