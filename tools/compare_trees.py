# SPDX-License-Identifier: GPL-2.0-or-later
"""Compares two directory trees with nothing but the operating system's own calls.

    python tools/compare_trees.py ROOTFS MOUNTPOINT

Prints a line per difference and exits with 1 where there are any. The judge of the demo and the
tests, so it shares no code with bootpress: what the kernel shows on a mounted image must be what
the directory holds, in type, mode, owner, time, size, content, target, device, extended attributes
and hard-link groups. Not compared: POSIX ACLs (system.*), which SquashFS cannot hold, and the
nanoseconds of times, which it does not keep.
"""

import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Node:
    """What lstat and its kin say of one name."""

    kind: str
    mode: int
    owner: tuple[int, int]
    mtime: int
    size: int
    links: int
    device: tuple[int, int] | None
    target: bytes | None
    xattrs: tuple[tuple[str, bytes], ...]
    group: tuple[bytes, ...]  # every name of the inode, in this tree


def read_tree(root: bytes, *, xattrs: bool = True) -> dict[bytes, Node]:
    """Return every name below ``root`` (itself as ``b""``) with what it is."""
    status = {path: os.lstat(_join(root, path)) for path in _walk(root)}
    groups: dict[tuple[int, int], list[bytes]] = {}
    for path, found in status.items():
        if not stat.S_ISDIR(found.st_mode):
            groups.setdefault((found.st_dev, found.st_ino), []).append(path)
    nodes: dict[bytes, Node] = {}
    for path, found in status.items():
        full = _join(root, path)
        mode = found.st_mode
        is_directory = stat.S_ISDIR(mode)
        is_device = stat.S_ISBLK(mode) or stat.S_ISCHR(mode)
        device = (os.major(found.st_rdev), os.minor(found.st_rdev)) if is_device else None
        nodes[path] = Node(
            kind=stat.filemode(mode)[0],
            mode=stat.S_IMODE(mode),
            owner=(found.st_uid, found.st_gid),
            mtime=int(found.st_mtime // 1),
            size=found.st_size if stat.S_ISREG(mode) or stat.S_ISLNK(mode) else 0,
            links=0 if is_directory else found.st_nlink,
            device=device,
            target=os.readlink(full) if stat.S_ISLNK(mode) else None,
            xattrs=_read_xattrs(full) if xattrs else (),
            group=() if is_directory else tuple(sorted(groups[found.st_dev, found.st_ino])),
        )
    return nodes


def find_differences(
    a: str | bytes, b: str | bytes, *, xattrs: bool = True, owners: bool = True
) -> list[str]:
    """Return a line for every way in which two trees differ, in the order of paths."""
    roots = os.fsencode(a), os.fsencode(b)
    nodes = [read_tree(root, xattrs=xattrs) for root in roots]
    lines: list[str] = []
    for path in sorted(nodes[0].keys() | nodes[1].keys()):
        name = os.fsdecode(path) or "."
        node_a, node_b = nodes[0].get(path), nodes[1].get(path)
        if node_a is None or node_b is None:
            lines.append(f"{name!r}: only in {'the second' if node_a is None else 'the first'}")
            continue
        for field in Node.__slots__:
            if field == "owner" and not owners:
                continue
            value_a, value_b = getattr(node_a, field), getattr(node_b, field)
            if value_a != value_b:
                lines.append(f"{name!r}: {field}: {value_a!r} | {value_b!r}")
        regular = node_a.kind == node_b.kind == "-" and node_a.size == node_b.size
        # Every name of a group leads to the same content; once is enough.
        first = not node_a.group or node_a.group[0] == path
        if regular and first and not _equal_content(_join(roots[0], path), _join(roots[1], path)):
            lines.append(f"{name!r}: content")
    return lines


def _join(root: bytes, path: bytes) -> bytes:
    return root + b"/" + path if path else root


def _walk(root: bytes) -> Iterator[bytes]:
    yield b""
    pending = [b""]
    while pending:
        above = pending.pop()
        with os.scandir(_join(root, above)) as entries:
            for entry in entries:
                path = above + b"/" + entry.name if above else entry.name
                yield path
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path)


def _read_xattrs(path: bytes) -> tuple[tuple[str, bytes], ...]:
    try:
        names = sorted(os.listxattr(path, follow_symlinks=False))
    except OSError:  # a file system without them
        return ()
    return tuple(
        (name, os.getxattr(path, name, follow_symlinks=False))
        for name in names
        if not name.startswith("system.")
    )


def _equal_content(a: bytes, b: bytes) -> bool:
    with open(a, "rb", buffering=0) as file_a, open(b, "rb", buffering=0) as file_b:
        size = os.fstat(file_a.fileno()).st_size
        at = 0
        while at < size:
            # A hole in both needs no reading: a 4 GiB file with two bytes in it stays cheap.
            data_a, data_b = (
                _next_data(file_a.fileno(), at, size),
                _next_data(file_b.fileno(), at, size),
            )
            at = min(data_a, data_b)
            if at >= size:
                break
            chunk_a = os.pread(file_a.fileno(), CHUNK_BYTES, at)
            chunk_b = os.pread(file_b.fileno(), CHUNK_BYTES, at)
            shorter = min(len(chunk_a), len(chunk_b))
            if not shorter or chunk_a[:shorter] != chunk_b[:shorter]:
                return False
            at += shorter
    return True


def _next_data(descriptor: int, offset: int, size: int) -> int:
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError:  # ENXIO: a hole to the end
        return size


def main() -> int:
    """Compare the two arguments; return the exit status."""
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    lines = find_differences(sys.argv[1], sys.argv[2])
    for line in lines:
        print(line.encode("utf-8", "backslashreplace").decode())
    count = len(read_tree(os.fsencode(sys.argv[1]), xattrs=False))
    print(f"{count} names compared, {len(lines)} differences")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
