# SPDX-License-Identifier: GPL-2.0-or-later
"""Trees to pack: one that holds everything SquashFS can, and random ones."""

import os
import socket
import stat
import struct
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import strategies as st

# security.capability: VFS_CAP_REVISION_2, effective, permitted = CAP_NET_RAW (bit 13).
CAP_NET_RAW = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)
LATEST = 2**32 - 1  # seconds: the last moment that SquashFS can hold, in 2106


def make_everything(root: Path, *, huge: bool = False) -> None:
    """Fill ``root`` with every kind of thing that an image must hold. Needs root.

    Args:
        root: a directory that does not exist.
        huge: also a file over 4 GiB (sparse, data at both ends and in the middle).
    """
    root.mkdir()
    block = 131072
    sizes = (0, 1, 4095, 4096, block - 1, block, block + 1, 3 * block, (1 << 20) + 5)
    (root / "sizes").mkdir()
    for size in sizes:
        (root / f"sizes/{size}").write_bytes(make_bytes(size, seed=size))
        (root / f"sizes/{size}-text").write_bytes(
            (b"all work and no play %d\n" % size) * (size // 23)
        )
        (root / f"sizes/{size}-zeros").write_bytes(bytes(size))

    (root / "empty-directory").mkdir()
    (root / "owners").mkdir()
    for number, owner in enumerate((0, 1, 65535, 65536, 100_000, 2**31, 2**32 - 2)):
        path = root / f"owners/{owner}"
        path.write_text(str(owner))
        os.chown(path, owner, 2**32 - 2 - number)
    (root / "modes").mkdir()
    for mode in (0, 0o644, 0o755, 0o4755, 0o2755, 0o1777, 0o7777):
        path = root / f"modes/{mode:o}"
        path.write_text("x")
        path.chmod(mode)
    (root / "modes/sticky").mkdir()
    (root / "modes/sticky").chmod(0o1777)

    (root / "xattrs").mkdir()
    for index in range(5):
        path = root / f"xattrs/{index}"
        path.write_text("x")
        os.setxattr(path, "user.note", b"the same value, often enough to be shared" * 3)
        os.setxattr(path, "user.empty", b"")
        os.setxattr(path, f"user.own-{index}", bytes(range(256)))
        os.setxattr(path, "trusted.bootpress", b"t")
    os.setxattr(root / "xattrs/0", "security.capability", CAP_NET_RAW)
    os.setxattr(root / "xattrs/1", "user.long", b"v" * 3000)
    os.setxattr(root / "xattrs", "user.on-a-directory", b"d")
    (root / "xattrs/link").symlink_to("0")
    os.setxattr(root / "xattrs/link", "trusted.on-a-link", b"l", follow_symlinks=False)

    (root / "links").mkdir()
    (root / "links/one").write_bytes(make_bytes(200_000, seed=7))
    for name in ("two", "three"):
        os.link(root / "links/one", root / f"links/{name}")
    os.link(root / "links/one", root / "link-from-the-root")
    os.symlink("one", root / "links/short")
    os.symlink("../" * 100 + "nowhere", root / "links/dangling")
    os.symlink("x" * 4095, root / "links/longest")
    os.symlink(b"caf\xe9", root / "links/not-utf8")
    os.mkfifo(root / "links/fifo")
    os.link(root / "links/fifo", root / "links/fifo-again")
    os.link(root / "links/short", root / "links/short-again", follow_symlinks=False)

    (root / "nodes").mkdir()
    os.mkfifo(root / "nodes/fifo", 0o640)
    os.mknod(root / "nodes/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    os.mknod(root / "nodes/disk", 0o660 | stat.S_IFBLK, os.makedev(259, 70_000))
    os.mknod(root / "nodes/far", 0o600 | stat.S_IFCHR, os.makedev(4095, 1_048_575))
    with socket.socket(socket.AF_UNIX) as listener:
        # A socket's address holds 107 bytes; the directory may be deeper than that.
        here = os.open(root / "nodes", os.O_PATH)
        listener.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)

    (root / "names").mkdir()
    names = (
        b"n" * 255,
        b"caf\xe9",
        "café".encode(),
        b"new\nline",
        b"tab\tend ",
        b" lead",
        b"#hash",
    )
    for name in (
        *names,
        b'quo"te',
        b"back\\slash",
        b"\x01\xff",
        b"-dash",
        b"*?[",
        b"\xf0\x9f\x90\xa7",
    ):
        with open(os.fsencode(root) + b"/names/" + name, "wb") as file:
            file.write(name)

    (root / "sparse").mkdir()
    make_sparse(root / "sparse/middle", 1 << 20, {300_000: b"data"})
    make_sparse(root / "sparse/end", 5 * block, {5 * block - 1: b"e"})
    make_sparse(root / "sparse/begin", 5 * block + 17, {0: b"b"})
    make_sparse(root / "sparse/nothing", 3 * block + 9, {})
    if huge:
        size = (4 << 30) + 12345
        make_sparse(root / "sparse/huge", size, {0: b"first", 1 << 31: b"half", size - 4: b"last"})

    (root / "equal").mkdir()
    for index in range(3):
        (root / f"equal/large-{index}").write_bytes(make_bytes(300_000, seed=99))
        (root / f"equal/small-{index}").write_bytes(b"the same tail-end")
    (root / "equal/prefix").write_bytes(make_bytes(300_000, seed=99)[: 2 * block])

    deep = root / "deep"
    for level in range(60):
        deep = deep / f"level-{level}"
    deep.mkdir(parents=True)
    (deep / "bottom").write_text("bottom")

    (root / "times").mkdir()
    for when in (0, 1, 86400, 2**31 - 1, 2**31, LATEST):
        path = root / f"times/{when}"
        path.write_text("x")
        os.utime(path, (when, when))
    for directory, _, _ in os.walk(root, topdown=False):
        os.utime(directory, (1_700_000_000, 1_700_000_000))


def make_wide_directory(root: Path, count: int) -> None:
    """Make a directory with ``count`` entries of several types."""
    root.mkdir()
    for index in range(count):
        name = root / f"{index:06}-{'x' * (index % 90)}"
        if index % 10 == 0:
            os.symlink(str(index), name)
        elif index % 10 == 1:
            name.mkdir()
        else:
            name.write_bytes(b"" if index % 3 else b"%d" % index)


def make_sparse(path: Path, size: int, data: dict[int, bytes]) -> None:
    """Make a file of ``size`` bytes that is a hole but for ``data`` (offset to bytes)."""
    with path.open("wb") as file:
        file.truncate(size)
        for offset, content in data.items():
            file.seek(offset)
            file.write(content)


def make_bytes(size: int, *, seed: int) -> bytes:
    """Return ``size`` bytes that do not compress, the same ones for the same seed."""
    import random  # noqa: PLC0415

    return random.Random(seed).randbytes(size)


# --- random trees -------------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomNode:
    """What to make under one name."""

    kind: str
    mode: int = 0o644
    content: bytes = b""
    size: int = 0
    target: bytes = b""
    mtime: int = 0
    owner: tuple[int, int] = (0, 0)
    xattrs: dict[str, bytes] = field(default_factory=dict)
    children: dict[bytes, "RandomNode"] = field(default_factory=dict)


_names = st.binary(min_size=1, max_size=20).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in {b".", b".."}
)
_times = st.one_of(st.integers(0, LATEST), st.sampled_from([0, 2**31, LATEST]))
_owners = st.tuples(st.integers(0, 2**32 - 2), st.sampled_from([0, 1, 65536]))
_xattrs = st.dictionaries(
    st.sampled_from(["user.a", "user.bb", "trusted.c"]), st.binary(max_size=60), max_size=3
)
_contents = st.one_of(
    st.binary(max_size=200),
    st.builds(
        lambda data, times: data * times, st.binary(min_size=1, max_size=9), st.integers(1, 30000)
    ),
    st.builds(
        lambda size, seed: make_bytes(size, seed=seed), st.integers(0, 20000), st.integers(0, 3)
    ),
)
_leaves = st.one_of(
    st.builds(
        RandomNode,
        kind=st.just("file"),
        mode=st.integers(0, 0o7777),
        content=_contents,
        size=st.sampled_from([0, 0, 0, 4096, 40000]),  # a hole behind the content
        mtime=_times,
        owner=_owners,
        xattrs=_xattrs,
    ),
    st.builds(
        RandomNode,
        kind=st.just("symlink"),
        target=st.binary(min_size=1, max_size=80).filter(lambda text: b"\0" not in text),
        mtime=_times,
        owner=_owners,
    ),
    st.builds(RandomNode, kind=st.sampled_from(["fifo", "socket", "char", "block"]), mtime=_times),
)


def _directory(children: st.SearchStrategy[RandomNode]) -> st.SearchStrategy[RandomNode]:
    return st.builds(
        RandomNode,
        kind=st.just("directory"),
        mode=st.integers(0o700, 0o7777),
        mtime=_times,
        owner=_owners,
        xattrs=_xattrs,
        children=st.dictionaries(_names, children, max_size=6),
    )


random_trees = _directory(st.recursive(_leaves, _directory, max_leaves=15))


def write_random_tree(root: bytes, node: RandomNode, links: list[int]) -> None:
    """Write a random tree out to ``root``, then add hard links. Needs root.

    Args:
        root: a path that does not exist.
        node: the directory.
        links: each number picks a file of the tree, which gets one more name at the top.
    """
    made: list[bytes] = []
    _write_node(root, node, made)
    for index, pick in enumerate(links if made else []):
        os.link(made[pick % len(made)], root + b"/link %d" % index, follow_symlinks=False)
    os.utime(root, (node.mtime, node.mtime))


def _write_node(path: bytes, node: RandomNode, made: list[bytes]) -> None:
    match node.kind:
        case "directory":
            os.mkdir(path)
            for name, child in node.children.items():
                _write_node(path + b"/" + name, child, made)
        case "file":
            with open(path, "wb") as file:
                file.write(node.content)
                file.truncate(len(node.content) + node.size)
        case "symlink":
            os.symlink(node.target, path)
        case "fifo":
            os.mkfifo(path)
        case "socket":
            os.mknod(path, 0o600 | stat.S_IFSOCK)
        case "char":
            os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        case "block":
            os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(259, 1 << 19))
    if node.kind != "directory":
        made.append(path)
    os.chown(path, *node.owner, follow_symlinks=False)
    if node.kind in {"file", "directory"}:
        os.chmod(path, node.mode)
        for name, value in node.xattrs.items():
            os.setxattr(path, name, value)
    os.utime(path, (node.mtime, node.mtime), follow_symlinks=False)
