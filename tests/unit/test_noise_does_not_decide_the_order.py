# SPDX-License-Identifier: GPL-2.0-or-later
"""Readers that walk everything: put into a recorded boot, they change nothing but the report."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import bootpress
from bootpress import Image, PackOptions
from bootpress.learn import learn_order
from bootpress.sortlist import SortList
from bootpress.trace import Event, EventKind, Trace
from boots import DIRECT, LOOP, make_booted_tree, read_boot

Row = tuple[EventKind, str, int, int]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    folder = tmp_path_factory.mktemp("noise")
    make_booted_tree(folder / "tree", read_boot(LOOP), read_boot(DIRECT))
    bootpress.pack(
        folder / "tree",
        folder / "image",
        options=PackOptions(codec="lz4", cold_order="path"),
    )
    return Image(folder / "image")


def put_into(trace: Trace, rows: Iterable[Row], *, at: int, every: int = 20) -> Trace:
    """Return the trace with another reader's events from event ``at`` on.

    One of the boot's own events comes between each ``every`` of them. What the reader has looked
    at is in the caches then: the boot's own first looks that come later do not show any more.
    """
    paths = list(trace.paths)
    places = {path: number for number, path in enumerate(paths)}
    events = list(trace.events[:at])
    looked = {trace.path_of(event) for event in events if event.kind == "inode"}
    later = list(trace.events[at:])
    walked: set[bytes] = set()
    for number, (kind, name, first, length) in enumerate(rows):
        path = name.encode()
        if kind == "inode" and path in looked:
            continue
        walked.add(path)
        if path not in places:
            places[path] = len(paths)
            paths.append(path)
        events.append(Event(events[-1].at, kind, places[path], first, length))
        if number % every == 0 and later:
            own = later.pop(0)
            events.append(replace(own, at=events[-1].at))
    now = events[-1].at
    for event in later:
        if event.kind == "inode" and trace.path_of(event) in walked:
            continue
        events.append(replace(event, at=max(event.at, now)))
    return replace(trace, paths=tuple(paths), events=tuple(events))


def find_everything(image: Image) -> list[Row]:
    """What ``find / -ls`` does: each directory's listing, then each entry's inode."""
    rows: list[Row] = []
    for entry in image.values():
        rows.append(("inode", entry.path, 0, 32))
        if entry.stat.type == "directory":
            rows.append(("listing", entry.path, 0, entry.layout.listing_bytes))
    return rows


def checksum_everything(image: Image) -> list[Row]:
    """What ``find -type f -exec sha256sum`` does: that, and all pages of each file."""
    rows: list[Row] = []
    for row in find_everything(image):
        rows.append(row)
        stat = image.stat(row[1])
        if row[0] == "inode" and stat.type == "file" and stat.size:
            rows.append(("pages", row[1], 0, -(-stat.size // 4096)))
    return rows


def learn(image: Image, *traces: Trace) -> tuple[list[str], SortList]:
    sort_list, report = learn_order(traces, image=image)
    return [noise.kind for noise in report.noise], sort_list


@pytest.mark.parametrize("boot", [LOOP, DIRECT])
def test_a_boot_is_no_noise(image: Image, boot: Path) -> None:
    kinds, sort_list = learn(image, read_boot(boot))
    assert kinds == []
    assert {entry.path for entry in sort_list.hot} == set(read_boot(boot).paths)
    assert learn_order([read_boot(boot)], image=None)[1].noise == ()


@pytest.mark.parametrize("at", [30, 400, 1200])
def test_a_search_for_files_leaves_no_trace_in_the_list(image: Image, at: int) -> None:
    boot = read_boot(LOOP)
    noisy = put_into(boot, find_everything(image), at=at)
    kinds, sort_list = learn(image, noisy)
    assert kinds == ["walk"]
    _, clean = learn(image, boot)
    data = [entry.path for entry in clean.hot if entry.pages]
    # All that is read stays, in its order; of the rest hardly anything comes in.
    assert [entry.path for entry in sort_list.hot if entry.pages] == data
    added = {entry.path for entry in sort_list.hot} - {entry.path for entry in clean.hot}
    assert len(added) < 0.05 * len(image)


@pytest.mark.parametrize("at", [400, 1200])
def test_a_checksum_of_every_file_does_not_make_everything_hot(image: Image, at: int) -> None:
    boot = read_boot(LOOP)
    noisy = put_into(boot, checksum_everything(image), at=at)
    kinds, sort_list = learn(image, noisy)
    assert kinds == ["walk"]
    before = {boot.path_of(e) for e in boot.events[:at] if e.kind == "pages"}
    hot = [entry.path for entry in sort_list.hot if entry.pages]
    # What was read ahead of it is there; the cold files are not.
    assert before <= {entry.path for entry in sort_list.hot}
    assert not any(path.startswith(b"srv/") for path in hot)
    assert sum(b"cold-" in path for path in hot) < 0.05 * len(image)


def test_another_boot_gives_back_what_a_walk_hid(image: Image) -> None:
    noisy = put_into(read_boot(LOOP), checksum_everything(image), at=400)
    _, both = learn(image, noisy, read_boot(DIRECT))
    assert set(read_boot(DIRECT).paths) <= {entry.path for entry in both.hot}


def test_a_walk_is_told_with_its_size(image: Image) -> None:
    noisy = put_into(read_boot(LOOP), find_everything(image), at=400)
    _, report = learn_order([noisy], image=image)
    (noise,) = report.noise
    assert noise.boot == noisy.created
    assert noise.paths > 2000
    assert noise.directories > 80
    assert noise.at_seconds == pytest.approx(noisy.events[400].at / 1e6, abs=0.2)
    assert noise.example.decode() in image


def test_a_walk_is_seen_without_the_image_as_well(image: Image) -> None:
    noisy = put_into(read_boot(LOOP), find_everything(image), at=400)
    _, report = learn_order([noisy], image=None)
    assert [noise.kind for noise in report.noise] == ["walk"]


def test_a_reading_of_one_whole_directory_is_no_walk(image: Image) -> None:
    # As udev reads all its rules.
    rows: list[Row] = []
    for number in range(30):
        rows.append(("inode", f"srv/007/file-{number}", 0, 32))
        rows.append(("pages", f"srv/007/file-{number}", 0, 1))
    noisy = put_into(read_boot(LOOP), rows, at=400)
    kinds, sort_list = learn(image, noisy)
    assert kinds == []
    assert b"srv/007/file-7" in {entry.path for entry in sort_list.hot}


def test_a_read_ahead_list_in_disk_order_goes_behind_what_was_read_in_turn(image: Image) -> None:
    # Every seventh file of the tree, as they lie in the image.
    boot = read_boot(LOOP)
    files = [entry for entry in image.values() if entry.path.startswith("srv/")]
    files = [entry for entry in files if entry.stat.type == "file"]
    place: Callable[[bootpress.Entry], tuple[int, int]] = lambda entry: (  # noqa: E731
        entry.layout.fragment_extent.offset if entry.layout.fragment_extent else 0,
        entry.layout.tail.offset if entry.layout.tail else 0,
    )
    listed: Sequence[bootpress.Entry] = sorted(files, key=place)[::7]
    assert len(listed) > 300
    noisy = put_into(boot, [("pages", e.path, 0, 1) for e in listed], at=100, every=10**6)
    # The rule asks for the image that was booted: another one's order says nothing.
    assert learn(image, noisy)[0] == []
    noisy = replace(noisy, image_bytes=int(str(image.info()["bytes_used"])))
    kinds, sort_list = learn(image, noisy)
    assert kinds == ["disk order"]
    hot = [entry.path for entry in sort_list.hot if entry.pages]
    own = [entry.path for entry in learn(image, boot)[1].hot if entry.pages]
    cold = {entry.path.encode() for entry in listed}
    assert set(hot) == set(own) | cold
    # A few of the boot's own, next to it and by chance in its order, go with it.
    ahead = hot[: len(own) - 5]
    assert not cold & set(ahead)
    assert ahead == [path for path in own if path in set(ahead)]


def test_a_stream_of_the_disk_is_left_out(image: Image) -> None:
    boot = read_boot(LOOP)
    size = int(str(image.info()["bytes_used"]))
    layout = image.layout("usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.so")
    own = [Event(1, "read", -1, block.offset, block.length) for block in layout.blocks]
    stream = [Event(9, "read", -1, at, 1 << 17) for at in range(0, 64 << 20, 1 << 17)]
    disk = replace(boot, source="host", paths=(), events=(*own, *stream), image_bytes=size)
    _, report = learn_order([disk], image=image)
    assert [(noise.kind, noise.bytes_read) for noise in report.noise] == [("stream", 64 << 20)]
    sort_list, _ = learn_order([disk], image=image)
    hot = {entry.path for entry in sort_list.hot if entry.pages}
    assert hot == {b"usr/lib/x86_64-linux-gnu/systemd/libsystemd-shared-252.so"}


def test_fragments_that_the_disk_read_are_no_read_ahead_list(image: Image) -> None:
    # Seven fragments, the way apart: hundreds of files each, listed as they lie in them.
    size = int(str(image.info()["bytes_used"]))
    fragments = [(at, length) for at, length, _ in image.native.fragments()]
    reads = [Event(n, "read", -1, *where) for n, where in enumerate(fragments[::3])]
    disk = replace(read_boot(LOOP), source="host", paths=(), events=tuple(reads), image_bytes=size)
    sort_list, report = learn_order([disk], image=image)
    assert report.noise == ()
    assert report.fragments_guessed > 300
    assert len(sort_list.hot) > report.fragments_guessed
    assert any("sharing a fragment" in warning for warning in report.warnings)
