# SPDX-License-Identifier: GPL-2.0-or-later
"""What the guest's kernel recorded: a real record's lines, and the same with damage."""

from pathlib import Path

import pytest

from bootpress.errors import TraceError
from bootpress.record import MetadataEvent, PageEvent, parse_record

# Cut from a boot of Debian 12 (kernel 6.1): the mount, the first process, and the end.
REAL = (Path(__file__).parents[1] / "data/guest.ftrace").read_bytes()


def test_a_real_record() -> None:
    record = parse_record(REAL)
    assert record.begin == 3.952890
    assert record.end == 12.777412
    # The first look at metadata is the mount's at the root inode.
    assert record.events[0] == MetadataEvent(3.996955, block=132223131, offset=4177, length=16)
    pages = [event for event in record.events if isinstance(event, PageEvent)]
    assert pages == [PageEvent(4.161044, inode=0x13F, offset=0, pages=1)]
    assert [event.at for event in record.events] == sorted(event.at for event in record.events)


def test_folios_of_several_pages_and_names_with_spaces() -> None:
    line = (
        b"      (sd exec) 1-7 [000] .....     4.200000: mm_filemap_add_to_page_cache: "
        b"dev 7:0 ino ff pfn=0x10 ofs=16384 order=2\n"
    )
    record = parse_record(REAL.replace(b"# probe", line + b"# probe"))
    assert record.events[-1] == PageEvent(4.2, inode=255, offset=16384, pages=4)


def test_kernels_that_print_a_page_and_no_order() -> None:
    line = (
        b"   init-1 [000] .....     4.2000000: x\n"
        b"   init-1 [000] ....     4.200000: mm_filemap_add_to_page_cache: "
        b"dev 7:0 ino ff page=00000000a34a5c1e pfn=16 ofs=4096\n"
    ).partition(b"\n")[2]
    record = parse_record(REAL.replace(b"# probe", line + b"# probe"))
    assert record.events[-1] == PageEvent(4.2, inode=255, offset=4096, pages=1)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9, 0.99])
def test_a_record_that_is_cut_short(share: float) -> None:
    with pytest.raises(TraceError, match="cut short"):
        parse_record(REAL[: int(len(REAL) * share)])


def test_events_that_were_lost() -> None:
    with pytest.raises(TraceError, match="lost 17 events \\(dropped events\\)") as caught:
        parse_record(REAL.replace(b"lost dropped events 0", b"lost dropped events 17", 1))
    assert "--until" in (caught.value.hint or "")


def test_looks_at_metadata_that_the_probe_missed() -> None:
    lines = [
        line.replace(b" 0", b" 3") if line.startswith(b"# probe") else line
        for line in REAL.splitlines(keepends=True)
    ]
    with pytest.raises(TraceError, match="missed 3 looks"):
        parse_record(b"".join(lines))


@pytest.mark.parametrize(
    ("whole", "damaged"),
    [
        (b"ino 13f", b"ino xyz"),
        (b"ofs=0", b"ofs="),
        (b"block=132223131", b"block=-"),
        (b"mm_filemap_add_to_page_cache: ", b"something_else: "),
        (b"     3.996955: ", b"     "),
    ],
)
def test_a_damaged_line_is_named(whole: bytes, damaged: bytes) -> None:
    assert whole in REAL
    with pytest.raises(TraceError, match=r"line \d+ of the guest's record"):
        parse_record(REAL.replace(whole, damaged, 1))


@pytest.mark.parametrize("marker", [b"bootpress begin", b"bootpress end\n# probe"])
def test_a_record_without_its_ends(marker: bytes) -> None:
    with pytest.raises(TraceError, match="beginning or its end"):
        parse_record(REAL.replace(marker, b"nothing\n# probe", 1))
