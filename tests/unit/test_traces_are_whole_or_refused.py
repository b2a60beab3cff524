# SPDX-License-Identifier: GPL-2.0-or-later
"""Trace files: what goes in comes out, and what is damaged is refused by name."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from bootpress.errors import SourceError, TraceError
from bootpress.trace import Event, Trace, read_trace, write_trace

TRACE = Trace(
    source="guest",
    tool="bootpress 0.1.0",
    created="2026-11-21T12:00:00Z",
    kernel="6.1.0-56-amd64",
    image="root.squashfs",
    image_bytes=1 << 20,
    image_digest="sha256:00",
    block_size=131072,
    attach="loop",
    medium="none",
    until="multi-user.target",
    boot_seconds=20.5,
    machine="tcg",
    paths=(b"", b"etc", b"caf\xe9\n"),
    events=(
        Event(0, "inode", 0, 0, 32),
        Event(5, "listing", 0, 0, 40),
        Event(5, "pages", 2, 0, 16),
        Event(9, "read", -1, 4096, 131072),
    ),
)


def test_a_trace_comes_back_as_it_was(tmp_path: Path) -> None:
    write_trace(TRACE, tmp_path / "boot.trace")
    assert read_trace(tmp_path / "boot.trace") == TRACE


@given(
    st.lists(st.binary(max_size=20), min_size=1, max_size=5, unique=True),
    st.lists(
        st.tuples(
            st.integers(0, 1000),
            st.sampled_from(["pages", "inode", "listing", "read"]),
            st.integers(0, 4),
            st.integers(0, 1 << 40),
            st.integers(0, 1 << 40),
        ),
        max_size=20,
    ),
)
def test_any_trace_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    paths: list[bytes],
    rows: list[tuple[int, str, int, int, int]],
) -> None:
    rows.sort()
    events = tuple(
        Event(at, kind, -1 if kind == "read" else path % len(paths), first, length)  # type: ignore[arg-type]
        for at, kind, path, first, length in rows
    )
    target = tmp_path_factory.getbasetemp() / "any.trace"
    trace = replace(TRACE, paths=tuple(paths), events=events)
    write_trace(trace, target)
    assert read_trace(target) == trace


@pytest.fixture
def written(tmp_path: Path) -> Path:
    write_trace(TRACE, tmp_path / "boot.trace")
    return tmp_path / "boot.trace"


def _rewrite(path: Path, lines: list[object]) -> None:
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    path.write_bytes(zstandard.ZstdCompressor(write_checksum=True).compress(text.encode()))


def _lines(path: Path) -> list[object]:
    text = zstandard.ZstdDecompressor().decompress(path.read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def test_a_missing_trace_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"none\.trace"):
        read_trace(tmp_path / "none.trace")


def test_every_cut_is_noticed(written: Path) -> None:
    whole = written.read_bytes()
    for length in range(len(whole)):
        written.write_bytes(whole[:length])
        with pytest.raises(TraceError, match=r"boot\.trace"):
            read_trace(written)


def test_no_flipped_bit_goes_unnoticed(written: Path) -> None:
    whole = written.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        written.write_bytes(damaged)
        try:
            trace = read_trace(written)
        except TraceError:
            continue
        # A bit of the frame's header that changes nothing, as its window's size may.
        assert trace == TRACE


@pytest.mark.parametrize("content", [b"", b"hsqs" + bytes(92), b"\x28\xb5\x2f\xfd" + bytes(60)])
def test_what_is_no_trace_is_refused(written: Path, content: bytes) -> None:
    written.write_bytes(content)
    with pytest.raises(TraceError, match=r"boot\.trace"):
        read_trace(written)


def test_another_version_is_refused_with_both(written: Path) -> None:
    lines = _lines(written)
    lines[0] = {**dict(lines[0]), "version": 2}  # type: ignore[call-overload]
    _rewrite(written, lines)
    with pytest.raises(TraceError, match="version 2; this reads 1"):
        read_trace(written)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("attach", "sideways"),
        ("source", 1),
        ("image_bytes", "many"),
        ("boot_seconds", None),
        ("block_size", True),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(written: Path, key: str, value: object) -> None:
    lines = _lines(written)
    lines[0] = {**dict(lines[0]), key: value}  # type: ignore[call-overload]
    _rewrite(written, lines)
    with pytest.raises(TraceError, match=f"line 1: the header's '{key}'"):
        read_trace(written)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["pages", 6, 3, 0, 1], "path 3 of 3"),
        (["pages", 6, 0, -1, 1], "not 4 numbers"),
        (["pages", 6, 0, 1.5, 1], "not 4 numbers"),
        (["pages", 6, 0, 1], "not 4 numbers"),
        (["read", 6, 0, 1, 1], "not 3 numbers"),
        (["pages", 4, 0, 0, 1], "earlier"),
        (["inodes", 6, 0, 0, 1], "unknown event"),
        (["path", 1], "not a path"),
        ("pages", "not a list"),
        (["end", 99], "4 events came before it"),
    ],
)
def test_a_line_that_makes_no_sense_is_refused_with_its_number(
    written: Path, line: object, told: str
) -> None:
    lines = _lines(written)
    lines[-1:-1] = [line]
    _rewrite(written, lines)
    with pytest.raises(TraceError, match=rf"line {len(lines) - 1}: .*{told}"):
        read_trace(written)


def test_a_trace_without_its_end_is_refused(written: Path) -> None:
    _rewrite(written, _lines(written)[:-1])
    with pytest.raises(TraceError, match="cut short: it has no end"):
        read_trace(written)


def test_an_endless_line_is_refused_before_it_fills_the_memory(written: Path) -> None:
    frame = zstandard.ZstdCompressor().compress(b"[" * (64 << 20))
    written.write_bytes(frame)
    with pytest.raises(TraceError, match="a line of more than"):
        read_trace(written)


@pytest.mark.parametrize("more", [b"\0", b"a second trace"])
def test_nothing_may_follow_the_end(written: Path, more: bytes) -> None:
    with written.open("ab") as file:
        file.write(more)
    with pytest.raises(TraceError, match="follows"):
        read_trace(written)


def test_no_line_may_follow_the_end(written: Path) -> None:
    _rewrite(written, [*_lines(written), ["end", 4]])
    with pytest.raises(TraceError, match="comes after the end"):
        read_trace(written)
