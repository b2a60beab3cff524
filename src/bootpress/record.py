# SPDX-License-Identifier: GPL-2.0-or-later
"""Boots a machine and records what the boot reads: in the guest, at the virtual disk, or both."""

import hashlib
import math
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import bootpress
from bootpress.errors import BootError, TraceError, UsageError
from bootpress.guest import find_kernel, make_initramfs, read_release
from bootpress.image import Image
from bootpress.imagemap import ImageMap
from bootpress.medium import Disk, DiskImage, inspect_disk, open_image
from bootpress.model import CHUNK_BYTES, AnyPath, Monitor
from bootpress.profile import NO_MEDIUM, Medium
from bootpress.qemu import (
    Accel,
    Bus,
    DiskRead,
    DiskStatistics,
    Firmware,
    Machine,
    MachineOptions,
    parse_block_log,
    read_qemu_version,
)
from bootpress.trace import PAGE_BYTES, Event, EventKind, Trace, TraceSource

# As initramfs/functions.sh has them.
SIGNAL_PORT = "org.bootpress.signal"
TRACE_PORT = "org.bootpress.trace"
TRACE_END = b"# bootpress end\n"

STANDARD_UNTIL = "multi-user.target"
# systemd.unit(5): what an --until that names a unit ends in.
UNIT_SUFFIXES = (".target", ".service")
# What the guest needs to send its record: 2 MB/s over a port of an emulated machine, and spare.
SEND_SECONDS = 120.0
# A panic ends the machine at once (-no-reboot); few words on the console, which is slow.
COMMAND_LINE = "console=ttyS0 panic=-1 quiet"
# MiB for each CPU to record into. 117,000 events of Debian 12's boot to multi-user took 6 of them.
BUFFER_MIB = 32
# MiB. With so much the neutral initramfs starts on Debian 12's kernel, and says what it lacks.
LEAST_MEMORY = 128
# What Linux calls the disk, by its bus.
DEVICES: dict[Bus, str] = {"virtio": "/dev/vda", "cd": "/dev/sr0", "usb": "/dev/sda"}


@dataclass(frozen=True, slots=True)
class BootOptions:
    """How to boot.

    Attributes:
        image: the name of the image that counts, where there are several; None is the largest.
        kernel: a bzImage to start; None is a bare image's own, or what the firmware finds.
        initrd: goes with ``kernel``, instead of the neutral initramfs.
        append: words for the kernel's command line, where a kernel is started here.
        attach: how the neutral initramfs mounts a bare image.
        until: what ends the boot: a systemd unit, seconds since the machine's start, or a text on
            the serial console. None is multi-user.target, for a bare image.
        medium: what the disk's speed imitates.
        bus: how the disk is attached.
        firmware: what starts an ISO or a disk.
        accel: "kvm", "tcg" or "auto".
        memory: of the machine, MiB.
        cpus: of the machine.
        timeout: seconds until a boot that did not end is given up.
    """

    image: str | None = None
    kernel: AnyPath | None = None
    initrd: AnyPath | None = None
    append: str = ""
    attach: Literal["loop", "direct"] = "loop"
    until: str | None = None
    medium: Medium = NO_MEDIUM
    bus: Bus = "virtio"
    firmware: Firmware = "bios"
    accel: Accel = "auto"
    memory: int = 2048
    cpus: int = 2
    timeout: float = 600.0

    def __post_init__(self) -> None:
        if not 0 < self.timeout < math.inf:
            raise UsageError(f"no boot ends within {self.timeout} seconds")
        if self.memory < LEAST_MEMORY:
            raise UsageError(
                f"no system boots in {self.memory} MiB",
                hint=f"give the machine {LEAST_MEMORY} MiB or more",
            )
        if self.cpus < 1:
            raise UsageError(f"no machine has {self.cpus} CPUs")


@dataclass(frozen=True, slots=True)
class Boot:
    """What one boot did.

    Attributes:
        seconds: from the machine's start to the boot's end, wall time.
        cpu_seconds: that QEMU took for it.
        statistics: what QEMU counted at the disk until then.
        reads: of the disk until then, as they began.
        started_at: of the machine, seconds since 1970.
        begun_at: when the neutral initramfs said that it is there; None without one.
        record: what the guest's kernel recorded, as it writes it; empty where it did not.
        block_log: QEMU's log of the reads.
        console: what came from the serial console.
        accel: "kvm" or "tcg".
        until: what ended it, as ``BootOptions.until`` has it.
    """

    seconds: float
    cpu_seconds: float
    statistics: DiskStatistics
    reads: tuple[DiskRead, ...]
    started_at: float
    begun_at: float | None
    record: bytes
    block_log: bytes
    console: str
    accel: str
    until: str


@dataclass(frozen=True, slots=True)
class Starter:
    """What starts a machine.

    Attributes:
        kernel: a bzImage; None is what the firmware finds on the disk.
        initramfs: goes with it.
        release: the kernel's, "" where unknown.
        is_neutral: whether the initramfs is ours, which can trace and signal.
    """

    kernel: Path | None = None
    initramfs: Path | None = None
    release: str = ""
    is_neutral: bool = False


@contextmanager
def prepare_boot(disk: Disk, options: BootOptions) -> Iterator[Starter]:
    """Make what starts a disk; it is there while the block lasts.

    Raises:
        UsageError: options that clash.
        BootError: a bare image without a kernel.
        MissingToolError: a program for the initramfs is missing.
    """
    if options.initrd is not None and options.kernel is None:
        raise UsageError("an initrd goes with a kernel", hint="give --kernel as well")
    if disk.kind != "image" and options.kernel is None:
        if options.append:
            raise UsageError("the kernel's command line is the boot loader's, on an ISO or disk")
        yield Starter()
        return
    if options.initrd is not None and options.kernel is not None:
        kernel, initrd = Path(os.fsdecode(options.kernel)), Path(os.fsdecode(options.initrd))
        release = read_release(kernel.read_bytes()) or ""
        yield Starter(kernel, initrd, release)
        return
    image = open_image(disk, disk.main_image(options.image))
    with tempfile.TemporaryDirectory(prefix="bootpress-") as name:
        found = find_kernel(image, kernel=options.kernel)
        program, initramfs = Path(name) / "vmlinuz", Path(name) / "initramfs"
        program.write_bytes(found.program)
        make_initramfs(found, initramfs, buses=(options.bus,))
        yield Starter(program, initramfs, found.release, is_neutral=True)


def run_boot(
    disk: Disk,
    starter: Starter,
    options: BootOptions,
    *,
    in_guest: bool = False,
    monitor: Monitor | None = None,
) -> Boot:
    """Boot a disk to the boot's end, and return what it did. The machine is gone then.

    Args:
        disk: what to boot.
        starter: of ``prepare_boot``.
        options: how.
        in_guest: record in the guest as well. REQUIRES: the starter is neutral.
        monitor: called about once a second; what it raises stops the boot.

    Raises:
        UsageError: an end that this boot cannot have.
        BootError: it hung, panicked, or never came to its end.
    """
    end = _parse_until(options, starter)
    machine_options = MachineOptions(
        disk=disk.path,
        bus=options.bus,
        medium=options.medium,
        kernel=starter.kernel,
        initramfs=starter.initramfs,
        command_line=_write_command_line(disk, starter, options, end, in_guest=in_guest),
        firmware=options.firmware,
        memory=options.memory,
        cpus=options.cpus,
        accel=options.accel,
        ports=(SIGNAL_PORT, TRACE_PORT) if starter.is_neutral else (),
    )
    with Machine(machine_options) as machine:
        watch = _Watch(machine, starter, time.monotonic(), options.timeout, monitor)
        begun_at = watch.wait_for_begin()
        seconds = watch.wait_for_end(end)
        ended_at = time.time()
        statistics = machine.query_disk()
        cpu_seconds = machine.measure_cpu_seconds()
        log = machine.read_block_log()
        record = watch.fetch_record() if in_guest else b""
        console = machine.console
    return Boot(
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        statistics=statistics,
        reads=tuple(read for read in parse_block_log(log) if read.at <= ended_at),
        started_at=machine.started_at,
        begun_at=begun_at,
        record=record,
        block_log=log,
        console=console,
        accel=machine.accel,
        until=end.value,
    )


def record_trace(
    source: AnyPath,
    *,
    options: BootOptions | None = None,
    trace_source: TraceSource = "guest",
    monitor: Monitor | None = None,
) -> Trace:
    """Boot an image, an ISO or a disk, and return what the boot read of the SquashFS image.

    In the guest, from the image's mount to the boot's end: pages that entered the page cache and,
    where the guest's kernel takes a probe, each look at metadata. At the virtual disk, from the
    machine's start on: reads that met the image.

    Args:
        source: a SquashFS image with a kernel in it, an ISO, or a disk.
        options: how to boot it.
        trace_source: where to record. "guest" and "both" need a bare image, which is booted by
            the neutral initramfs.
        monitor: called about once a second; what it raises stops the boot.

    Raises:
        UsageError: options that clash.
        SourceError: the source is missing, unreadable, or holds no SquashFS image.
        BootError: the boot hung, panicked, or never came to its end.
        TraceError: what was recorded is damaged or not complete.
        MissingToolError: QEMU or another program is not installed.
    """
    options = options or BootOptions()
    disk = inspect_disk(source)
    image = disk.main_image(options.image)
    in_guest = trace_source != "host"
    with prepare_boot(disk, options) as starter:
        if in_guest and not starter.is_neutral:
            raise UsageError(
                f"{disk.path} boots by itself: nothing in the guest can record",
                hint="use --source host",
            )
        boot = run_boot(disk, starter, options, in_guest=in_guest, monitor=monitor)
    opened = open_image(disk, image)
    events = EventCollector()
    if in_guest:
        shift = 0.0
        if trace_source == "both" and boot.begun_at is not None:
            shift = boot.begun_at - boot.started_at
        events.add_record(parse_record(boot.record), ImageMap(opened), shift=shift)
    if trace_source != "guest":
        events.add_reads(boot.reads, image, started_at=boot.started_at)
    machine = f"{boot.accel}, {read_qemu_version()}"
    if in_guest and not events.has_metadata:
        machine += ", a kernel that takes no probe: without metadata"
    return Trace(
        source=trace_source,
        tool=f"bootpress {bootpress.__version__}",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        kernel=starter.release,
        image=disk.path.name + (f":{image.name}" if image.name else ""),
        image_bytes=image.length,
        image_digest=digest_image(opened),
        block_size=_to_int(opened.info()["block_size"]),
        attach=options.attach if starter.is_neutral else "unknown",
        medium=options.medium.name,
        until=boot.until,
        boot_seconds=round(boot.seconds, 3),
        machine=machine,
        paths=events.paths,
        events=events.in_order(),
    )


def digest_image(image: Image) -> str:
    """Return "sha256:" and the digest of an image's bytes_used.

    Raises:
        OSError: the file cannot be read.
    """
    digest = hashlib.sha256()
    left = _to_int(image.info()["bytes_used"])
    with Path(image.path).open("rb") as file:
        file.seek(image.offset)
        while left and (data := file.read(min(left, CHUNK_BYTES))):
            digest.update(data)
            left -= len(data)
    return f"sha256:{digest.hexdigest()}"


# --- the boot's course -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a boot: a systemd unit, seconds, or a text on the console."""

    kind: Literal["unit", "seconds", "text"]
    value: str


def _parse_until(options: BootOptions, starter: Starter) -> _End:
    until = options.until
    if until is None:
        if not starter.is_neutral:
            raise UsageError(
                "when does this boot end? Only the neutral initramfs can wait for a unit",
                hint="--until SECONDS, or --until TEXT for a text on the serial console",
            )
        until = STANDARD_UNTIL
    if not until or "\n" in until:
        raise UsageError(f"--until {until!r} is no unit, no seconds, and no line of text")
    if re.fullmatch(r"\d+(\.\d+)?", until):
        if float(until) > options.timeout:
            raise UsageError(
                f"the boot is to end after {until} s, past the timeout of {options.timeout:g} s",
                hint="give a longer --timeout",
            )
        return _End("seconds", until)
    if until.endswith(UNIT_SUFFIXES) and re.fullmatch(r"[\w.@:\\-]+", until, re.ASCII):
        if not starter.is_neutral:
            raise UsageError(
                f"only the neutral initramfs can wait for {until}",
                hint="--until SECONDS, or --until TEXT for a text on the serial console",
            )
        return _End("unit", until)
    return _End("text", until)


def _write_command_line(
    disk: Disk, starter: Starter, options: BootOptions, end: _End, *, in_guest: bool
) -> str:
    if starter.kernel is None:
        return ""
    words = [COMMAND_LINE]
    if starter.is_neutral:
        words.append(f"bootpress.ports=yes bootpress.attach={options.attach}")
        image = disk.main_image(options.image)
        if disk.kind == "disk":
            words.append(f"bootpress.device={DEVICES[options.bus]}{image.name}")
        else:
            words.append(f"bootpress.device={DEVICES[options.bus]}")
            words.append(f"bootpress.offset={image.offset}")
        if in_guest:
            # Recording costs nothing that shows: 22.2 CPU seconds with metadata, 22.6 without any
            # (Debian 12 to multi-user under emulation, means of two).
            words.append(f"bootpress.trace=metadata bootpress.buffer={BUFFER_MIB}")
        if end.kind == "unit":
            words.append(f"bootpress.until={end.value}")
    return " ".join([*words, options.append]).strip()


class _Watch:
    """Waits for what a machine is to do, and stops at what it says about failing."""

    def __init__(
        self,
        machine: Machine,
        starter: Starter,
        started: float,
        timeout: float,
        monitor: Monitor | None,
    ) -> None:
        self._machine = machine
        self._starter = starter
        self._started = started
        self._deadline = started + timeout
        self._monitor = monitor

    def wait_for_begin(self) -> float | None:
        """Return when the neutral initramfs took over, seconds since 1970."""
        if not self._starter.is_neutral:
            return None
        self._machine.wait_for(
            lambda: self._find_line("begin"), deadline=self._deadline, what="the initramfs"
        )
        return time.time()

    def wait_for_end(self, end: _End) -> float:
        """Return the seconds from the machine's start to the boot's end."""
        if end.kind == "seconds":
            self._machine.wait_until(self._started + float(end.value))
        elif end.kind == "unit":
            self._machine.wait_for(
                lambda: self._find_line("end"), deadline=self._deadline, what=end.value
            )
        else:
            text = end.value
            self._machine.wait_for(
                lambda: self._find_text(text),
                deadline=self._deadline,
                what=f"'{text}' on the console",
            )
        return time.monotonic() - self._started

    def fetch_record(self) -> bytes:
        """Return what the guest's kernel recorded, to the line that says that it is all."""
        self._machine.send(TRACE_PORT, b"send\n")
        self._machine.wait_for(
            lambda: self._machine.received(TRACE_PORT, tail=len(TRACE_END)) == TRACE_END or None,
            deadline=time.monotonic() + SEND_SECONDS,
            what="all of the guest's record",
        )
        return self._machine.received(TRACE_PORT)

    def _find_line(self, wanted: str) -> bool | None:
        self._report()
        lines = self._machine.received(SIGNAL_PORT).decode("utf-8", "replace").splitlines()
        for line in lines:
            if line.startswith("failed "):
                raise BootError(
                    f"the initramfs gave up: {line.removeprefix('failed ')}",
                    hint=self._machine.describe_console(),
                )
        return wanted in lines or None

    def _find_text(self, wanted: str) -> bool | None:
        self._report()
        return wanted in self._machine.console or None

    def _report(self) -> None:
        if self._monitor is not None:
            self._monitor("boot", 0, 0, 0, 0)


# --- the guest's record ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PageEvent:
    """A folio that entered the page cache: seconds, inode number, byte in the file, pages."""

    at: float
    inode: int
    offset: int
    pages: int


@dataclass(frozen=True, slots=True)
class MetadataEvent:
    """A look at metadata: seconds, the unit's address in the image, byte in the unit, bytes."""

    at: float
    block: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Record:
    """What the guest's kernel recorded, by its own clock.

    Attributes:
        begin: when the recording began, in seconds.
        end: when it ended.
        events: in their order (length N).
    """

    begin: float
    end: float
    events: tuple[PageEvent | MetadataEvent, ...]


# "  (udev-worker)-123   [001] .....    12.345678: mm_filemap_add_to_page_cache: dev 7:0 ino 4d2
# pfn=0x1f4 ofs=4096 order=0": a name may hold spaces. Older kernels print no order.
_RECORD_LINE = re.compile(rb"\s(\d+)\.(\d{6}): (\w+): (.*)")
_PAGE_EVENT = re.compile(
    rb"dev \d+:\d+ ino ([0-9a-f]+) (?:page=\S+ )?pfn=\S+ ofs=(\d+)(?: order=(\d+))?"
)
_METADATA_EVENT = re.compile(
    rb"\(squashfs_read_metadata\+\S+(?: \[squashfs\])?\) dev=\d+ "
    rb"block=(\d+) offset=(-?\d+) length=(-?\d+)"
)
_LOST_LINE = re.compile(rb"# lost (.+) (\d+)")
_PROBE_LINE = re.compile(rb"# probe\s+(\S+)\s+(\d+)\s+(\d+)")


def parse_record(text: bytes) -> Record:
    """Read what the guest's kernel wrote (ftrace's "trace" file, and what send_trace.sh adds).

    Raises:
        TraceError: it is cut short or damaged, or the kernel lost events.
    """
    if not text.endswith(TRACE_END):
        raise TraceError("the guest's record is cut short: its last line is missing")
    begin: float | None = None
    end: float | None = None
    events: list[PageEvent | MetadataEvent] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(b"#"):
            _check_losses(line)
            continue
        found = _RECORD_LINE.search(line)
        if found is None:
            if line.strip():
                raise TraceError(f"line {number} of the guest's record is no event: {line[:80]!r}")
            continue
        at = int(found[1]) + int(found[2]) / 1e6
        name, rest = found[3], found[4]
        if name == b"tracing_mark_write":
            begin = at if rest == b"bootpress begin" else begin
            end = at if rest == b"bootpress end" else end
        elif name == b"mm_filemap_add_to_page_cache" and (page := _PAGE_EVENT.fullmatch(rest)):
            events.append(PageEvent(at, int(page[1], 16), int(page[2]), 1 << int(page[3] or 0)))
        elif name == b"metadata" and (look := _METADATA_EVENT.fullmatch(rest)):
            events.append(MetadataEvent(at, int(look[1]), int(look[2]), int(look[3])))
        else:
            raise TraceError(f"line {number} of the guest's record is damaged: {line[:80]!r}")
    if begin is None or end is None:
        raise TraceError("the guest's record lacks its beginning or its end")
    return Record(begin, end, tuple(events))


def _check_losses(line: bytes) -> None:
    lost = _LOST_LINE.fullmatch(line)
    if lost and int(lost[2]):
        raise TraceError(
            f"the guest's kernel lost {int(lost[2])} events ({lost[1].decode('ascii', 'replace')})",
            hint="they do not fit into its buffer: end the boot earlier (--until)",
        )
    probe = _PROBE_LINE.fullmatch(line)
    if probe and int(probe[3]):
        raise TraceError(f"the guest's kernel missed {int(probe[3])} looks at metadata")


class EventCollector:
    """Collects a trace's paths and events; neighbours that say one thing become one."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._events: list[Event] = []

    @property
    def paths(self) -> tuple[bytes, ...]:
        """The paths, as the events number them."""
        return tuple(self._numbers)

    @property
    def has_metadata(self) -> bool:
        """Whether any event is about an inode or a listing."""
        return any(event.kind in {"inode", "listing"} for event in self._events)

    def in_order(self) -> tuple[Event, ...]:
        """Return the events in the order of their time."""
        return tuple(sorted(self._events, key=lambda event: event.at))

    def add_record(self, record: Record, image_map: ImageMap, *, shift: float = 0.0) -> None:
        """Add what the guest recorded.

        Args:
            record: by the guest's clock.
            image_map: of the image that was booted.
            shift: seconds from the trace's beginning to the record's.

        Raises:
            TraceError: pages of an inode that the image does not have.
        """
        sizes: dict[bytes, int] = {}
        for event in record.events:
            at = max(0, round((event.at - record.begin + shift) * 1e6))
            if isinstance(event, MetadataEvent):
                place = image_map.locate_metadata(event.block, event.offset, event.length)
                # None: the tables of ids, fragments and xattrs, which follow from the inode.
                if place is not None:
                    kind, path, first, length = place
                    self._add(at, kind, path, first, length)
                continue
            name = image_map.path_of_inode(event.inode)
            if name is None:
                raise TraceError(
                    f"the guest read pages of inode {event.inode}, which the image does not have",
                    hint="the image must be the one that was booted",
                )
            if name not in sizes:
                sizes[name] = image_map.image.stat(name).size
            # The kernel reads ahead past a file's end, where nothing is.
            first_page = event.offset // PAGE_BYTES
            pages = -(-sizes[name] // PAGE_BYTES)
            count = min(event.pages, pages - first_page)
            if count > 0:
                self._add(at, "pages", name, first_page, count)

    def add_reads(
        self, reads: tuple[DiskRead, ...], image: DiskImage, *, started_at: float
    ) -> None:
        """Add the reads of a disk that met an image on it, from its first byte on.

        Args:
            reads: of the whole disk.
            image: where it lies there.
            started_at: the trace's beginning, seconds since 1970.
        """
        # Images are padded to whole pages (squashfs-tools and bootpress alike), which are read.
        end = image.offset + -(-image.length // PAGE_BYTES) * PAGE_BYTES
        for read in reads:
            first = max(read.offset, image.offset)
            length = min(read.offset + read.length, end) - first
            if length > 0:
                at = max(0, round((read.at - started_at) * 1e6))
                self._events.append(Event(at, "read", -1, first - image.offset, length))

    def _add(self, at: int, kind: EventKind, path: bytes, first: int, length: int) -> None:
        number = self._numbers.setdefault(path, len(self._numbers))
        if self._events:
            last = self._events[-1]
            if (last.kind, last.path) == (kind, number) and (
                last.first + last.length == first
                if kind == "pages"
                else last.first <= first <= last.first + last.length
            ):
                until = max(last.first + last.length, first + length)
                self._events[-1] = replace(last, length=until - last.first)
                return
        self._events.append(Event(at, kind, number, first, length))


def _to_int(value: int | str | None) -> int:
    if not isinstance(value, int):
        raise TypeError(f"not a number: {value!r}")
    return value
