# SPDX-License-Identifier: GPL-2.0-or-later
"""Merging traces: what the order is, what it does not depend on, what is left out."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bootpress
from bootpress import Image, PackOptions
from bootpress.errors import UsageError
from bootpress.learn import learn_order
from bootpress.sortlist import SortList, format_sort_list
from bootpress.trace import Event, EventKind, Trace, read_trace
from boots import DIRECT, LOOP

BLANK = replace(read_trace(LOOP), paths=(), events=())
Row = tuple[EventKind, bytes, int, int]


def make_boot(rows: Sequence[Row], *, created: str = "2026-11-21T12:00:00Z") -> Trace:
    paths = list(dict.fromkeys(path for _, path, _, _ in rows))
    events = tuple(
        Event(at, kind, paths.index(path), first, length)
        for at, (kind, path, first, length) in enumerate(rows)
    )
    return replace(BLANK, created=created, paths=tuple(paths), events=events)


def read_files(*names: str, created: str = "2026-11-21T12:00:00Z") -> Trace:
    return make_boot([("pages", name.encode(), 0, 1) for name in names], created=created)


def order_of(*traces: Trace, min_boots: int = 1) -> list[str]:
    sort_list, _ = learn_order(traces, image=None, min_boots=min_boots)
    return [entry.path.decode() for entry in sort_list.hot]


def orders_of(sort_list: SortList) -> tuple[list[str], list[str]]:
    """Return a list's order of inodes, and that of data."""
    inodes = dict.fromkeys(entry.path.decode() for entry in sort_list.hot)
    data = dict.fromkeys(e.path.decode() for e in sort_list.hot if not e.metadata_only)
    return list(inodes), list(data)


def test_one_boot_gives_the_order_of_its_first_reads() -> None:
    assert order_of(read_files("c", "a", "b", "a", "c")) == ["c", "a", "b"]


def test_an_inode_comes_where_it_is_looked_at_and_data_where_it_is_read() -> None:
    boot = make_boot([("inode", b"b", 0, 32), ("pages", b"a", 0, 1), ("pages", b"b", 0, 1)])
    sort_list, report = learn_order([boot], image=None)
    assert [(e.path, e.metadata_only, e.pages) for e in sort_list.hot] == [
        (b"b", True, ()),
        (b"a", False, ((0, 0),)),
        (b"b", False, ((0, 0),)),
    ]
    assert (report.files, report.metadata_only) == (2, 0)


def test_a_file_whose_read_is_next_stands_once() -> None:
    # Others are looked at in between, but none of them is read before it.
    looks: list[Row] = [("inode", name, 0, 32) for name in (b"a", b"b", b"c")]
    boot = make_boot([*looks, ("pages", b"a", 0, 1), ("pages", b"b", 0, 1)])
    assert order_of(boot) == ["a", "b", "c"]


def test_each_boot_alone_counts_for_the_order_of_looks_and_for_that_of_reads() -> None:
    first = make_boot(
        [("inode", b"x", 0, 1), ("inode", b"y", 0, 1), ("pages", b"y", 0, 1), ("pages", b"x", 0, 1)]
    )
    second = make_boot(
        [("inode", b"x", 0, 1), ("pages", b"z", 0, 1), ("inode", b"y", 0, 1), ("pages", b"y", 0, 1)]
    )
    sort_list, _ = learn_order([first, second], image=None)
    # z lies between x and y where it is looked at, ahead of y where it is read.
    assert orders_of(sort_list) == (["x", "z", "y"], ["z", "y", "x"])


@given(st.permutations(range(8)), st.permutations(range(8)), st.sets(st.integers(0, 7)))
def test_both_orders_are_kept_with_no_entry_too_many(
    looked: list[int], read: list[int], unread: set[int]
) -> None:
    read = [number for number in read if number not in unread]
    rows: list[Row] = [("inode", b"%d" % number, 0, 32) for number in looked]
    rows += [("pages", b"%d" % number, 0, 1) for number in read]
    sort_list, report = learn_order([make_boot(rows)], image=None)
    assert orders_of(sort_list) == ([str(n) for n in looked], [str(n) for n in read])
    assert (report.files, report.metadata_only) == (len(read), len(unread))
    # Twice stand those that something is read before which is looked at after them.
    held = sum(any(m in read[: read.index(n)] for m in looked[looked.index(n) :]) for n in read)
    assert len(sort_list.entries) == len(looked) + held


def test_what_is_only_looked_at_takes_no_data_along() -> None:
    boot = make_boot([("inode", b"a", 0, 32), ("pages", b"b", 3, 2), ("pages", b"b", 9, 1)])
    sort_list, report = learn_order([boot], image=None)
    assert [(e.path, e.metadata_only, e.pages) for e in sort_list.hot] == [
        (b"a", True, ()),
        (b"b", False, ((3, 4), (9, 9))),
    ]
    assert (report.files, report.metadata_only) == (1, 1)


def test_directories_that_are_needed_all_along_come_first() -> None:
    boot = make_boot(
        [
            ("pages", b"f", 0, 1),
            ("listing", b"once", 0, 10),
            ("listing", b"always", 0, 10),
            *[("pages", b"f%d" % number, 0, 1) for number in range(8)],
            ("listing", b"always", 0, 10),
        ]
    )
    assert order_of(boot)[:3] == ["always", "f", "once"]


def test_files_of_fewer_boots_than_asked_for_are_left_out() -> None:
    boots = [
        read_files("a", "b", created="1"),
        read_files("b", "c", created="2"),
        read_files("c", "b", created="3"),
    ]
    assert order_of(*boots, min_boots=2) == ["b", "c"]
    assert order_of(*boots, min_boots=3) == ["b"]
    _, report = learn_order(boots, image=None, min_boots=2)
    assert (report.boots, report.seldom) == (3, 1)


def test_a_boot_that_goes_on_for_longer_does_not_pull_its_beginning_forward() -> None:
    short = read_files("a", "b", "c", created="1")
    long = read_files("a", "b", "c", *(f"late-{n}" for n in range(50)), created="2")
    assert order_of(short, long)[:4] == ["a", "b", "c", "late-0"]


def test_what_one_boot_alone_reads_stays_between_its_neighbours() -> None:
    assert order_of(
        read_files("a", "x", "b", "c", created="1"), read_files("a", "b", "c", created="2")
    ) == ["a", "x", "b", "c"]


names = st.lists(st.sampled_from([f"f{n}" for n in range(12)]), min_size=1, max_size=30)


@given(st.lists(names, min_size=1, max_size=4), st.integers(1, 4))
def test_the_order_is_a_permutation_of_what_enough_boots_read(
    boots: list[list[str]], least: int
) -> None:
    least = min(least, len(boots))
    traces = [read_files(*files, created=str(number)) for number, files in enumerate(boots)]
    order = order_of(*traces, min_boots=least)
    assert len(order) == len(set(order))
    assert set(order) == {
        name for name in set().union(*boots) if sum(name in files for files in boots) >= least
    }


@given(st.lists(names, min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_the_list_does_not_depend_on_the_order_of_the_traces(
    boots: list[list[str]], shuffler: object
) -> None:
    traces = [read_files(*files, created=str(number)) for number, files in enumerate(boots)]
    expected = format_sort_list(learn_order(traces, image=None)[0])
    shuffler.shuffle(traces)  # type: ignore[attr-defined]
    assert format_sort_list(learn_order(traces, image=None)[0]) == expected


@given(names, st.integers(1, 4))
def test_the_same_boot_several_times_is_that_boot(files: list[str], times: int) -> None:
    assert order_of(*[read_files(*files)] * times) == order_of(read_files(*files))


def test_two_real_boots_agree_on_nearly_all() -> None:
    loop, direct = read_trace(LOOP), read_trace(DIRECT)
    merged = order_of(loop, direct)
    assert merged == order_of(direct, loop)
    assert set(merged) == {path.decode() for path in loop.paths + direct.paths}
    assert len(order_of(loop, direct, min_boots=2)) > 0.95 * len(merged)
    read = [entry.path for entry in learn_order([loop, direct], image=None)[0].hot if entry.pages]
    assert b"usr/lib/systemd/systemd" in read[:5]


@pytest.fixture
def large(tmp_path: Path) -> Image:
    """An image with a file of 24 blocks that do not compress."""
    tree = tmp_path / "tree"
    tree.mkdir()
    noise = bytes(range(256)) * 512
    with (tree / "large").open("wb") as file:
        for number in range(24):
            key = number * 37 + 11
            file.write(bytes((byte * key + key) & 255 for byte in noise))
    for name in ("a", "b"):
        (tree / name).write_text(name)
    (tree / "here").mkdir()
    bootpress.pack(tree, tmp_path / "image", options=PackOptions(codec="none"))
    return Image(tmp_path / "image")


def test_a_file_of_which_one_part_is_read_goes_to_the_end(large: Image) -> None:
    boot = make_boot([("pages", b"large", 0, 32), ("pages", b"a", 0, 1), ("pages", b"b", 0, 1)])
    sort_list, report = learn_order([boot], image=large)
    assert orders_of(sort_list) == (["large", "a", "b"], ["a", "b", "large"])
    assert report.last == (b"large",)


def test_a_file_that_is_read_here_and_there_stays(large: Image) -> None:
    # Twelve parts, each an access of its own without the stream that takes all in.
    parts: list[Row] = [("pages", b"large", 64 * part, 32) for part in range(12)]
    boot = make_boot([*parts, ("pages", b"a", 0, 1)])
    sort_list, report = learn_order([boot], image=large)
    assert [entry.path for entry in sort_list.hot] == [b"large", b"a"]
    assert report.last == ()


def test_what_the_image_does_not_have_is_counted(large: Image) -> None:
    sort_list, report = learn_order([read_files("a", "gone")], image=large)
    assert [entry.path for entry in sort_list.hot] == [b"a"]
    assert report.missing == 1


def test_the_header_tells_where_the_list_comes_from() -> None:
    boots = [
        replace(read_files("a", created="2026-11-20T12:00:00Z"), kernel="6.1", image_digest="x"),
        replace(read_files("a", created="2026-11-21T12:00:00Z"), kernel="6.2", image_digest="y"),
    ]
    sort_list, _ = learn_order(boots, image=None, tool="bootpress 9")
    assert sort_list.provenance == (
        ("kernel", "6.1, 6.2"),
        ("image", "x, y"),
        ("boots", "2"),
        ("date", "2026-11-21"),
        ("tool", "bootpress 9"),
    )


def test_traces_of_the_disk_need_their_image() -> None:
    boot = replace(BLANK, events=(Event(0, "read", -1, 0, 4096),))
    with pytest.raises(UsageError, match="needs its image"):
        learn_order([boot], image=None)


@pytest.mark.parametrize("least", [0, 3])
def test_an_impossible_number_of_boots_is_refused(least: int) -> None:
    with pytest.raises(UsageError, match="there are 2"):
        learn_order([read_files("a"), read_files("b")], image=None, min_boots=least)


def test_no_traces_are_refused() -> None:
    with pytest.raises(UsageError, match="no traces"):
        learn_order([], image=None)
