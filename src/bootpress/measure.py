# SPDX-License-Identifier: GPL-2.0-or-later
"""Boots images in turn and tells what each boot cost."""

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bootpress.errors import UsageError
from bootpress.medium import inspect_disk
from bootpress.model import AnyPath, Monitor
from bootpress.record import Boot, BootOptions, prepare_boot, run_boot
from bootpress.simulate import measure_seeks

# The median of three leaves one odd boot without a say.
STANDARD_RUNS = 3


@dataclass(frozen=True, slots=True)
class BootFigures:
    """What one boot cost, from the machine's start to the boot's end.

    Attributes:
        seconds: wall time, the machine's firmware included.
        cpu_seconds: that the emulator took; what does not depend on the medium.
        bytes_read: of the disk, as QEMU counts them.
        reads: of the disk, as QEMU counts them.
        jumps: reads that did not begin where the one before them ended.
        seek_bytes: the distance that those jumped, forwards or backwards.
    """

    seconds: float
    cpu_seconds: float
    bytes_read: int
    reads: int
    jumps: int
    seek_bytes: int


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle and the ends of some values, in their unit."""

    median: float
    minimum: float
    maximum: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """What the boots of one image cost.

    Attributes:
        image: as given.
        medium: what its disk imitated.
        attach: how it was mounted; "unknown" for what boots by itself.
        accel: "kvm" or "tcg".
        until: what ended the boots.
        boots: in their order (length: the number of runs).
    """

    image: str
    medium: str
    attach: str
    accel: str
    until: str
    boots: tuple[BootFigures, ...]

    def spread(self, figure: Callable[[BootFigures], float]) -> Spread:
        """Return the spread of a figure: ``spread(lambda boot: boot.seconds)``."""
        values = [figure(boot) for boot in self.boots]
        return Spread(statistics.median(values), min(values), max(values))


def measure_boots(
    sources: Sequence[AnyPath],
    *,
    options: BootOptions | None = None,
    runs: int = STANDARD_RUNS,
    monitor: Monitor | None = None,
) -> tuple[Measurement, ...]:
    """Boot each of some images, ISOs or disks several times, in turn, and return what it cost.

    In turn (A B A B), so that a machine that becomes busier is so for all of them.

    Args:
        sources: what to boot (length N).
        options: how, the same for all.
        runs: boots of each.
        monitor: called about once a second with the boots that are done; what it raises stops the
            measurement.

    Returns:
        One for each source (length N).

    Raises:
        UsageError: nothing to boot, no runs, or options that clash.
        SourceError: a source is missing, unreadable, or holds no SquashFS image.
        BootError: a boot hung, panicked, or never came to its end.
        MissingToolError: QEMU or another program is not installed.
    """
    options = options or BootOptions()
    if not sources or runs < 1:
        raise UsageError("nothing to measure: at least one image and one run are wanted")
    disks = [inspect_disk(source) for source in sources]
    boots: list[list[Boot]] = [[] for _ in disks]
    total = runs * len(disks)
    with ExitStack() as stack:
        # Made once: the boots are what is measured.
        starters = [stack.enter_context(prepare_boot(disk, options)) for disk in disks]
        for number in range(total):
            which = number % len(disks)
            if monitor is not None:
                monitor("boot", 0, 0, number, total)
            boots[which].append(
                run_boot(
                    disks[which],
                    starters[which],
                    options,
                    monitor=_count_boots(monitor, number, total),
                )
            )
    return tuple(
        Measurement(
            image=str(disk.path),
            medium=options.medium.name,
            attach=options.attach if starter.is_neutral else "unknown",
            accel=done[0].accel,
            until=done[0].until,
            boots=tuple(_to_figures(boot) for boot in done),
        )
        for disk, starter, done in zip(disks, starters, boots, strict=True)
    )


def _count_boots(monitor: Monitor | None, done: int, total: int) -> Monitor | None:
    if monitor is None:
        return None
    return lambda stage, _, __, ___, ____: monitor(stage, 0, 0, done, total)


def _to_figures(boot: Boot) -> BootFigures:
    jumps, distance = measure_seeks((read.offset, read.length) for read in boot.reads)
    return BootFigures(
        seconds=boot.seconds,
        cpu_seconds=boot.cpu_seconds,
        bytes_read=boot.statistics.bytes_read,
        reads=boot.statistics.reads,
        jumps=jumps,
        seek_bytes=distance,
    )
