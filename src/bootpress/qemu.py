# SPDX-License-Identifier: GPL-2.0-or-later
"""A virtual machine: QEMU, its console and ports, its disk's speed, and a log of its reads."""

import functools
import json
import os
import re
import select
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeVar, get_args

from bootpress.errors import BootError, MissingToolError, TraceError, UsageError
from bootpress.proc import (
    describe_status,
    format_command,
    measure_cpu_seconds,
    run_program,
    start_program,
    tail_text,
)
from bootpress.profile import NO_MEDIUM, Medium

QEMU = "qemu-system-x86_64"
Accel = Literal["auto", "kvm", "tcg"]
Bus = Literal["virtio", "cd", "usb"]
Firmware = Literal["bios", "uefi"]

# Says which accelerator to take where "auto" was asked for, as in CI.
ACCEL_VARIABLE = "BOOTPRESS_ACCEL"
# Debian's package ovmf; -bios takes the image of code and variables in one.
UEFI_FIRMWARE = Path("/usr/share/ovmf/OVMF.fd")

CONSOLE = "console"
_MONITOR = "monitor"

# Of the console, what fits into a hint.
CONSOLE_LINES = 20
# What the kernel says last; panic=-1 on its command line ends the machine then.
PANIC = b"Kernel panic - not syncing"
# CSI and OSC sequences, other escapes, and what remains of carriage returns.
_ANSI = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_c]|\r")

# Every read that reaches a disk's back end, after the device has split it and before the throttle
# delays it (QEMU's block/trace-events). One that the log's format does not match is an error.
READ_EVENT = "blk_co_preadv"
_READ_LINE = re.compile(
    rb"(?:\d+@)?(?P<seconds>\d+)\.(?P<micros>\d{6}):blk_co_preadv blk 0x[0-9a-f]+ bs 0x[0-9a-f]+ "
    rb"offset (?P<offset>\d+) bytes (?P<bytes>\d+) flags 0x[0-9a-f]+"
)

# A boot sector that counts to 2**28, then writes 42 to port 0xf4, where QEMU's isa-debug-exit ends
# the machine with (42 << 1) | 1: cli; mov ecx, 2**28; dec ecx; jnz; mov al, 42; mov dx, 0xf4;
# out dx, al; hlt. Emulated it takes 1.0 s on the machine that this was written on, with working
# KVM 0.1 s; with a KVM that opens and is of no use it did not come to its end in 40 s.
PROBE = bytes.fromhex("fa66b900000010664975fcb02abaf400eef4").ljust(510, b"\0") + b"\x55\xaa"
PROBE_STATUS = 85
PROBE_SECONDS = 5.0

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """A machine with one disk.

    Attributes:
        disk: the file that is its disk, read only.
        bus: how the disk is attached.
        medium: what the disk's speed imitates.
        kernel: a bzImage to start with; None leaves it to the firmware.
        initramfs: goes with it.
        command_line: the kernel's.
        firmware: what starts from the disk where there is no kernel.
        memory: MiB.
        cpus: how many.
        accel: what runs the code.
        ports: names of virtio-serial ports that the guest is to see.
    """

    disk: Path
    bus: Bus = "virtio"
    medium: Medium = NO_MEDIUM
    kernel: Path | None = None
    initramfs: Path | None = None
    command_line: str = ""
    firmware: Firmware = "bios"
    memory: int = 2048
    cpus: int = 2
    accel: Accel = "auto"
    ports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DiskRead:
    """One read of the virtual disk.

    Attributes:
        at: when it began, seconds since 1970.
        offset: bytes from the disk's start.
        length: bytes.
    """

    at: float
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class DiskStatistics:
    """What QEMU counted at the disk (query-blockstats).

    Attributes:
        reads: how many.
        bytes_read: bytes.
    """

    reads: int
    bytes_read: int


@dataclass(slots=True)
class _Channel:
    """Our end of a serial line, a port or the monitor, and all that came from it."""

    name: str
    socket: socket.socket
    received: bytearray = field(default_factory=bytearray)
    closed: bool = False


class Machine:
    """A virtual machine, started on entry and gone on exit, whatever leaves the block.

    Example:
        >>> with Machine(MachineOptions(disk=Path("live.iso"), bus="cd")) as machine:
        ...     machine.wait_for(
        ...         lambda: "login:" in machine.console or None,
        ...         deadline=time.monotonic() + 300,
        ...         what="a login prompt",
        ...     )
        ...     machine.query_disk()
    """

    def __init__(self, options: MachineOptions) -> None:
        if "\0" in options.command_line or "\n" in options.command_line:
            raise UsageError("the kernel's command line is one line")
        self.options = options
        self.accel = choose_accel(options.accel)
        self._channels: dict[str, _Channel] = {}
        self._stack = ExitStack()
        self._lines_seen = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._directory = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="bootpress-"))
            )
            theirs = [
                self._open_channel(stack, name) for name in (CONSOLE, _MONITOR, *self.options.ports)
            ]
            self.command = self._list_arguments([end.fileno() for end in theirs])
            self._output = stack.enter_context((self._directory / "output").open("w+b"))
            self.started_at = time.time()
            self._process = stack.enter_context(
                start_program(
                    self.command,
                    output=self._output,
                    descriptors=[end.fileno() for end in theirs],
                )
            )
            # Only QEMU holds the other ends from here, so that its end is the end of the lines.
            for end in theirs:
                end.close()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def console(self) -> str:
        """What came from the serial console so far, without control sequences."""
        return strip_ansi(bytes(self._channels[CONSOLE].received))

    def received(self, channel: str, *, tail: int = 0) -> bytes:
        """Return what came from the console or a port so far, or its last ``tail`` bytes."""
        return bytes(self._channels[channel].received[-tail:])

    def send(self, channel: str, message: bytes) -> None:
        """Write to the console or a port.

        Raises:
            BootError: the machine is gone.
        """
        try:
            self._channels[channel].socket.sendall(message)
        except OSError as error:
            raise self._end_error(f"the machine does not listen at {channel}") from error

    def wait_until(self, deadline: float) -> None:
        """Let the machine run until then. Raises BootError, as ``wait_for`` does, if it ends."""
        while (left := deadline - time.monotonic()) > 0:
            self._check_alive("its time was up")
            self._pump(left)

    def wait_for(
        self, condition: Callable[[], _Result | None], *, deadline: float, what: str
    ) -> _Result:
        """Let the machine run until a condition is there, and return it.

        Args:
            condition: looked at whenever something came from the machine; None is "not yet".
            deadline: by ``time.monotonic``.
            what: what is waited for, for the error.

        Raises:
            BootError: the kernel panicked, the machine ended, or the deadline passed.
        """
        while (result := condition()) is None:
            self._check_alive(f"{what} came")
            left = deadline - time.monotonic()
            if left <= 0:
                raise BootError(
                    f"the machine ran out of time before {what} came", hint=self.describe_console()
                )
            self._pump(left)
        return result

    def query_disk(self) -> DiskStatistics:
        """Return what QEMU counted at the disk since the machine's start.

        Raises:
            BootError: the machine is gone.
        """
        rows = self._execute("query-blockstats")
        if isinstance(rows, list):
            for row in rows:
                # "/machine/peripheral/disk/virtio-backend" and the like: our id, and the device's.
                if isinstance(row, dict) and "disk" in row.get("qdev", "").split("/"):
                    counts = row["stats"]
                    return DiskStatistics(counts["rd_operations"], counts["rd_bytes"])
        raise BootError("QEMU tells nothing about the disk", hint=self.describe_console())

    def measure_cpu_seconds(self) -> float:
        """Return the CPU seconds that QEMU has taken."""
        return measure_cpu_seconds(self._process.pid)

    def read_block_log(self) -> bytes:
        """Return QEMU's log of the disk's reads so far, for ``parse_block_log``."""
        return (self._directory / "reads").read_bytes()

    def _open_channel(self, stack: ExitStack, name: str) -> socket.socket:
        ours, theirs = socket.socketpair()
        stack.enter_context(ours)
        stack.enter_context(theirs)
        self._channels[name] = _Channel(name, ours)
        return theirs

    def _list_arguments(self, descriptors: list[int]) -> tuple[str, ...]:
        options = self.options
        (self._directory / "events").write_text(f"{READ_EVENT}\n", encoding="ascii")
        console, monitor, *ports = descriptors
        arguments = [
            *("-nodefaults", "-no-user-config", "-display", "none", "-device", "VGA"),
            *("-no-reboot", "-machine", "pc", "-smp", str(options.cpus)),
            *("-m", str(options.memory)),
            *("-chardev", f"socket,id=console,fd={console}", "-serial", "chardev:console"),
            *(
                "-chardev",
                f"socket,id=monitor,fd={monitor}",
                "-mon",
                "chardev=monitor,mode=control",
            ),
            *("-msg", "timestamp=on", "-D", str(self._directory / "reads")),
            *("-trace", f"events={self._directory / 'events'}"),
            *list_accel_arguments(self.accel),
            *_list_disk_arguments(options),
        ]
        if ports:
            arguments += ["-device", "virtio-serial-pci"]
        for number, (name, descriptor) in enumerate(zip(options.ports, ports, strict=True)):
            arguments += ["-chardev", f"socket,id=port{number},fd={descriptor}"]
            arguments += ["-device", f"virtserialport,chardev=port{number},name={name}"]
        if options.kernel is not None:
            arguments += ["-kernel", str(options.kernel), "-append", options.command_line]
            if options.initramfs is not None:
                arguments += ["-initrd", str(options.initramfs)]
        elif options.firmware == "uefi":
            if not UEFI_FIRMWARE.is_file():
                raise MissingToolError(
                    f"no UEFI firmware at {UEFI_FIRMWARE}", hint="apt-get install ovmf"
                )
            arguments += ["-bios", str(UEFI_FIRMWARE)]
        return (QEMU, *arguments)

    def _pump(self, seconds: float) -> None:
        """Take what comes within that time; return at once when something came."""
        open_channels = [channel for channel in self._channels.values() if not channel.closed]
        ready, _, _ = select.select(
            [channel.socket for channel in open_channels], [], [], min(seconds, 1.0)
        )
        for channel in open_channels:
            if channel.socket in ready:
                try:
                    data = channel.socket.recv(1 << 20)
                except ConnectionResetError:
                    data = b""
                channel.received += data
                channel.closed = not data

    def _check_alive(self, before: str) -> None:
        if PANIC in self._channels[CONSOLE].received:
            # The reason is on the same line: let it come to its end. A backtrace follows it.
            self._drain(0.5)
            text, panic, rest = self.console.partition(PANIC.decode())
            reason = panic + rest.partition("\n")[0]
            raise BootError(
                f"the kernel panicked before {before}: {reason}", hint=tail_console(text + reason)
            )
        if self._channels[_MONITOR].closed or self._process.poll() is not None:
            self._drain(0.5)
            raise self._end_error(f"the machine ended before {before}")

    def _drain(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if all(channel.closed for channel in self._channels.values()):
                break
            self._pump(left)

    def _end_error(self, message: str) -> BootError:
        """Return the error for a machine that is gone, with what QEMU says about it."""
        try:
            status = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return BootError(message, hint=self.describe_console())
        if status == 0:
            return BootError(f"{message}: it switched itself off", hint=self.describe_console())
        self._output.seek(0)
        complaint = tail_text(self._output.read())
        return BootError(
            f"{message}: QEMU ended with {describe_status(status)}",
            hint=f"{complaint}\nagain: {format_command(self.command)}",
        )

    def describe_console(self) -> str:
        """Return the console's last lines, as a hint."""
        return tail_console(self.console)

    def _execute(self, command: str) -> object:
        """Run a command of the machine protocol (QMP) and return its answer."""
        monitor = self._channels[_MONITOR]
        if not self._lines_seen:
            # The first line is a greeting; this command is what it wants to hear.
            self._lines_seen = 1
            self._execute("qmp_capabilities")
        self.send(_MONITOR, json.dumps({"execute": command}).encode() + b"\n")

        def find_answer() -> dict[str, object] | None:
            *lines, _ = monitor.received.split(b"\n")
            for number, line in enumerate(lines):
                if number >= self._lines_seen:
                    self._lines_seen = number + 1
                    row = json.loads(line)
                    if "return" in row or "error" in row:
                        return dict(row)
            return None

        answer = self.wait_for(
            find_answer, deadline=time.monotonic() + 10, what=f"the answer to {command}"
        )
        if "error" in answer:
            raise BootError(f"QEMU refuses {command}: {answer['error']}")
        return answer["return"]


def _list_disk_arguments(options: MachineOptions) -> list[str]:
    # In JSON, since file names may hold commas. Through the host's page cache: what the medium's
    # speed is, the throttle says, and nothing else is to.
    node = {
        "driver": "raw",
        "node-name": "content",
        "read-only": True,
        "file": {"driver": "file", "filename": str(options.disk), "read-only": True},
    }
    arguments = ["-blockdev", json.dumps(node)]
    drive = "content"
    medium = options.medium
    limits = {
        "bps-read": round(medium.bandwidth),
        "iops-read": round(medium.requests_per_second),
    }
    if any(limits.values()):
        group = {"qom-type": "throttle-group", "id": "speed", "limits": limits}
        throttle = {
            "driver": "throttle",
            "node-name": "throttled",
            "throttle-group": "speed",
            "file": "content",
            "read-only": True,
        }
        arguments = ["-object", json.dumps(group), *arguments, "-blockdev", json.dumps(throttle)]
        drive = "throttled"
    # Merging is off, so that the guest's requests are what is counted.
    devices = {
        "virtio": ["virtio-blk-pci,request-merging=off,num-queues=1"],
        "cd": ["ide-cd,bus=ide.0"],
        "usb": ["qemu-xhci", "usb-storage"],
    }
    *controllers, device = devices[options.bus]
    for controller in controllers:
        arguments += ["-device", controller]
    return [*arguments, "-device", f"{device},drive={drive},id=disk,bootindex=1"]


def list_accel_arguments(accel: str) -> tuple[str, ...]:
    """Return QEMU's arguments for an accelerator, with all of a processor's features."""
    if accel == "kvm":
        return ("-accel", "kvm", "-cpu", "host")
    return ("-accel", "tcg,thread=multi", "-cpu", "max")


def choose_accel(wanted: Accel, *, environment: Mapping[str, str] = os.environ) -> str:
    """Return "kvm" or "tcg": as wanted, or what ``BOOTPRESS_ACCEL`` says, or what works.

    Raises:
        UsageError: an accelerator that is not known.
    """
    named = environment.get(ACCEL_VARIABLE) or "auto" if wanted == "auto" else wanted
    if named not in get_args(Accel):
        raise UsageError(
            f"unknown accelerator '{named}'", hint="choose one of " + ", ".join(get_args(Accel))
        )
    if named != "auto":
        return named
    return "kvm" if probe_kvm() else "tcg"


@functools.cache
def probe_kvm() -> bool:
    """Tell whether KVM works, by a boot of half a second; asked once in a process' life.

    That /dev/kvm opens says little: inside another virtual machine it may do so and be a hundred
    times slower than emulation.

    Raises:
        MissingToolError: QEMU is not installed.
    """
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    with tempfile.TemporaryDirectory(prefix="bootpress-") as name:
        disk = Path(name) / "probe"
        disk.write_bytes(PROBE)
        command = [
            QEMU,
            *("-nodefaults", "-no-user-config", "-display", "none", "-m", "16"),
            *("-machine", "pc", "-no-reboot", "-accel", "kvm"),
            *("-drive", f"file={disk},format=raw,if=ide,readonly=off"),
            *("-device", "isa-debug-exit,iobase=0xf4,iosize=1"),
        ]
        with (
            (Path(name) / "output").open("w+b") as output,
            start_program(command, output=output) as process,
        ):
            try:
                return process.wait(PROBE_SECONDS) == PROBE_STATUS
            except subprocess.TimeoutExpired:
                return False


def read_qemu_version() -> str:
    """Return "QEMU 7.2.22".

    Raises:
        MissingToolError: it is not installed.
    """
    text = run_program([QEMU, "--version"], error=BootError).decode("utf-8", "replace")
    found = re.search(r"version (\d[\w.]*)", text)
    return f"QEMU {found[1]}" if found else "QEMU"


def tail_console(text: str) -> str:
    """Return a console's last lines, as a hint."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "nothing came from its console"
    return "\n".join(["the console's last lines:", *lines[-CONSOLE_LINES:]])


def strip_ansi(output: bytes) -> str:
    """Return a console's output without control sequences."""
    return _ANSI.sub(b"", output).decode("utf-8", "replace")


def parse_block_log(log: bytes) -> tuple[DiskRead, ...]:
    """Return the reads in QEMU's log of trace events, in its order.

    A last line without its end is left out: it is being written.

    Raises:
        TraceError: a line about a read that is not what QEMU writes.
    """
    return tuple(_parse_block_lines(log.split(b"\n")[:-1]))


def _parse_block_lines(lines: list[bytes]) -> Iterator[DiskRead]:
    for number, line in enumerate(lines, 1):
        found = _READ_LINE.fullmatch(line)
        if found:
            at = int(found["seconds"]) + int(found["micros"]) / 1e6
            yield DiskRead(at, int(found["offset"]), int(found["bytes"]))
        elif READ_EVENT.encode() in line:
            raise TraceError(
                f"line {number} of QEMU's log is no read: {line[:80]!r}",
                hint="this version of QEMU words it differently: please report it",
            )
