# SPDX-License-Identifier: GPL-2.0-or-later
"""The one module that talks to people: progress, reports, errors.

Progress and errors go to standard error, results to standard output.
"""

import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import asdict
from typing import TextIO

from bootpress.errors import BootpressError
from bootpress.image import Entry, Image
from bootpress.model import (
    Difference,
    Extent,
    FileLayout,
    Loss,
    PackReport,
    UnpackReport,
    VerifyReport,
    encode_path,
    escape_name,
)

# Where nobody watches a terminal, a line every so often shows that it lives (a CI log's patience
# is minutes; a line every 5 s is read by a person).
PLAIN_INTERVAL_SECONDS = 5.0
# A rewritten line faster than this is flicker, not news.
REWRITE_INTERVAL_SECONDS = 0.1
# The rate of the first moments says nothing about the time left.
ESTIMATE_AFTER_SECONDS = 1.0

_KIND_LETTERS = {
    "directory": "d",
    "file": "-",
    "symlink": "l",
    "block device": "b",
    "char device": "c",
    "fifo": "p",
    "socket": "s",
}


class Progress:
    """Shows how far work is: a monitor for ``pack`` and the other verbs, and a context manager.

    On a terminal one line is rewritten, and cleared at the end; elsewhere there is a plain line
    every few seconds; with ``quiet`` nothing.
    """

    def __init__(self, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._terminal = not quiet and self._stream.isatty()
        self._stage = ""
        self._stage_began = 0.0
        self._shown_at = time.monotonic()
        self._dirty = False

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def __call__(
        self, stage: str, done_bytes: int, total_bytes: int, done_files: int, total_files: int
    ) -> None:
        """Show a stage's state; 0 for a total means that it is unknown."""
        if self._quiet:
            return
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._stage_began = stage, now
        interval = REWRITE_INTERVAL_SECONDS if self._terminal else PLAIN_INTERVAL_SECONDS
        if now - self._shown_at < interval:
            return
        self._shown_at = now
        line = format_progress(
            stage, done_bytes, total_bytes, done_files, total_files, now - self._stage_began
        )
        if self._terminal:
            self._stream.write("\r" + line[: self._width()] + "\x1b[K")
            self._dirty = True
        else:
            self._stream.write(f"bootpress: {line}\n")
        self._stream.flush()

    def clear(self) -> None:
        """Take the line away, so that whatever is printed next starts on a clean one."""
        if self._dirty:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._dirty = False

    def _width(self) -> int:
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except OSError:
            columns = shutil.get_terminal_size().columns
        # The last column would wrap on some terminals.
        return max((columns or 80) - 1, 1)


def format_progress(
    stage: str,
    done_bytes: int,
    total_bytes: int,
    done_files: int,
    total_files: int,
    seconds: float,
) -> str:
    """Return a stage's state in one line: bytes, files, rate, time left."""
    parts = [stage]
    if done_bytes or total_bytes:
        parts.append(_of(format_bytes(done_bytes), total_bytes and format_bytes(total_bytes)))
    if total_bytes:
        parts.append(f"{min(done_bytes / total_bytes, 1):.0%}")
    if done_files or total_files:
        what = "done" if stage == "boot" else "files"
        parts.append(f"{_of(f'{done_files:,}', total_files and f'{total_files:,}')} {what}")
    if stage == "boot":
        # Nothing tells how far a boot is; that the clock goes on shows that it lives.
        parts.append(format_seconds(seconds))
    if done_bytes and seconds > 0:
        rate = done_bytes / seconds
        parts.append(f"{format_bytes(rate)}/s")
        if total_bytes > done_bytes and seconds >= ESTIMATE_AFTER_SECONDS:
            parts.append(f"{format_seconds((total_bytes - done_bytes) / rate)} left")
    return "  ".join(parts)


def _of(done: str, total: str | int) -> str:
    return f"{done} of {total}" if total else done


def format_bytes(size: float) -> str:
    """Return a size for people, in binary units: "17 B", "1.5 KiB", "213 MiB"."""
    unit = "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.1f} {unit}" if unit != "B" and size < 100 else f"{size:.0f} {unit}"


def format_seconds(seconds: float) -> str:
    """Return a duration as m:ss, or h:mm:ss."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    clock = f"{rest // 60}:{rest % 60:02d}"
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else clock


# --- errors -----------------------------------------------------------------------------------


def print_error(error: BootpressError) -> None:
    """Print what happened, and what to do about it."""
    print(f"bootpress: error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"  hint: {error.hint}", file=sys.stderr)


def print_bug(error: BaseException) -> None:
    """Print a traceback: whatever raised this is a fault of bootpress, not of its user."""
    traceback.print_exception(error, file=sys.stderr)
    print(
        "bootpress: error: this is a bug in bootpress; please report it with the lines above",
        file=sys.stderr,
    )


def print_warning(message: str) -> None:
    """Print what deserves attention and stops nothing."""
    print(f"bootpress: warning: {message}", file=sys.stderr)


def print_losses(losses: Iterable[Loss], *, what: str) -> None:
    """Print each kind of loss once, with its count and the first path."""
    for loss in losses:
        name = escape_name(encode_path(loss.example)) or "the root"
        print_warning(f"{what}: {loss.kind} ({count(loss.count, 'file')}, the first is {name})")


# --- pack -------------------------------------------------------------------------------------


def print_pack_report(report: PackReport) -> None:
    """Print what a pack did, for people."""
    options = report.options
    ratio = report.image_bytes / report.input_bytes if report.input_bytes else 1.0
    level = f" level {options.level}" if options.codec != "none" else ""
    branch = f", branch filter {options.bcj}" if options.bcj not in {None, "none"} else ""
    stored = report.data_blocks + report.fragments
    rows = [
        ("image", report.image),
        ("codec", f"{options.codec}{level}, blocks of {format_bytes(options.block_size)}{branch}"),
        ("input", f"{format_bytes(report.input_bytes)} in {count(report.files, 'file')}"),
        ("output", f"{format_bytes(report.image_bytes)}, {ratio:.1%} of the input"),
        (
            "blocks",
            f"{report.data_blocks:,} and {report.fragments:,} fragments; "
            f"{report.raw_blocks:,} of {stored:,} stored raw, {report.hole_blocks:,} holes",
        ),
        (
            "duplicates",
            f"{count(report.duplicate_files, 'file')}, {format_bytes(report.duplicate_bytes)}",
        ),
        ("metadata", f"{format_bytes(report.metadata_bytes)} for {report.inodes:,} inodes"),
    ]
    if report.copied_bytes:
        rows.append(
            (
                "copied",
                f"{format_bytes(report.copied_bytes)} as stored, "
                f"{report.copied_fragments:,} of the fragments among them",
            )
        )
    if report.sort_list is not None:
        rows.append(
            ("hot region", f"{count(report.hot_files, 'file')}, {format_bytes(report.hot_bytes)}")
        )
    rows.append(
        ("seconds", ", ".join(f"{stage} {value:.1f}" for stage, value in report.stages.items()))
    )
    print_rows(rows)
    if report.sort_list is not None:
        for warning in report.sort_list.warnings:
            print_warning(f"sort list {report.sort_list.path}: {warning}")
        if report.sort_list.stale:
            stale = report.sort_list.stale
            match = "1 entry matches" if stale == 1 else f"{stale:,} entries match"
            print_warning(f"sort list {report.sort_list.path}: {match} nothing in the tree")
    print_losses(report.losses, what="SquashFS cannot hold")


def format_pack_report(report: PackReport, *, version: str) -> str:
    """Return the report as JSON. Sizes are bytes, times seconds; names as in ``layout --json``."""
    row = asdict(report)
    row["options"]["excludes"] = [
        pattern if isinstance(pattern, str) else pattern.decode("utf-8", "surrogateescape")
        for pattern in report.options.excludes
    ]
    if report.sort_list is not None:
        row["sort_list"]["provenance"] = dict(report.sort_list.provenance)
    return json.dumps({"format": 1, "bootpress": version, **row}, indent=2) + "\n"


# --- the reading verbs ------------------------------------------------------------------------


def print_unpack_report(report: UnpackReport, *, target: str) -> None:
    """Print what an unpack wrote."""
    print(f"{target}: {report.inodes:,} inodes, {format_bytes(report.bytes)}")


def print_listing(entries: Iterable[Entry]) -> None:
    """Print a line per entry: mode, links, owner, size or device, time in UTC, name, target."""
    write = sys.stdout.write
    for entry in entries:
        stat = entry.stat
        size = "{}, {}".format(*stat.device) if stat.device else str(stat.size)
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(stat.mtime))
        name = escape_name(encode_path(entry.path)) or "."
        arrow = "" if stat.target is None else f" -> {_escape_text(stat.target)}"
        write(
            f"{format_mode(stat.type, stat.mode)} {stat.links:>3} {stat.uid}/{stat.gid} "
            f"{size:>12} {when} {name}{arrow}\n"
        )


def format_mode(kind: str, mode: int) -> str:
    """Return type and permissions as ls(1) shows them."""
    letters = list("rwxrwxrwx")
    for bit in range(9):
        if not mode & (0o400 >> bit):
            letters[bit] = "-"
    for at, bit, letter in ((2, 0o4000, "s"), (5, 0o2000, "s"), (8, 0o1000, "t")):
        if mode & bit:
            letters[at] = letter if letters[at] == "x" else letter.upper()
    return _KIND_LETTERS[kind] + "".join(letters)


def print_info(image: Image, *, as_json: bool) -> None:
    """Print an image's figures."""
    info = {"image": image.path, **image.info()}
    if as_json:
        print(json.dumps(info, indent=2))
    else:
        print_rows(
            [
                (key.replace("_", " "), str(value))
                for key, value in info.items()
                if value is not None and value != ""
            ]
        )


def print_layout(image: Image, *, as_json: bool) -> None:
    """Print where every file lies; as JSON, an object whose ``files`` has one line per path."""
    if not as_json:
        for layout in image.layouts():
            print(format_layout(layout))
        return
    head = {"format": 1, "image": image.path, "block_size": image.info()["block_size"]}
    write = sys.stdout.write
    write(json.dumps(head)[:-1] + ', "files": [')
    separator = "\n"
    for layout in image.layouts():
        write(separator + json.dumps(layout_to_json(layout)))
        separator = ",\n"
    write("\n]}\n")


def layout_to_json(layout: FileLayout) -> dict[str, object]:
    """Return a layout with extents as [offset, length]."""
    return {
        "path": layout.path,
        "inode": layout.inode,
        "type": layout.type,
        "blocks": [_pair(block) for block in layout.blocks],
        "fragment": layout.fragment,
        "fragment_extent": _pair(layout.fragment_extent),
        "tail": _pair(layout.tail),
        "inode_extent": _pair(layout.inode_extent),
        "listing_extent": _pair(layout.listing_extent),
        "reference": layout.reference,
        "listing_reference": layout.listing_reference,
        "listing_bytes": layout.listing_bytes,
    }


def format_layout(layout: FileLayout) -> str:
    """Return a layout in one line; extents as offset+length."""
    parts = [f"inode {layout.inode} in {_span(layout.inode_extent)}"]
    if layout.listing_extent:
        parts.append(f"listing in {_span(layout.listing_extent)}")
    stored = [block for block in layout.blocks if block.length]
    if stored:
        first, end = stored[0].offset, stored[-1].offset + stored[-1].length
        parts.append(f"{len(stored)} blocks in {_span(Extent(first, end - first))}")
    if len(stored) < len(layout.blocks):
        parts.append(f"{len(layout.blocks) - len(stored)} holes")
    if layout.fragment_extent and layout.tail:
        parts.append(
            f"tail {_span(layout.tail)} of fragment {layout.fragment} "
            f"in {_span(layout.fragment_extent)}"
        )
    name = escape_name(encode_path(layout.path)) or "."
    return f"{name}: {'; '.join(parts)}"


def print_verify_report(report: VerifyReport, *, image: str, as_json: bool) -> None:
    """Print what a verification read, and the differences it found."""
    if as_json:
        print(json.dumps({"image": image, **asdict(report)}, indent=2))
        return
    print_differences(report.differences, as_json=False)
    seal = {"intact": "the seal is intact", "absent": "it carries no seal"}.get(report.seal, "")
    print(
        f"{image}: {count(report.files, 'file')}, {count(report.blocks, 'block')}, "
        f"{format_bytes(report.bytes)} read without a fault; {seal}"
    )


def print_differences(differences: Iterable[Difference], *, as_json: bool) -> None:
    """Print one line per difference, or a JSON list."""
    if as_json:
        print(json.dumps([asdict(difference) for difference in differences], indent=2))
        return
    for difference in differences:
        name = escape_name(encode_path(difference.path)) or "."
        values = ""
        if difference.a or difference.b:
            values = f": {_escape_text(difference.a)} | {_escape_text(difference.b)}"
        print(f"{name}: {difference.what}{values}")


def count(number: int, what: str) -> str:
    """Return "1 file", "1,234 files"."""
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"


def _escape_text(text: str) -> str:
    return escape_name(text.encode("utf-8", "surrogateescape"))


def _pair(extent: Extent | None) -> list[int] | None:
    return None if extent is None else [extent.offset, extent.length]


def _span(extent: Extent) -> str:
    return f"{extent.offset}+{extent.length}"


def print_rows(pairs: list[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        print(f"{name:<{width}}  {value}")
