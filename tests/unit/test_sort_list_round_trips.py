# SPDX-License-Identifier: GPL-2.0-or-later
"""Any list that a dialect can hold comes back as it went in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bootpress.errors import SortListError
from bootpress.model import escape_name
from bootpress.sortlist import (
    MKSQUASHFS_HIGHEST,
    SortEntry,
    SortList,
    format_sort_list,
    parse_sort_list,
    unescape_name,
)

names = st.binary(min_size=1, max_size=40).filter(
    lambda name: b"/" not in name and b"\0" not in name and name != b"."
)
paths = st.lists(names, min_size=1, max_size=4).map(b"/".join)
unique_paths = st.lists(paths, max_size=12, unique=True)


@st.composite
def page_ranges(draw: st.DrawFn) -> tuple[tuple[int, int], ...]:
    edges = sorted(draw(st.sets(st.integers(0, 10**6), max_size=8)))
    return tuple(zip(edges[::2], edges[1::2], strict=False))


@given(st.binary())
def test_escaped_names_are_one_printable_line_and_come_back(name: bytes) -> None:
    text = escape_name(name)
    assert text.isprintable()
    assert unescape_name(text.encode()) == name


@given(unique_paths, unique_paths, st.data())
def test_own_format_keeps_everything(
    hot: list[bytes], last: list[bytes], data: st.DataObject
) -> None:
    # A path may stand twice, for its inode and for its data.
    named = data.draw(st.permutations([*hot, *data.draw(st.lists(st.sampled_from(hot or [b"p"])))]))
    entries = (
        *(
            SortEntry(p, i - len(named), metadata_only=True)
            if data.draw(st.booleans())
            else SortEntry(p, i - len(named), pages=data.draw(page_ranges()))
            for i, p in enumerate(named)
        ),
        *(SortEntry(p, i, pages=data.draw(page_ranges())) for i, p in enumerate(last, 1)),
    )
    provenance = (("kernel", "6.1.0"), ("image", "sha256:00"), ("tool", "bootpress 0.1.0: x"))
    written = SortList(entries, provenance)
    assert parse_sort_list(format_sort_list(written)) == written


@given(unique_paths, unique_paths)
def test_mksquashfs_style_keeps_the_order(hot: list[bytes], last: list[bytes]) -> None:
    last = [path for path in last if path not in hot]
    try:
        data = format_sort_list(SortList.from_paths(hot, last=last), "mksquashfs")
    except SortListError:
        assert any(b"\n" in path for path in hot + last)
        return
    back = parse_sort_list(data, style="mksquashfs")
    # A listed directory's priority would hold for what is in it, so it is left out.
    kept = [p for p in hot if not any(other.startswith(p + b"/") for other in hot)]
    kept_last = [p for p in last if not any(other.startswith(p + b"/") for other in last)]
    # mksquashfs reads "name/*" as the directory "name"; nothing else changes on the way.
    if not any(path.endswith(b"/*") for path in hot + last):
        assert [entry.path for entry in back.hot] == kept
        assert [entry.path for entry in back.last] == kept_last


@given(unique_paths, unique_paths)
def test_gensquashfs_style_keeps_the_order(hot: list[bytes], last: list[bytes]) -> None:
    last = [path for path in last if path not in hot]
    try:
        data = format_sort_list(SortList.from_paths(hot, last=last), "gensquashfs")
    except SortListError:
        assert any(b"\n" in path for path in hot + last)
        return
    back = parse_sort_list(data, style="gensquashfs")
    assert len(back.hot) == len(hot)
    assert len(back.last) == len(last)
    exact = {entry.path for entry in back.entries if entry.reach.value == "exact"}
    assert exact <= {*hot, *last}


def test_a_long_mksquashfs_list_is_written_in_groups() -> None:
    names = [f"f{index:06}" for index in range(MKSQUASHFS_HIGHEST * 2 + 5)]
    data = format_sort_list(SortList.from_paths(names), "mksquashfs")
    back = parse_sort_list(data, style="mksquashfs")
    assert [entry.path.decode() for entry in back.hot] == names
    priorities = [int(line.split()[1]) for line in data.splitlines()]
    assert priorities == sorted(priorities, reverse=True)
    assert min(priorities) >= 1
    assert priorities[:4] == [MKSQUASHFS_HIGHEST] * 3 + [MKSQUASHFS_HIGHEST - 1]


def test_a_list_of_exactly_all_priorities_has_each_once() -> None:
    names = [str(index) for index in range(MKSQUASHFS_HIGHEST)]
    data = format_sort_list(SortList.from_paths(names), "mksquashfs")
    assert [int(line.split()[1]) for line in data.splitlines()] == list(
        range(MKSQUASHFS_HIGHEST, 0, -1)
    )


@pytest.mark.parametrize("style", ["mksquashfs", "gensquashfs"])
def test_a_name_with_a_line_break_is_refused_by_foreign_styles(style: str) -> None:
    with pytest.raises(SortListError, match="cannot name"):
        format_sort_list(SortList.from_paths([b"a\nb"]), style)


@pytest.mark.parametrize("style", ["mksquashfs", "gensquashfs"])
def test_foreign_styles_have_each_path_once_where_its_data_goes(style: str) -> None:
    entries = (
        SortEntry(b"a", -6, metadata_only=True),
        SortEntry(b"b", -5, metadata_only=True),
        SortEntry(b"c", -4),
        SortEntry(b"b", -3, pages=((0, 3),)),
        SortEntry(b"c", -2),
        SortEntry(b"b", 1),
    )
    alone = (SortEntry(b"c", -4), SortEntry(b"b", -3))
    assert format_sort_list(SortList(entries), style) == format_sort_list(SortList(alone), style)
