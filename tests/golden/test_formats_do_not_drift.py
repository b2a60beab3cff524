# SPDX-License-Identifier: GPL-2.0-or-later
"""Formats that others keep files in: a change here breaks files that exist.

No compressed bytes are kept: those belong to a codec's version. An image of codec "none" has none.
"""

import hashlib
import os
from pathlib import Path

import bootpress
from bootpress import PackOptions, SortList, format_sort_list, parse_sort_list
from bootpress.sortlist import SortEntry

LISTS = Path(__file__).parent / "lists"

LISTED = SortList(
    entries=(
        SortEntry(b"usr/bin/with space", -6, metadata_only=True),
        SortEntry(b"usr/lib/systemd/systemd", -5, pages=((0, 15), (20, 20))),
        SortEntry(b"usr/bin/with space", -4),
        SortEntry(b"odd/tab\tnew\nline back\\slash", -3),
        SortEntry(b"usr/bin/bash", -2, metadata_only=True),
        SortEntry("usr/share/größe".encode() + b"\xff", -1),
        SortEntry(b"usr/share/doc/README", 1),
    ),
    provenance=(
        ("kernel", "6.1.0-18-amd64"),
        ("image", "sha256:" + "0" * 64),
        ("boots", "3"),
        ("date", "2024-05-01"),
        ("tool", "bootpress 0.1.0"),
    ),
)


def test_the_own_sort_list() -> None:
    golden = (LISTS / "bootpress.list").read_bytes()
    assert format_sort_list(LISTED) == golden
    assert parse_sort_list(golden) == LISTED


def test_the_foreign_sort_lists() -> None:
    for style in ("mksquashfs", "gensquashfs"):
        golden = (LISTS / f"{style}.list").read_bytes()
        written = format_sort_list(LISTED, style, keep=lambda path: b"\n" not in path)
        assert written == golden, style


def test_an_uncompressed_image(tmp_path: Path) -> None:
    """The whole layout: superblock, data, fragments, inodes, listings, tables, seal."""
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    (root / "d/large").write_bytes(bytes(range(256)) * 1200)
    (root / "d/small").write_text("tail")
    (root / "d/same").write_text("tail")
    (root / "link").symlink_to("d/large")
    os.link(root / "d/small", root / "hard")
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755) if path.is_dir() else None
        if path.is_file() and not path.is_symlink():
            path.chmod(0o644)
        os.utime(path, (1_000_000_000, 1_000_000_000), follow_symlinks=False)
    bootpress.pack(
        root,
        tmp_path / "image",
        options=PackOptions(codec="none", owner=(0, 0), xattrs=False, cold_order="path"),
        sort_list=SortList.from_paths(["d/small"]),
    )
    digest = hashlib.sha256((tmp_path / "image").read_bytes()).hexdigest()
    assert digest == (LISTS.parent / "image.sha256").read_text().strip()
