# SPDX-License-Identifier: GPL-2.0-or-later
"""Names of a sort list become inodes of a tree."""

import re
from pathlib import Path

import pytest

from bootpress.errors import StaleSortListError
from bootpress.gather import gather
from bootpress.order import resolve, translate_pattern
from bootpress.sortlist import Reach, SortEntry, SortList, parse_sort_list


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("bin/a", "bin/b", "bin/sub/c", "lib/d", "lib/e", "top"):
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "root/lib/a-again").hardlink_to(tmp_path / "root/bin/a")
    return tmp_path / "root"


def names(
    root: Path, sort_list: SortList, *, allow_stale: bool = False
) -> tuple[list[str], list[str]]:
    tree = gather(root).tree
    order = resolve(tree, sort_list, allow_stale=allow_stale)
    return (
        [tree.path(inode).decode() for inode in order.hot],
        [tree.path(inode).decode() for inode in order.last],
    )


def test_own_lists_keep_their_order_and_may_name_directories(root: Path) -> None:
    listed = SortList.from_paths(["lib/e", "bin", "", "bin/sub/c"], last=["top"])
    assert names(root, listed) == (["lib/e", "bin", "", "bin/sub/c"], ["top"])


def test_a_file_with_two_names_is_placed_once_by_the_first(root: Path) -> None:
    listed = SortList.from_paths(["lib/a-again", "lib/d", "bin/a"], last=["bin/a"])
    assert names(root, listed) == (["bin/a", "lib/d"], [])


def test_a_directory_priority_of_mksquashfs_holds_below_it_until_overridden(root: Path) -> None:
    listed = parse_sort_list(b"bin 5\nbin/sub -1\nbin/b 9\nlib/d 7\n", style="mksquashfs")
    assert names(root, listed) == (["bin/b", "lib/d", "bin", "bin/a"], ["bin/sub", "bin/sub/c"])


def test_a_priority_of_zero_takes_a_file_back_out(root: Path) -> None:
    listed = parse_sort_list(b"bin 5\nbin/a 0\n", style="mksquashfs")
    assert "bin/a" not in names(root, listed)[0]


def test_the_first_match_of_gensquashfs_wins(root: Path) -> None:
    listed = parse_sort_list(
        b"-1 bin/b\n-9 [glob] bin/*\n5 [glob_no_path] lib*\n-20 lib/d\n", style="gensquashfs"
    )
    found = names(root, listed, allow_stale=True)
    assert found[0] == ["bin/a", "bin/sub", "bin/b"]
    assert "lib/d" in found[1]


def test_an_entry_that_an_earlier_one_shadows_is_not_stale(root: Path) -> None:
    listed = parse_sort_list(b"-9 [glob] bin/*\n-5 bin/a\n-4 [glob] bin/b\n", style="gensquashfs")
    assert resolve(gather(root).tree, listed).stale == ()


@pytest.mark.parametrize(
    ("data", "style"),
    [
        (b"top\ngone/1\ngone/2\ngone/3\ngone/4\ngone/5\n", "bootpress"),
        (b"top 5\ngone/1 4\ngone/2 3\ngone/3 2\ngone/4 1\ngone/5 1\n", "mksquashfs"),
        (b"-9 top\n-5 gone/1\n-4 gone/2\n-3 [glob] gone/3*\n-2 gone/4\n1 gone/5\n", "gensquashfs"),
    ],
)
def test_stale_lists_are_an_error_that_names_some_and_counts_all(
    root: Path, data: bytes, style: str
) -> None:
    listed = parse_sort_list(data, style=style)
    tree = gather(root).tree
    with pytest.raises(StaleSortListError) as caught:
        resolve(tree, listed)
    assert "5 entries: 'gone/1', 'gone/2', 'gone/3" in caught.value.message
    assert "and 2 more" in caught.value.message
    assert "--allow-stale" in str(caught.value.hint)
    assert len(caught.value.missing) == 5
    order = resolve(tree, listed, allow_stale=True)
    assert [tree.path(inode) for inode in order.hot] == [b"top"]
    assert len(order.stale) == 5


@pytest.mark.parametrize(
    ("pattern", "cross", "yes", "no"),
    [
        (b"a*", False, [b"a", b"abc"], [b"a/b", b"ba"]),
        (b"a*", True, [b"a/b"], [b"ba"]),
        (b"a?c", False, [b"abc", b"a\nc"], [b"a/c", b"ac"]),
        (b"[a-c]x", False, [b"bx"], [b"dx"]),
        (b"[!a]x", False, [b"bx"], [b"ax", b"/x"]),
        (b"[^a]x", False, [b"bx"], [b"ax"]),
        (b"[]]x", False, [b"]x"], [b"ax"]),
        (b"\\*", False, [b"*"], [b"a", b"\\*"]),
        (b"[", False, [b"["], [b"a"]),
        (b"a.b+", False, [b"a.b+"], [b"axb+", b"a.bb"]),
        (b"[.]x", False, [b".x"], [b"ax"]),
        (b"\xff*", False, [b"\xff\xfe"], [b"\xfe"]),
    ],
)
def test_patterns_match_as_fnmatch_does(
    pattern: bytes, cross: bool, yes: list[bytes], no: list[bytes]
) -> None:
    compiled = re.compile(translate_pattern(pattern, cross=cross), re.DOTALL)
    assert [name for name in yes if not compiled.fullmatch(name)] == []
    assert [name for name in no if compiled.fullmatch(name)] == []


def test_data_is_hot_where_any_name_of_the_file_says_so(root: Path) -> None:
    listed = parse_sort_list(
        b"#! bootpress sort list 1\nlib/a-again\tpages=none\nlib/d\tpages=none\nbin/a\n"
        b"top\tpages=none\ntop\n#! last\nlib/d\ntop\n"
    )
    tree = gather(root).tree
    order = resolve(tree, listed)
    assert [tree.path(inode) for inode in order.hot] == [b"bin/a", b"lib/d", b"top"]
    assert [tree.path(inode) for inode in order.hot_data] == [b"bin/a", b"top"]
    # Its metadata first, its data behind everything else: these do not clash.
    assert [tree.path(inode) for inode in order.last] == [b"lib/d"]


def test_an_inode_is_placed_by_the_first_look_and_its_data_by_the_first_read(root: Path) -> None:
    listed = parse_sort_list(
        b"#! bootpress sort list 1\ntop\tpages=none\nlib/a-again\tpages=none\nbin\nlib/d\n"
        b"bin/a\tpages=0\ntop\tpages=1\nlib/d\tpages=none\nlib/a-again\n"
    )
    tree = gather(root).tree
    order = resolve(tree, listed)
    assert [tree.path(inode) for inode in order.hot] == [b"top", b"bin/a", b"bin", b"lib/d"]
    assert [tree.path(inode) for inode in order.hot_data] == [b"bin", b"lib/d", b"bin/a", b"top"]
    assert order.last == ()


def test_patterns_place_inodes_and_data_apart_as_well(root: Path) -> None:
    tree = gather(root).tree
    for style, reach in (("mksquashfs", Reach.BELOW), ("gensquashfs", Reach.GLOB)):
        entries = (
            SortEntry(b"lib/e", -3, metadata_only=True),
            SortEntry(b"top", -2),
            SortEntry(b"lib" if reach is Reach.BELOW else b"lib/[e]", -1, reach),
        )
        order = resolve(tree, SortList(entries, style=style))
        hot = [tree.path(inode) for inode in order.hot]
        assert hot.index(b"lib/e") < hot.index(b"top"), style
        data = [tree.path(inode) for inode in order.hot_data]
        assert data.index(b"top") < data.index(b"lib/e"), style
        assert set(order.hot) >= set(order.hot_data)
