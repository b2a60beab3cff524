# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads SquashFS images, by whomever they were made."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from bootpress import _core
from bootpress.errors import CorruptError, NoSuchPathError, UnsupportedError, UsageError
from bootpress.model import (
    AnyPath,
    Extent,
    FileLayout,
    Stat,
    decode_path,
    encode_path,
    escape_name,
)


@contextmanager
def name_image(path: AnyPath) -> Iterator[None]:
    """Put the image's name in front of errors about its content, which the core reads unnamed."""
    try:
        yield
    except (CorruptError, UnsupportedError) as error:
        name = os.fsdecode(path)
        if name in error.message:
            raise
        raise type(error)(f"{name}: {error.message}", hint=error.hint) from error


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One name in an image.

    Attributes:
        image: the image it is in.
        path: relative to the root, which is "".
        inode: the core's index of the inode; equal for names of one file (hard links). Not the
            number that ``stat`` shows on the mounted image: that is ``layout.inode``.
    """

    image: "Image"
    path: str
    inode: int

    @property
    def stat(self) -> Stat:
        """Its attributes."""
        return _to_stat(self.image.tree.row(self.inode))

    @property
    def layout(self) -> FileLayout:
        """Where it lies in the image."""
        return self.image._layout_of(self.path, self.inode)

    def read(self, offset: int = 0, size: int | None = None) -> bytes:
        """Return a file's bytes; see ``Image.read``."""
        return self.image._read_inode(self.path, self.inode, offset, size)


class Image(Mapping[str, Entry]):
    """A SquashFS image as a mapping from path to entry.

    Paths may be given as ``str``, ``bytes`` or path objects, with or without a leading slash; they
    come out as ``str`` relative to the root, which is "". Symlinks are not followed.

    All metadata is read and checked on construction, so a damaged image fails here; content is
    read and decompressed when it is asked for. The file stays open while the object lives, and
    one object may be used by several threads.

    Example:
        >>> image = Image("root.squashfs")
        >>> image["etc/hostname"].read()
        b'live\\n'
        >>> [path for path, entry in image.items() if entry.stat.mode & 0o4000]
        ['usr/bin/su']

    Args:
        path: the file, or a block device.
        offset: bytes before the image in it: an image on a disk or in an ISO. Extents and offsets
            are the image's own all the same.
        length: the image's bytes; None is all that follows.

    Raises:
        SourceError: the file is missing or unreadable.
        CorruptError: it breaks the format, or ends before the image does.
        UnsupportedError: a version or codec that this build cannot read.
    """

    def __init__(self, path: AnyPath, *, offset: int = 0, length: int | None = None) -> None:
        if offset < 0 or (length is not None and length <= 0):
            raise UsageError(f"no image at offset {offset} with {length} bytes")
        self._path = os.fsencode(path)
        self._offset = offset
        with name_image(path):
            self._core = _core.Image(self._path, offset=offset, length=length or 0)
            self._tree = self._core.tree

    def __repr__(self) -> str:
        return f"Image({os.fsdecode(self._path)!r})"

    # A mapping compares by content, which would read the whole tree; an image is itself.
    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    @property
    def path(self) -> str:
        """The image's file, as given."""
        return os.fsdecode(self._path)

    @property
    def offset(self) -> int:
        """Bytes before the image in its file."""
        return self._offset

    @property
    def tree(self) -> _core.Tree:
        """The core's tree, for the modules of this package."""
        return self._tree

    @property
    def native(self) -> _core.Image:
        """The core's image, for the modules of this package."""
        return self._core

    def __getitem__(self, path: AnyPath) -> Entry:
        """Return the entry of a path.

        Raises:
            NoSuchPathError: the image has no such path (a ``KeyError`` as well).
        """
        name = encode_path(path)
        inode = self._tree.find(name)
        if inode is None:
            raise NoSuchPathError(
                f"{self.path} holds no '{escape_name(name)}'",
                hint="paths are relative to the root; symlinks are not followed",
            )
        return Entry(self, decode_path(name), inode)

    def __contains__(self, path: object) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return self._tree.find(encode_path(path)) is not None

    def __iter__(self) -> Iterator[str]:
        """Yield every path, depth first, names ascending bytewise; the root first, as ""."""
        return (decode_path(path) for path, _ in self._tree.names())

    def __len__(self) -> int:
        """Return the number of paths, the root and every hard link included."""
        return len(self._tree.names())

    def walk(self, path: AnyPath = "") -> Iterator[Entry]:
        """Yield an entry and everything below it, in the order of iteration.

        Raises:
            NoSuchPathError: on the first step, for a path that the image does not have.
        """
        top = self[path]
        yield top
        yield from self._walk_below(encode_path(top.path), top.inode)

    def _walk_below(self, path: bytes, inode: int) -> Iterator[Entry]:
        if self._tree.row(inode)["type"] != "directory":
            return
        # Its own stack: a tree may be deeper than Python's.
        stack = [iter([(path, *entry) for entry in self._tree.entries(inode)])]
        while stack:
            step = next(stack[-1], None)
            if step is None:
                stack.pop()
                continue
            parent, name, child = step
            below = parent + b"/" + name if parent else name
            yield Entry(self, decode_path(below), child)
            if self._tree.row(child)["type"] == "directory":
                stack.append(iter([(below, *entry) for entry in self._tree.entries(child)]))

    def read(self, path: AnyPath, offset: int = 0, size: int | None = None) -> bytes:
        """Return a regular file's bytes.

        Args:
            path: the file.
            offset: bytes from its start.
            size: how many bytes at most; None is to the end. Less comes back only at the end.

        Raises:
            NoSuchPathError: the image has no such path.
            UsageError: not a regular file, or a negative offset or size.
            CorruptError: a damaged block.
        """
        return self[path].read(offset, size)

    def stat(self, path: AnyPath) -> Stat:
        """Return a path's attributes. Raises NoSuchPathError."""
        return self[path].stat

    def layout(self, path: AnyPath) -> FileLayout:
        """Return where a path's data and metadata lie in the image. Raises NoSuchPathError."""
        return self[path].layout

    def layouts(self) -> Iterator[FileLayout]:
        """Yield the layout of every path, in the order of iteration."""
        for path, inode in self._tree.names():
            yield self._layout_of(decode_path(path), inode)

    def info(self) -> dict[str, int | str | None]:
        """Return the superblock's figures: codec, block size, times, counts, bytes.

        None where the image has no such table; the codec's options record is in hex.
        """
        return {
            key: value.hex() if isinstance(value, bytes) else value
            for key, value in self._core.info().items()
        }

    def _layout_of(self, path: str, inode: int) -> FileLayout:
        row = self._core.layout(inode)
        return FileLayout(
            path=path,
            type=self._tree.row(inode)["type"],
            inode=row["inode"],
            reference=row["reference"],
            inode_extent=Extent(*row["inode_extent"]),
            listing_extent=_to_extent(row["listing_extent"]),
            listing_reference=row["listing_reference"],
            listing_bytes=row["listing_bytes"],
            blocks=tuple(Extent(*block) for block in row["blocks"]),
            fragment=row["fragment"],
            fragment_extent=_to_extent(row["fragment_extent"]),
            tail=_to_extent(row["tail"]),
        )

    def _read_inode(self, path: str, inode: int, offset: int, size: int | None) -> bytes:
        row = self._tree.row(inode)
        name = escape_name(encode_path(path))
        if row["type"] != "file":
            raise UsageError(f"'{name}' is a {row['type']}, not a regular file")
        if offset < 0 or (size is not None and size < 0):
            raise UsageError(f"cannot read '{name}' at offset {offset}, size {size}: negative")
        left = max(row["size"] - offset, 0)
        with name_image(self._path):
            return self._tree.read(inode, offset, left if size is None else min(size, left))


def _to_extent(pair: tuple[int, int] | None) -> Extent | None:
    return None if pair is None else Extent(*pair)


def _to_stat(row: "_core.InodeRow") -> Stat:
    is_device = row["type"].endswith("device")
    return Stat(
        type=row["type"],
        mode=row["mode"],
        uid=row["uid"],
        gid=row["gid"],
        links=row["links"],
        size=row["size"],
        mtime=row["mtime"],
        device=(row["device_major"], row["device_minor"]) if is_device else None,
        target=decode_path(row["target"]) if row["type"] == "symlink" else None,
        xattrs={decode_path(name): value for name, value in row["xattrs"].items()},
    )
