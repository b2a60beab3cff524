# SPDX-License-Identifier: GPL-2.0-or-later
"""Learning from a recorded boot, packing for it and replaying another boot, end to end."""

from collections.abc import Callable
from pathlib import Path

import pytest

import bootpress
from bootpress import Image, PackOptions
from bootpress.errors import TraceError
from bootpress.learn import learn_order
from bootpress.profile import load_medium
from bootpress.simulate import measure_seeks, simulate_boot
from bootpress.sortlist import format_sort_list, parse_sort_list
from bootpress.trace import Trace
from boots import DIRECT, LOOP, make_booted_tree, read_boot

CD = load_medium("cd")
OPTIONS = PackOptions(codec="lz4", cold_order="path")
Pack = Callable[[str, Trace | None], Image]


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    folder = tmp_path_factory.mktemp("boots")
    tree = folder / "tree"
    make_booted_tree(tree, read_boot(LOOP), read_boot(DIRECT))

    def pack_for(name: str, trace: Trace | None) -> Image:
        sort_list = None
        if trace is not None:
            sort_list, _ = learn_order([trace], image=pack_for("plain", None))
        target = folder / name
        if not target.exists():
            bootpress.pack(tree, target, options=OPTIONS, sort_list=sort_list)
        return Image(target)

    return pack_for


def test_a_list_learned_of_one_boot_speeds_up_another(pack: Pack) -> None:
    plain, sorted_ = pack("plain", None), pack("sorted", read_boot(LOOP))
    other = read_boot(DIRECT)
    before = simulate_boot(other, plain, medium=CD, attach="direct")
    after = simulate_boot(other, sorted_, medium=CD, attach="direct")
    assert after.missing == before.missing == 0
    # Some of these reads are the data's, which are as many in any order.
    assert after.reads < 0.7 * before.reads
    metadata = ("inode table", "directory table", "id table", "fragment table")
    assert sum(after.kinds[kind].reads for kind in metadata) < 0.5 * sum(
        before.kinds[kind].reads for kind in metadata
    )
    before = simulate_boot(other, plain, medium=CD, attach="loop")
    after = simulate_boot(other, sorted_, medium=CD, attach="loop")
    assert after.jumps < 0.7 * before.jumps
    assert after.seconds < 0.8 * before.seconds


def test_the_learned_list_survives_its_file(pack: Pack) -> None:
    learned, _ = learn_order([read_boot(LOOP)], image=pack("plain", None))
    parsed = parse_sort_list(format_sort_list(learned))
    assert parsed.entries == learned.entries
    assert dict(parsed.provenance)["kernel"] == "6.1.0-56-cloud-amd64"
    assert dict(parsed.provenance)["boots"] == "1"
    assert dict(parsed.provenance)["date"] == "2026-11-21"


def test_the_totals_are_those_of_the_reads(pack: Pack) -> None:
    for attach in ("loop", "direct"):
        done = simulate_boot(read_boot(LOOP), pack("plain", None), medium=CD, attach=attach)
        assert done.attach == attach
        assert done.reads == len(done.disk_reads) == sum(k.reads for k in done.kinds.values())
        assert done.bytes_read == sum(read.length for read in done.disk_reads)
        assert (done.jumps, done.seek_bytes) == measure_seeks(
            (read.offset, read.length) for read in done.disk_reads
        )
        assert done.seconds == pytest.approx(done.bytes_read / 3.6e6 + 0.11 * done.jumps)


def test_a_replay_is_repeatable_and_follows_the_trace_where_nothing_is_said(pack: Pack) -> None:
    plain = pack("plain", None)
    first = simulate_boot(read_boot(DIRECT), plain, medium=CD)
    assert first.attach == "direct"
    assert first == simulate_boot(read_boot(DIRECT), plain, medium=CD)


def test_behind_a_loop_device_nothing_is_read_twice_and_directly_the_small_caches_show(
    pack: Pack,
) -> None:
    plain = pack("plain", None)
    loop = simulate_boot(read_boot(LOOP), plain, medium=CD, attach="loop")
    pages = [
        page
        for read in loop.disk_reads
        for page in range(read.offset // 4096, (read.offset + read.length) // 4096)
    ]
    assert len(pages) == len(set(pages))
    assert loop.hottest == ()
    direct = simulate_boot(read_boot(LOOP), plain, medium=CD, attach="direct")
    assert direct.kinds["directory table"].repeats > 0
    kind, index, times = direct.hottest[0]
    unit = [(r.offset, r.length) for r in direct.disk_reads if r.kind == kind and r.repeated]
    assert times > 2
    assert len(unit) >= 2 * (times - 1)
    assert index >= 0


def test_a_trace_of_another_tree_is_refused(small: Path, tmp_path: Path) -> None:
    bootpress.pack(small, tmp_path / "image", options=OPTIONS)
    trace = read_boot(LOOP)
    # The root is in every image.
    keep = [event for event in trace.events if trace.path_of(event) not in {b"", b"etc"}]
    other = Trace(
        **{
            name: getattr(trace, name)
            for name in Trace.__slots__  # type: ignore[attr-defined]
            if name != "events"
        },
        events=tuple(e for e in keep if not trace.path_of(e).startswith((b"usr", b"etc"))),
    )
    with pytest.raises(TraceError, match="has none of the paths"):
        simulate_boot(other, Image(tmp_path / "image"), medium=CD)


def test_paths_that_the_image_lost_are_counted_and_left_out(pack: Pack, tmp_path: Path) -> None:
    plain = pack("plain", None)
    bootpress.pack(
        plain.path,
        tmp_path / "less",
        options=PackOptions(codec="lz4", cold_order="path", excludes=("udev",)),
    )
    trace = read_boot(LOOP)
    lost = sum(b"/udev" in b"/" + trace.path_of(event) for event in trace.events)
    done = simulate_boot(trace, Image(tmp_path / "less"), medium=CD)
    assert 0 < done.missing <= lost
