# SPDX-License-Identifier: GPL-2.0-or-later
"""Lists that we write order data in mksquashfs and gensquashfs; theirs order data in ours."""

from pathlib import Path

import pytest

import bootpress
from bootpress import Image, PackOptions, SortList, format_sort_list
from judges import need, run
from trees import make_bytes

NAMES = ["a", "b", "d/x", "d/y", "d/sub/z", "sp ace", 'quo"te', "back\\slash", "[bracket", "#hash"]
ODD = ["lead", " lead", "trail ", '"both" \\ ', "caf\udce9", "*"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for index, name in enumerate([*NAMES, *ODD]):
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_bytes(5000, seed=index))
    return tmp_path / "root"


def data_order(image: Path, root: Path) -> list[str]:
    opened = Image(image)
    found = [
        (entry.layout.blocks[0].offset, entry.path)
        for entry in opened.walk()
        if entry.stat.type == "file"
    ]
    assert len(found) == len(NAMES) + len(ODD)
    return [path for _, path in sorted(found)]


def pack_by_mksquashfs(root: Path, listed: Path, image: Path) -> None:
    need("mksquashfs")
    done = run("mksquashfs", root, image, "-no-fragments", "-noD", "-no-progress", "-sort", listed)
    assert b"Cannot stat sortlist" not in done.stdout + done.stderr


def pack_by_gensquashfs(root: Path, listed: Path, image: Path) -> None:
    need("gensquashfs")
    # Random data does not shrink, so every file starts a block of its own with a 4K block size.
    run("gensquashfs", "-q", "-b", "4096", "-T", "-D", root, "-S", listed, image)


def pack_by_ourselves(root: Path, listed: Path, image: Path) -> None:
    bootpress.pack(
        root, image, sort_list=listed, options=PackOptions(codec="none", fragments=False)
    )


THEIRS = {"mksquashfs": pack_by_mksquashfs, "gensquashfs": pack_by_gensquashfs}


@pytest.mark.parametrize("style", list(THEIRS))
def test_a_list_that_we_write_orders_data_in_their_tool_and_in_ours(
    style: str, root: Path, tmp_path: Path
) -> None:
    hot = ["sp ace", "d/y", 'quo"te', "back\\slash", "[bracket", "#hash", *ODD]
    last = ["d/sub/z", "a"]
    listed = tmp_path / "listed"
    listed.write_bytes(format_sort_list(SortList.from_paths(hot, last=last), style))
    for pack in (THEIRS[style], pack_by_ourselves):
        image = tmp_path / pack.__name__
        pack(root, listed, image)
        order = data_order(image, root)
        assert order[: len(hot)] == hot, pack.__name__
        assert order[-2:] == last, pack.__name__


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("mksquashfs", "d 5\nd/y 9\nd/sub -3\na 7\nb 6\nsp\\ ace -9\n"),
        ("mksquashfs", "d/* 5\nd/x 0\nb 1\n"),
        ("gensquashfs", "-5 [glob] d/*\n-9 [glob_no_path] d/*z\n-20 b\n3 a\n9 sp ace\n"),
        ("gensquashfs", '-5 [glob] ?\n-9 b\n-7 quo"te\n'),
    ],
)
def test_their_list_means_the_same_to_us(style: str, text: str, root: Path, tmp_path: Path) -> None:
    listed = tmp_path / "listed"
    listed.write_text(text)
    THEIRS[style](root, listed, tmp_path / "theirs")
    pack_by_ourselves(root, listed, tmp_path / "ours")
    ranks = _ranks(style, text)
    theirs = [ranks.get(name, 0) for name in data_order(tmp_path / "theirs", root)]
    ours = [ranks.get(name, 0) for name in data_order(tmp_path / "ours", root)]
    # Equal priorities may come in any order; the sequence of priorities must be one.
    assert ours == theirs


def _ranks(style: str, text: str) -> dict[str, int]:
    """Priorities by name, told here by hand for the lists above."""
    return {
        ("mksquashfs", "d 5"): {
            "d/y": -9,
            "a": -7,
            "b": -6,
            "d/x": -5,
            "d/sub/z": 3,
            "sp ace": 9,
        },
        ("mksquashfs", "d/* 5"): {"d/y": -5, "d/sub/z": -5, "b": -1},
        ("gensquashfs", "-5 [glob] d/*"): {
            "b": -20,
            "d/sub/z": -9,
            "d/x": -5,
            "d/y": -5,
            "a": 3,
            "sp ace": 9,
        },
        ("gensquashfs", "-5 [glob] ?"): {'quo"te': -7, "a": -5, "b": -5, "*": -5},
    }[style, text.split("\n", maxsplit=1)[0]]
