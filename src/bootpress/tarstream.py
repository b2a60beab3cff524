# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes an image's tree as a tar stream in PAX format.

Extended attributes go as ``SCHILY.xattr.<name>`` records, which GNU tar and libarchive read. Names
that are not UTF-8 keep their bytes (and PAX's ``hdrcharset=BINARY``, of which GNU tar warns).
Holes are written as zeros. A tar has no sockets: they are left out and counted.
"""

import tarfile
from typing import BinaryIO, cast

from bootpress import _core
from bootpress.model import CHUNK_BYTES, Loss, Monitor, UnpackReport, decode_path

_TYPES = {
    "directory": tarfile.DIRTYPE,
    "file": tarfile.REGTYPE,
    "symlink": tarfile.SYMTYPE,
    "block device": tarfile.BLKTYPE,
    "char device": tarfile.CHRTYPE,
    "fifo": tarfile.FIFOTYPE,
}


class _Content:
    """A regular file's content as tarfile reads it: front to back."""

    def __init__(self, stream: "_Stream", inode: int) -> None:
        self._stream = stream
        self._inode = inode
        self._offset = 0

    def read(self, size: int = CHUNK_BYTES) -> bytes:
        data = self._stream.tree.read(self._inode, self._offset, size)
        self._offset += len(data)
        self._stream.bytes += len(data)
        self._stream.tick()
        return data


class _Forward:
    """An output that only goes forward: tarfile asks for the position once, pipes have none."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def tell(self) -> int:
        return 0

    def write(self, data: bytes) -> int:
        return self._out.write(data)


class _Stream:
    def __init__(self, tree: _core.Tree, monitor: Monitor | None) -> None:
        self.tree = tree
        self.monitor = monitor
        self.bytes = 0
        self.inodes = 0
        self.total_bytes = tree.byte_count
        self.total_inodes = len(tree)

    def tick(self) -> None:
        if self.monitor:
            self.monitor("unpack", self.bytes, self.total_bytes, self.inodes, self.total_inodes)


def write_tar(tree: _core.Tree, out: BinaryIO, *, monitor: Monitor | None = None) -> UnpackReport:
    """Write every name of a tree to ``out`` and return what was written.

    Args:
        tree: of an image; inodes in the order of their names.
        out: anything with ``write``; it is not closed.

    Raises:
        OSError: from ``out``.
        CorruptError: a damaged block.
    """
    stream = _Stream(tree, monitor)
    first_names: dict[int, str] = {}
    sockets: list[str] = []
    # Not the stream mode "w|", which copies what is left of a chunk once per 10 KiB record.
    with tarfile.TarFile(
        fileobj=cast(BinaryIO, _Forward(out)),
        mode="w",
        format=tarfile.PAX_FORMAT,
        encoding="utf-8",
        errors="surrogateescape",
        copybufsize=CHUNK_BYTES,
    ) as tar:
        for raw, inode in tree.names():
            path = decode_path(raw)
            row = tree.row(inode)
            if row["type"] == "socket":
                sockets.append(path)
                continue
            member = _to_member(path, row)
            linked = row["type"] != "directory" and row["links"] > 1
            if linked and inode in first_names:
                member.type = tarfile.LNKTYPE
                member.linkname = first_names[inode]
                member.size = 0
                member.pax_headers = {}
                tar.addfile(member)
                continue
            if linked:
                first_names[inode] = member.name
            stream.inodes += 1
            is_file = row["type"] == "file" and row["size"] > 0
            tar.addfile(member, _Content(stream, inode) if is_file else None)
            stream.tick()
    skipped = (Loss("socket", len(sockets), sockets[0]),) if sockets else ()
    return UnpackReport(stream.inodes, stream.bytes, skipped)


def _to_member(path: str, row: "_core.InodeRow") -> tarfile.TarInfo:
    member = tarfile.TarInfo(f"./{path}" if path else ".")
    member.type = _TYPES[row["type"]]
    member.mode = row["mode"]
    member.uid, member.gid = row["uid"], row["gid"]
    member.mtime = row["mtime"]
    member.size = row["size"] if row["type"] == "file" else 0
    member.linkname = decode_path(row["target"])
    member.devmajor, member.devminor = row["device_major"], row["device_minor"]
    member.pax_headers = {
        f"SCHILY.xattr.{decode_path(name)}": value.decode("utf-8", "surrogateescape")
        for name, value in row["xattrs"].items()
    }
    return member
