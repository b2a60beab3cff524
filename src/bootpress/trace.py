# SPDX-License-Identifier: GPL-2.0-or-later
"""Traces: what one boot read of an image, and when.

A trace file is one zstd frame (with its checksum) of JSON lines::

    {"format": "bootpress trace", "version": 1, "source": "guest", "kernel": "6.1.0-18-amd64", …}
    ["path", "usr/lib/systemd/systemd"]
    ["inode", 1042, 0, 0, 56]
    ["pages", 1180, 0, 0, 16]
    ["read", 1181, 4194304, 131072]
    ["end", 3]

The first line is the header, with every field of ``Trace`` but paths and events. ``path`` lines
number the paths that follow them from 0, relative to the root (the root is ""), bytes that are not
UTF-8 as surrogate escapes. All other lines are events in the order of their time: kind,
microseconds since the trace began, path (not in ``read``), first, length; see ``Event``. The last
line counts the events, so that a trace that was cut short is told from a whole one.
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import BinaryIO, Literal, get_args

import zstandard

from bootpress.errors import SourceError, TraceError
from bootpress.model import AnyPath, decode_path
from bootpress.output import open_whole

FORMAT = "bootpress trace"
VERSION = 1
PAGE_BYTES = 4096
# Above this a header is none: it guards against a file that is one endless line.
LONGEST_LINE = 1 << 20
# A block of a frame takes 4 bytes at least and is 128 KiB at most: so much at once never makes more
# than 8 MiB of lines.
INPUT_BYTES = 256
# Traces are kept and sent around; at this level one of 100,000 events takes a tenth of a second.
ZSTD_LEVEL = 12

EventKind = Literal["pages", "inode", "listing", "read"]
TraceSource = Literal["guest", "host", "both"]
Attach = Literal["loop", "direct", "unknown"]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that a boot read.

    Attributes:
        at: microseconds since the trace began.
        kind: "pages": pages of a file or symlink entered the page cache. "inode": bytes of an
            inode's record (a file's block list is part of it) were looked at. "listing": bytes of
            a directory's listing were. "read": the disk read bytes of the image.
        path: index into ``Trace.paths``; -1 for "read".
        first: "pages": the first page of 4 KiB; "inode", "listing": bytes from the record's or the
            listing's start; "read": bytes from the image's start.
        length: "pages": how many; otherwise bytes.
    """

    at: int
    kind: EventKind
    path: int
    first: int
    length: int


@dataclass(frozen=True, slots=True)
class Trace:
    """What one boot read.

    Attributes:
        source: where the events come from: inside the guest, the virtual disk, or both.
        tool: name and version of what recorded it.
        created: when, ISO 8601 in UTC.
        kernel: release of the kernel that booted, "" where unknown.
        image: the image's file name, for people.
        image_bytes: its superblock's bytes_used.
        image_digest: "sha256:" and the hex digest of those bytes.
        block_size: bytes.
        attach: how the image was mounted: through a loop device, or directly as the disk.
        medium: the medium's name that the disk imitated, "none" for an unthrottled disk.
        until: what counted as the boot's end, as ``--until`` takes it.
        boot_seconds: from the machine's start to that end, wall time.
        machine: accelerator and emulator, for people: "tcg, QEMU 7.2.22".
        paths: names in the image, relative to the root.
        events: in the order of their time (length N).
    """

    source: TraceSource
    tool: str
    created: str
    kernel: str
    image: str
    image_bytes: int
    image_digest: str
    block_size: int
    attach: Attach
    medium: str
    until: str
    boot_seconds: float
    machine: str
    paths: tuple[bytes, ...]
    events: tuple[Event, ...]

    def path_of(self, event: Event) -> bytes:
        """Return the path that an event is about. REQUIRES: its kind is not "read"."""
        return self.paths[event.path]


_BODY = {"paths", "events"}
_TEXTS = {
    "source": get_args(TraceSource),
    "attach": get_args(Attach),
}


def write_trace(trace: Trace, target: Path) -> None:
    """Write a trace file; it is there whole or not at all.

    Raises:
        TargetError: it cannot be written.
    """
    compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True)
    text = "".join(f"{line}\n" for line in _format_lines(trace))
    with open_whole(target) as file:
        file.write(compressor.compress(text.encode()))


def read_trace(source: AnyPath) -> Trace:
    """Read a trace file.

    Raises:
        SourceError: it is missing or unreadable.
        TraceError: it is no trace, damaged, cut short, or of a version that is not known here.
    """
    name = os.fsdecode(source)
    try:
        with Path(name).open("rb") as file:
            return _Parser(name).parse(_split_lines(file, name))
    except OSError as error:
        raise SourceError(f"cannot read trace {name}: {error.strerror}") from error
    except zstandard.ZstdError as error:
        raise TraceError(
            f"{name} is no trace, or a damaged one", hint="record it again: bootpress trace"
        ) from error


def _format_lines(trace: Trace) -> Iterator[str]:
    header = {
        field.name: getattr(trace, field.name) for field in fields(trace) if field.name not in _BODY
    }
    yield json.dumps({"format": FORMAT, "version": VERSION, **header})
    for path in trace.paths:
        yield json.dumps(["path", decode_path(path)])
    for event in trace.events:
        where = [event.first, event.length]
        if event.kind != "read":
            where.insert(0, event.path)
        yield json.dumps([event.kind, event.at, *where])
    yield json.dumps(["end", len(trace.events)])


def _split_lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    # Not a stream reader, which takes a frame that was cut for one that ended.
    frame = zstandard.ZstdDecompressor().decompressobj()
    rest = b""
    while not frame.eof and (chunk := file.read(INPUT_BYTES)):
        *lines, rest = (rest + frame.decompress(chunk)).split(b"\n")
        yield from lines
        if len(rest) > LONGEST_LINE:
            raise TraceError(f"{name} is no trace: a line of more than {LONGEST_LINE} bytes")
    if not frame.eof:
        raise TraceError(
            f"{name} is no trace, or was cut short", hint="record it again: bootpress trace"
        )
    if frame.unused_data or file.read(1):
        raise TraceError(f"{name}: something follows the trace's end")
    if rest:
        raise TraceError(f"{name} is cut short in the middle of a line")


class _Parser:
    """Checks every line, so that what comes out can be relied upon."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._number = 0

    def parse(self, lines: Iterable[bytes]) -> Trace:
        header: dict[str, object] | None = None
        paths: list[bytes] = []
        events: list[Event] = []
        trace: Trace | None = None
        for self._number, line in enumerate(lines, 1):
            if trace is not None:
                raise self._error("comes after the end")
            try:
                row = json.loads(line)
            except ValueError:
                raise self._error("not JSON") from None
            if header is None:
                header = self._check_header(row)
            elif not isinstance(row, list) or not row:
                raise self._error("not a list")
            elif row[0] == "path":
                paths.append(self._check_path(row))
            elif row[0] == "end":
                if row != ["end", len(events)]:
                    raise self._error(f"{len(events)} events came before it")
                trace = Trace(**header, paths=tuple(paths), events=tuple(events))  # type: ignore[arg-type]
            else:
                events.append(self._check_event(row, len(paths), events))
        if trace is None:
            raise TraceError(
                f"{self._name} is cut short: it has no end", hint="record it again: bootpress trace"
            )
        return trace

    def _error(self, what: str) -> TraceError:
        return TraceError(f"{self._name}: line {self._number}: {what}")

    def _check_header(self, row: object) -> dict[str, object]:
        if not isinstance(row, dict) or row.get("format") != FORMAT:
            raise TraceError(f"{self._name} is no trace", hint="bootpress trace records them")
        if row.get("version") != VERSION:
            raise TraceError(
                f"{self._name} is a trace of version {row.get('version')}; this reads {VERSION}",
                hint="use the bootpress that recorded it, or record it again",
            )
        header: dict[str, object] = {}
        for field in fields(Trace):
            if field.name in _BODY:
                continue
            value = row.get(field.name)
            wanted: tuple[type, ...] = (str,)
            if field.type is int:
                wanted = (int,)
            elif field.type is float:
                wanted = (int, float)
            if not isinstance(value, wanted) or isinstance(value, bool):
                raise self._error(f"the header's '{field.name}' is {value!r}")
            if field.name in _TEXTS and value not in _TEXTS[field.name]:
                raise self._error(f"the header's '{field.name}' is {value!r}")
            header[field.name] = value
        return header

    def _check_path(self, row: list[object]) -> bytes:
        if len(row) != 2 or not isinstance(row[1], str):
            raise self._error("not a path")
        return row[1].encode("utf-8", "surrogateescape")

    def _check_event(self, row: list[object], path_count: int, events: list[Event]) -> Event:
        kind, *numbers = row
        if kind not in get_args(EventKind):
            raise self._error(f"unknown event {kind!r}")
        count = 3 if kind == "read" else 4
        if len(numbers) != count or not all(type(n) is int and n >= 0 for n in numbers):
            raise self._error(f"{kind}: not {count} numbers")
        at, *where = (int(n) for n in numbers if isinstance(n, int))
        path = -1 if kind == "read" else where.pop(0)
        if path >= path_count:
            raise self._error(f"{kind}: path {path} of {path_count}")
        if events and at < events[-1].at:
            raise self._error("an event earlier than the one before it")
        return Event(at, kind, path, *where)  # type: ignore[arg-type]
