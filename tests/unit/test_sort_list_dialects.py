# SPDX-License-Identifier: GPL-2.0-or-later
"""How each dialect of sort list is read, and told from the others."""

import pytest

from bootpress.errors import SortListError, UsageError
from bootpress.sortlist import Reach, SortEntry, SortList, format_sort_list, parse_sort_list


def hot(data: bytes, style: str = "auto") -> list[bytes]:
    return [entry.path for entry in parse_sort_list(data, style=style).hot]


def test_own_format_has_provenance_pages_comments_and_last() -> None:
    found = parse_sort_list(
        b"#! bootpress sort list 1\n"
        b"# kernel: 6.1.0-18-amd64\n"
        b"# boots: 3\n"
        b"# no pair, so a comment\n"
        b"usr/lib/systemd/systemd\tpages=0-15,20\n"
        b"# later: no provenance\n"
        b"\n"
        b"/usr/bin/a\\tb\n"
        b"#! last\n"
        b"usr/share/doc\n"
    )
    assert found.style == "bootpress"
    assert found.provenance == (("kernel", "6.1.0-18-amd64"), ("boots", "3"))
    assert [(e.path, e.pages) for e in found.hot] == [
        (b"usr/lib/systemd/systemd", ((0, 15), (20, 20))),
        (b"usr/bin/a\tb", ()),
    ]
    assert [e.path for e in found.last] == [b"usr/share/doc"]


def test_a_list_without_the_mark_is_what_find_prints() -> None:
    assert hot(b"./usr/bin/sh\nlib/systemd/system/a\\x2db.slice\nwith space\n") == [
        b"usr/bin/sh",
        b"lib/systemd/system/a\\x2db.slice",
        b"with space",
    ]


def test_own_format_decodes_bytes_that_are_not_utf8() -> None:
    assert hot(b"#! bootpress sort list 1\ncaf\\xe9\n\\x23hash\n") == [b"caf\xe9", b"#hash"]


def test_mksquashfs_higher_comes_first_and_negative_goes_last() -> None:
    found = parse_sort_list(b"a 10\n# c\nb 32767\nsp\\ ace 5\nz -3\ny -9\nnull 0\n")
    assert found.style == "mksquashfs"
    assert [e.path for e in found.hot] == [b"b", b"a", b"sp ace"]
    assert [e.path for e in found.last] == [b"z", b"y"]
    assert {e.reach for e in found.entries} == {Reach.BELOW}


def test_mksquashfs_equal_priorities_keep_list_order_and_the_last_entry_wins() -> None:
    assert hot(b"b 5\na 5\nc 9\nb 2\n", "mksquashfs") == [b"c", b"a", b"b"]


def test_mksquashfs_takes_a_star_below_a_directory_for_the_directory() -> None:
    assert hot(b"usr/bin/* 5\n", "mksquashfs") == [b"usr/bin"]


def test_gensquashfs_lower_comes_first_and_positive_goes_last() -> None:
    found = parse_sort_list(
        b"# comment\n"
        b"-8000  [glob]          bin/*\n"
        b"-1000 [glob_no_path] share/*\n"
        b'-100000 [dont_compress, dont_fragment,nosparse]  "boot/vm \\"x\\" "\n'
        b"1337 /usr/share/my file\n"
        b"7 [dont_compress] x\n"
    )
    assert found.style == "gensquashfs"
    assert [(e.path, e.reach) for e in found.hot] == [
        (b'boot/vm "x" ', Reach.EXACT),
        (b"bin/*", Reach.GLOB),
        (b"share/*", Reach.GLOB_ANY),
    ]
    assert [e.path for e in found.last] == [b"x", b"usr/share/my file"]
    assert found.warnings == (
        "flag 'dont_compress' changes nothing here (2 entries)",
        "flag 'dont_fragment' changes nothing here (1 entry)",
        "flag 'nosparse' changes nothing here (1 entry)",
    )


@pytest.mark.parametrize(
    ("data", "style", "message"),
    [
        (b"10 20\n", "auto", "cannot tell which dialect"),
        (b"a 10\nb\n", "auto", "some lines have a priority and some do not"),
        (b"a 10\n-5 b\n", "auto", "cannot tell"),
        (b"#! bootpress sort list 2\na\n", "auto", "this version does not know"),
        (b"#! bootpress sort list 1\na\\qb\n", "auto", r"line 2: unknown escape '\\\\q'"),
        (b"#! bootpress sort list 1\na\\\n", "auto", "line 2: unknown escape"),
        (b"#! bootpress sort list 1\na\tpages=\n", "auto", "line 2: .*pages"),
        (b"#! bootpress sort list 1\na\tpages=5-3\n", "auto", "not ascending"),
        (b"#! bootpress sort list 1\na\tpages=1,1\n", "auto", "not ascending"),
        (b"#! bootpress sort list 1\na\tpages=1-2-3\n", "auto", "no range"),
        (b"a 32768\n", "auto", "line 1: priority 32768"),
        (b"a -32769\n", "auto", "line 1: priority -32769"),
        (b"a\n", "mksquashfs", "line 1: .* 'path priority'"),
        (b"a 5 6\n", "mksquashfs", "line 1"),
        (b"a\n", "gensquashfs", "line 1: .*priority"),
        (b"1 [shiny] a\n", "gensquashfs", "unknown flag 'shiny'"),
        (b'1 "a\n', "gensquashfs", "unmatched quotation mark"),
        (b"99999999999999999999 a\n", "gensquashfs", "64 bits"),
    ],
)
def test_bad_lists_are_refused_with_the_line(data: bytes, style: str, message: str) -> None:
    with pytest.raises(SortListError, match=message):
        parse_sort_list(data, style=style)


def test_an_ambiguous_list_names_the_option_that_settles_it() -> None:
    with pytest.raises(SortListError) as caught:
        parse_sort_list(b"10 20\n")
    assert "--sort-style" in str(caught.value.hint)
    assert hot(b"10 20\n", "mksquashfs") == [b"10"]
    assert [e.path for e in parse_sort_list(b"10 20\n", style="gensquashfs").last] == [b"20"]
    assert hot(b"10 20\n", "bootpress") == [b"10 20"]


def test_an_unknown_style_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="unknown sort style"):
        parse_sort_list(b"", style="zip")
    with pytest.raises(UsageError, match="cannot write"):
        format_sort_list(SortList(()), "zip")


def test_an_empty_list_is_a_list() -> None:
    assert parse_sort_list(b"") == SortList(())
    assert parse_sort_list(b"\n# only a comment\n").entries == ()


def test_what_a_dialect_has_no_word_for_is_refused() -> None:
    below = parse_sort_list(b"usr 5\n", style="mksquashfs")
    pattern = parse_sort_list(b"-5 [glob] usr/*\n", style="gensquashfs")
    for found, style in ((below, "bootpress"), (below, "gensquashfs"), (pattern, "mksquashfs")):
        with pytest.raises(SortListError):
            format_sort_list(found, style)


def test_writing_leaves_out_what_the_caller_does_not_keep() -> None:
    data = format_sort_list(
        SortList.from_paths(["usr", "usr/a", "usr/b"]), "mksquashfs", keep=lambda p: p != b"usr/b"
    )
    assert data == b"usr/a 32767\n"


def test_a_header_value_must_stay_on_its_line() -> None:
    with pytest.raises(SortListError, match="header"):
        format_sort_list(SortList((), (("kernel", "6.1\nevil"),)))


def test_an_entry_may_be_of_metadata_only() -> None:
    listed = b"#! bootpress sort list 1\na\tpages=none\nb\tpages=0-3\nc\n"
    found = parse_sort_list(listed)
    assert [(e.path, e.metadata_only, e.pages) for e in found.hot] == [
        (b"a", True, ()),
        (b"b", False, ((0, 3),)),
        (b"c", False, ()),
    ]
    assert format_sort_list(found) == listed


def test_metadata_only_behind_everything_else_is_refused() -> None:
    with pytest.raises(SortListError, match=r"line 3: pages=none stands above '#! last' only"):
        parse_sort_list(b"#! bootpress sort list 1\n#! last\na\tpages=none\n")
    with pytest.raises(SortListError, match="'a': pages=none"):
        SortEntry(b"a", 1, metadata_only=True)
    with pytest.raises(SortListError, match="'a': pages=none"):
        SortEntry(b"a", -1, pages=((0, 1),), metadata_only=True)
