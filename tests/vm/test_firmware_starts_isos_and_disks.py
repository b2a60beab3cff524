# SPDX-License-Identifier: GPL-2.0-or-later
"""What boots by itself: the reads of the disk become reads of the image in it."""

import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from bootpress import pack
from bootpress.errors import BootError, UsageError
from bootpress.medium import inspect_disk
from bootpress.record import BootOptions, prepare_boot, record_trace, run_boot
from judges import need, run
from trees import make_bytes

pytestmark = pytest.mark.vm

# A boot sector that reads 16 sectors by INT 13h, function 42h, from where its last 8 bytes say,
# then writes "sectors read" to the serial port and halts.
READER = bytes.fromhex(
    "31c08ed88ec08ed0bc007cbe347cb442cd13720dbe247cb90e00baf803aceee2fcf4ebfd736563746f727320726561640d0a669010001000000000100000000000000000"
)
COUNT = 16
DONE = "sectors read"


@dataclass(frozen=True)
class Target:
    """A disk whose boot sector reads ``length`` bytes at byte ``first`` of the image on it."""

    path: Path
    first: int
    length: int


@pytest.fixture
def image(tmp_path: Path) -> Path:
    need("qemu-system-x86_64")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/data").write_bytes(make_bytes(500_000, seed=1))
    pack(tmp_path / "root", tmp_path / "image.squashfs")
    return tmp_path / "image.squashfs"


def make_reader(sector: int) -> bytes:
    return READER[:-8] + struct.pack("<Q", sector)


@pytest.fixture
def iso(image: Path, tmp_path: Path) -> Target:
    """A CD that starts by El Torito; its sectors have 2048 bytes."""
    need("xorriso")
    tree = tmp_path / "tree"
    (tree / "live").mkdir(parents=True)
    (tree / "live/filesystem.squashfs").write_bytes(image.read_bytes())
    (tree / "boot.img").write_bytes(make_reader(0).ljust(2048, b"\0"))
    target = tmp_path / "live.iso"
    run(
        *("xorriso", "-as", "mkisofs", "-o", target, "-r", "-b", "boot.img"),
        *("-no-emul-boot", "-boot-load-size", "4", tree),
    )
    (found,) = inspect_disk(target).images
    # Where the image lies is known only now.
    content = target.read_bytes()
    target.write_bytes(content.replace(make_reader(0), make_reader(found.offset // 2048 + 4)))
    return Target(target, 4 * 2048, COUNT * 2048)


@pytest.fixture
def disk(image: Path, tmp_path: Path) -> Target:
    """A disk that starts by its boot sector, with the image as a partition."""
    need("sfdisk")
    target = tmp_path / "disk"
    start = 2048
    with target.open("wb") as file:
        file.truncate(16 << 20)
        file.seek(start * 512)
        file.write(image.read_bytes())
    table = f"label: dos\nstart={start}, size=8192, bootable\n"
    subprocess.run(["sfdisk", "-q", target], input=table.encode(), check=True)
    with target.open("r+b") as file:
        file.write(make_reader(start + 8))
    return Target(target, 8 * 512, COUNT * 512)


def check_trace(target: Target, options: BootOptions) -> None:
    trace = record_trace(target.path, options=options, trace_source="host")
    assert trace.attach == "unknown"
    assert trace.source == "host"
    assert {event.kind for event in trace.events} == {"read"}
    assert sum(event.length for event in trace.events) >= target.length
    read = {
        byte // 512
        for event in trace.events
        for byte in range(event.first, event.first + event.length, 512)
    }
    wanted = range(target.first // 512, (target.first + target.length) // 512)
    assert read.issuperset(wanted)
    # What the firmware read around the image is not in it.
    assert all(event.first + event.length <= trace.image_bytes + 4096 for event in trace.events)


def test_a_cd_by_its_bios(iso: Target) -> None:
    check_trace(iso, BootOptions(bus="cd", until=DONE, timeout=60))


@pytest.mark.parametrize("bus", ["virtio", "usb"])
def test_a_disk_by_its_bios(disk: Target, bus: Literal["virtio", "usb"]) -> None:
    check_trace(disk, BootOptions(bus=bus, until=DONE, timeout=60))


def test_uefi_looks_at_the_disk(disk: Target) -> None:
    found = inspect_disk(disk.path)
    options = BootOptions(firmware="uefi", until="12", timeout=60)
    with prepare_boot(found, options) as starter:
        boot = run_boot(found, starter, options)
    # No EFI program is there to start: what was read is the firmware's search for one.
    assert boot.statistics.reads > 2
    assert boot.seconds >= 12


def test_what_boots_by_itself_has_no_units_and_no_guest_record(disk: Target) -> None:
    with pytest.raises(UsageError, match="when does this boot end"):
        record_trace(disk.path, trace_source="host")
    with pytest.raises(UsageError, match=r"wait for multi-user\.target"):
        record_trace(disk.path, trace_source="host", options=BootOptions(until="multi-user.target"))
    with pytest.raises(UsageError, match="boots by itself"):
        record_trace(disk.path, options=BootOptions(until=DONE))
    with pytest.raises(UsageError, match="the boot loader's"):
        record_trace(
            disk.path, trace_source="host", options=BootOptions(until=DONE, append="quiet")
        )


def test_a_disk_that_does_not_boot_ends_at_the_timeout(disk: Target) -> None:
    with disk.path.open("r+b") as file:
        file.write(b"\xf4\xeb\xfd")  # hlt, and again
    with pytest.raises(BootError, match="ran out of time before 'sectors read' on the console"):
        record_trace(disk.path, trace_source="host", options=BootOptions(until=DONE, timeout=4))
