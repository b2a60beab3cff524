# SPDX-License-Identifier: GPL-2.0-or-later
"""The loop: trace → order → repack → measure. What each of its verbs does, from end to end.

trace = record(image, "boot.trace")
order(["boot.trace"], "boot.sort", image=image)
repack(image, tuned, sort_list="boot.sort")           # workflow
measure_boots([image, tuned])                         # measure
simulate("boot.trace", [image, tuned])                # without booting
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import bootpress
from bootpress.errors import UsageError
from bootpress.image import Image
from bootpress.learn import LearnReport, learn_order
from bootpress.medium import inspect_disk, open_image
from bootpress.model import AnyPath, Monitor
from bootpress.output import check_target, open_whole
from bootpress.profile import NO_MEDIUM, Medium
from bootpress.record import BootOptions, digest_image, record_trace
from bootpress.simulate import Simulation, simulate_boot
from bootpress.sortlist import SortList, format_sort_list
from bootpress.trace import Trace, TraceSource, read_trace, write_trace


def record(
    source: AnyPath,
    target: AnyPath,
    *,
    options: BootOptions | None = None,
    trace_source: TraceSource = "guest",
    monitor: Monitor | None = None,
) -> Trace:
    """Boot an image, ISO or disk, and write a trace of what the boot reads.

    Args:
        source: a SquashFS image with a kernel in it, an ISO, or a disk.
        target: the trace to write.
        options: how to boot.
        trace_source: "guest", "host" or "both"; see ``record.record_trace``.
        monitor: called about once a second; what it raises stops the boot.

    Raises:
        UsageError, SourceError, BootError, TraceError, MissingToolError: see ``record_trace``.
        TargetError: the trace cannot be written.
    """
    path = Path(os.fsdecode(target))
    check_target(path)  # before half a minute's boot
    trace = record_trace(source, options=options, trace_source=trace_source, monitor=monitor)
    write_trace(trace, path)
    return trace


def order(
    traces: Sequence[AnyPath],
    target: AnyPath,
    *,
    image: AnyPath | None = None,
    style: str = "bootpress",
    min_boots: int = 1,
) -> tuple[SortList, LearnReport]:
    """Write the sort list that one or more traces amount to.

    Args:
        traces: trace files, at least one.
        target: the sort list to write.
        image: the image that was traced, or another of the same tree (an ISO or disk with it will
            do); see ``learn.learn_order`` for what is not known without it.
        style: the list's dialect. The two others know regular files only.
        min_boots: leave out what fewer boots than this read.

    Raises:
        UsageError, SourceError, TraceError: a trace, or the image.
        SortListError: the dialect cannot express a name.
        TargetError: the list cannot be written.
    """
    path = Path(os.fsdecode(target))
    check_target(path)
    read = [read_trace(trace) for trace in traces]
    sort_list, report = learn_order(
        read,
        image=None if image is None else _open_image(image),
        min_boots=min_boots,
        tool=f"bootpress {bootpress.__version__}",
    )
    files = {entry.path for entry in sort_list.entries if entry.pages}
    keep = None if style == "bootpress" else files.__contains__
    text = format_sort_list(sort_list, style, keep=keep)
    with open_whole(path) as file:
        file.write(text)
    return sort_list, report


def simulate(
    trace: AnyPath,
    images: Sequence[AnyPath],
    *,
    medium: Medium = NO_MEDIUM,
    attach: Literal["loop", "direct"] | None = None,
) -> tuple[Simulation, ...]:
    """Return what the traced boot would read of each image, without booting.

    Args:
        trace: a trace file.
        images: images of the traced tree, or ISOs or disks that hold one (length N). A trace of
            the disk alone needs the traced image among them.
        medium: for the modelled seconds.
        attach: how the image is mounted; None: as recorded.

    Raises:
        UsageError: a trace of the disk alone without its image.
        SourceError, TraceError: a trace or image that cannot be read, or that do not fit.
    """
    read = read_trace(trace)
    opened = [_open_image(image) for image in images]
    traced = None
    if all(event.kind == "read" for event in read.events):
        traced = _find_traced(read, opened)
    return tuple(
        simulate_boot(read, image, medium=medium, attach=attach, traced=traced) for image in opened
    )


def is_bare_image(source: AnyPath) -> bool:
    """Tell a SquashFS image from an ISO or a disk that holds one.

    Raises:
        SourceError: it is missing, unreadable, or holds no SquashFS image.
    """
    return inspect_disk(source).kind == "image"


def _open_image(source: AnyPath) -> Image:
    disk = inspect_disk(source)
    return open_image(disk, disk.main_image())


def _find_traced(trace: Trace, images: Sequence[Image]) -> Image:
    for image in images:
        if image.info()["bytes_used"] != trace.image_bytes:
            continue
        if digest_image(image) == trace.image_digest:
            return image
    raise UsageError(
        f"the trace is the disk's: it needs the image that was traced, {trace.image}",
        hint="name that image as well",
    )
