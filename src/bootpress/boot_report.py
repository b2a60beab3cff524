# SPDX-License-Identifier: GPL-2.0-or-later
"""What people see of the loop: traces, what was learnt of them, measurements, simulations.

Figures that are exact come as they are; wall seconds with their spread.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from operator import attrgetter
from pathlib import PurePath

from bootpress.learn import LearnReport, Noise
from bootpress.measure import BootFigures, Measurement
from bootpress.model import escape_name
from bootpress.report import (
    count,
    format_bytes,
    print_rows,
    print_warning,
)
from bootpress.simulate import Simulation
from bootpress.trace import PAGE_BYTES, Trace

JSON_FORMAT = 1
# How many filtered readers and files a report names; the rest is a count.
NAMES_SHOWN = 5


def print_trace_report(trace: Trace, *, target: str) -> None:
    """Print what a trace holds."""
    events = Counter(event.kind for event in trace.events)
    pages = sum(event.length for event in trace.events if event.kind == "pages")
    files = {event.path for event in trace.events if event.kind == "pages"}
    looks = {event.path for event in trace.events if event.kind == "inode"}
    read = sum(event.length for event in trace.events if event.kind == "read")
    rows = [
        ("trace", f"{target}: {count(len(trace.events), 'event')}"),
        ("image", f"{trace.image}, {_describe_attach(trace)}"),
        ("boot", f"{trace.boot_seconds:.1f} s to {trace.until}, {trace.machine}"),
    ]
    if trace.kernel:
        rows.append(("kernel", trace.kernel))
    if events["pages"]:
        read_of_them = format_bytes(pages * PAGE_BYTES)
        rows.append(("read", f"{len(files):,} files and symlinks, {read_of_them} of them"))
    if events["inode"]:
        rows.append(("looked at", f"{len(looks):,} inodes"))
    if events["read"]:
        rows.append(("disk", f"{events['read']:,} reads of the image, {format_bytes(read)}"))
    print_rows(rows)
    if trace.source != "host" and not events["inode"]:
        print_warning(
            "the guest's kernel took no probe: metadata is not in the trace, so directories and "
            "files that are only looked at will not be in the sort list"
        )


def _describe_attach(trace: Trace) -> str:
    return {
        "loop": "mounted through a loop device",
        "direct": "mounted directly",
        "unknown": "mounted as the boot itself decided",
    }[trace.attach]


# --- order --------------------------------------------------------------------------------------


def print_learn_report(report: LearnReport, *, target: str) -> None:
    """Print what a sort list was made of, and what was left out and why."""
    rows = [
        ("sort list", f"{target}, of {count(report.boots, 'boot')}"),
        ("files", f"{report.files:,} whose data is read"),
        ("metadata only", f"{report.metadata_only:,} that are only looked at"),
    ]
    if report.hot_bytes:
        rows.append(("hot data", f"{format_bytes(report.hot_bytes)} as stored"))
    if report.last:
        rows.append(("read in part", f"{count(len(report.last), 'large file')}, placed last"))
    if report.seldom:
        rows.append(("seldom", f"{report.seldom:,} left out: too few boots read them"))
    if report.missing:
        rows.append(("missing", f"{report.missing:,} left out: the image does not have them"))
    print_rows(rows)
    for noise in report.noise[:NAMES_SHOWN]:
        print_warning(_describe_noise(noise))
    if len(report.noise) > NAMES_SHOWN:
        print_warning(f"and {len(report.noise) - NAMES_SHOWN} more readers like these")
    for warning in report.warnings:
        print_warning(warning)


def _describe_noise(noise: Noise) -> str:
    when = f"boot of {noise.boot}, after {noise.at_seconds:.1f} s"
    example = escape_name(noise.example)
    match noise.kind:
        case "walk":
            return (
                f"{when}: something walked through {noise.directories:,} directories from "
                f"{example} on; {noise.paths:,} paths that nothing else needed are left out"
            )
        case "disk order":
            return (
                f"{when}: {noise.paths:,} files from {example} on were read as they lie on the "
                "disk, as a read-ahead list does; they come last, since nobody waited for them"
            )
        case "stream":
            return (
                f"{when}: {format_bytes(noise.bytes_read)} of the disk were read on end, as a "
                "checksum does; left out"
            )


# --- measure and simulate -----------------------------------------------------------------------


def print_measurements(measured: Sequence[Measurement]) -> None:
    """Print one line for each image: medians, and in brackets the least and the most."""
    first = measured[0]
    boots = count(len(first.boots), "boot")
    print(f"{boots} of each to {first.until}, medium {first.medium}, {first.accel}")

    def spread(row: Measurement, name: str, unit: float, digits: int) -> str:
        values = row.spread(attrgetter(name))
        median, low, high = (
            f"{value / unit:,.{digits}f}"
            for value in (values.median, values.minimum, values.maximum)
        )
        return median if len(row.boots) == 1 else f"{median} ({low}–{high})"

    labels = _label_images([row.image for row in measured])
    _print_table(
        ("image", "mounted", "seconds", "CPU seconds", "MB read", "reads", "jumps", "seek GB"),
        [
            (
                label,
                row.attach,
                spread(row, "seconds", 1, 1),
                spread(row, "cpu_seconds", 1, 1),
                spread(row, "bytes_read", 1e6, 1),
                spread(row, "reads", 1, 0),
                spread(row, "jumps", 1, 0),
                spread(row, "seek_bytes", 1e9, 2),
            )
            for label, row in zip(labels, measured, strict=True)
        ],
    )


def format_measurements(measured: Sequence[Measurement], *, version: str) -> str:
    """Return measurements as JSON; seconds, bytes, as ``measure.BootFigures`` has them."""
    figures = tuple(BootFigures.__dataclass_fields__)
    rows = [
        {
            **asdict(row),
            "spread": {name: asdict(row.spread(attrgetter(name))) for name in figures},
        }
        for row in measured
    ]
    return _format_json({"images": rows}, version=version)


def print_simulations(simulated: Sequence[Simulation]) -> None:
    """Print one line for each image, then what asked for the reads."""
    labels = _label_images([row.image for row in simulated])
    print(f"modelled on medium {simulated[0].medium}")
    _print_table(
        ("image", "mounted", "reads", "MB read", "jumps", "seek GB", "seconds"),
        [
            (
                label,
                row.attach,
                f"{row.reads:,}",
                f"{row.bytes_read / 1e6:,.1f}",
                f"{row.jumps:,}",
                f"{row.seek_bytes / 1e9:,.2f}",
                f"{row.seconds:,.2f}",
            )
            for label, row in zip(labels, simulated, strict=True)
        ],
    )
    kinds = sorted({kind for row in simulated for kind in row.kinds})
    print("\nreads by what asked for them (repeats in brackets)")
    _print_table(
        ("image", *kinds),
        [
            (
                label,
                *(
                    f"{row.kinds[kind].reads:,} ({row.kinds[kind].repeats:,})"
                    if kind in row.kinds
                    else "0"
                    for kind in kinds
                ),
            )
            for label, row in zip(labels, simulated, strict=True)
        ],
    )
    for row in simulated:
        if row.missing:
            print_warning(
                f"{row.image} lacks paths of the trace: {count(row.missing, 'event')} left out"
            )


def format_simulations(simulated: Sequence[Simulation], *, version: str) -> str:
    """Return simulations as JSON, without the single reads."""
    rows = []
    for row in simulated:
        table = {name: getattr(row, name) for name in Simulation.__dataclass_fields__}
        del table["disk_reads"]
        table["kinds"] = {kind: asdict(total) for kind, total in row.kinds.items()}
        rows.append(table)
    return _format_json({"images": rows}, version=version)


def _format_json(body: dict[str, object], *, version: str) -> str:
    return json.dumps({"format": JSON_FORMAT, "bootpress": version, **body}, indent=2) + "\n"


def _label_images(paths: Sequence[str]) -> list[str]:
    """Return names for a table's first column: the files', unless two have the same."""
    names = [PurePath(path).name for path in paths]
    return names if len(set(names)) == len(set(paths)) else list(paths)


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for row in (head, *rows):
        # The first column is a name, all others are numbers.
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join(cells).rstrip())
