# SPDX-License-Identifier: GPL-2.0-or-later
"""What a real boot's trace holds: real files, in the order in which a boot needs them."""

from pathlib import Path

import pytest

from bootpress import Image
from bootpress.imagemap import ImageMap
from bootpress.medium import inspect_disk
from bootpress.record import BootOptions, prepare_boot, run_boot
from bootpress.trace import PAGE_BYTES, Trace, read_trace, write_trace

pytestmark = pytest.mark.vm

LINKER = b"usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
LIBC = b"usr/lib/x86_64-linux-gnu/libc.so.6"
SYSTEMD = b"usr/lib/systemd/systemd"
SSHD = b"usr/sbin/sshd"


def list_read_files(trace: Trace) -> list[bytes]:
    """Return the paths whose pages were read, by their first."""
    return list(dict.fromkeys(trace.path_of(e) for e in trace.events if e.kind == "pages"))


@pytest.mark.smoke
def test_the_guest_names_the_files_that_a_boot_needs_in_order(loop_trace: Trace) -> None:
    files = list_read_files(loop_trace)
    wanted = [files.index(name) for name in (SYSTEMD, LINKER, LIBC, SSHD)]
    assert wanted == sorted(wanted)
    # The first process is the first thing that is read, after the symlinks that lead to it: the
    # trace begins with the mount.
    assert wanted[0] <= 5
    assert 100 < len(files) < 2000


@pytest.mark.smoke
def test_the_guest_tells_each_look_at_metadata(loop_trace: Trace, plain: Path) -> None:
    kinds = [event.kind for event in loop_trace.events]
    assert kinds.count("inode") > 500
    assert kinds.count("listing") > 500
    # Nobody reads a file whose inode was not read before.
    seen: set[int] = set()
    for event in loop_trace.events:
        if event.kind == "inode":
            seen.add(event.path)
        elif event.kind == "pages":
            assert event.path in seen, loop_trace.path_of(event)
    assert loop_trace.kernel
    assert loop_trace.kernel in {
        Path(path).name for path in Image(plain) if Path(path).parent.name == "modules"
    }


@pytest.mark.smoke
def test_pages_lie_inside_their_files(loop_trace: Trace, plain: Path) -> None:
    image = Image(plain)
    for event in loop_trace.events:
        if event.kind == "pages":
            size = image.stat(loop_trace.path_of(event)).size
            assert (event.first + event.length - 1) * PAGE_BYTES < size


@pytest.mark.smoke
def test_the_disk_read_what_the_guest_needed(loop_trace: Trace, plain: Path) -> None:
    map_of_image = ImageMap(Image(plain))
    read: set[bytes] = set()
    for event in loop_trace.events:
        if event.kind == "read":
            for place in map_of_image.locate_read(event.first, event.length):
                read.update(place.paths)
    needed = set(list_read_files(loop_trace))
    # An empty rest: symlinks' targets are in their inodes, all else has blocks or a fragment.
    missing = {path for path in needed - read if Image(plain).stat(path).type == "file"}
    assert not missing


@pytest.mark.smoke
def test_events_come_in_the_order_of_their_time(loop_trace: Trace, tmp_path: Path) -> None:
    # The reader checks it, and that the trace survives the way to a file.
    write_trace(loop_trace, tmp_path / "boot.trace")
    assert read_trace(tmp_path / "boot.trace") == loop_trace


def test_directly_mounted_the_same_files_are_read_with_more_reads(
    loop_trace: Trace, direct_trace: Trace
) -> None:
    through_loop, directly = set(list_read_files(loop_trace)), set(list_read_files(direct_trace))
    assert len(through_loop ^ directly) < 0.1 * len(through_loop)
    assert (loop_trace.attach, direct_trace.attach) == ("loop", "direct")

    def count_reads(trace: Trace) -> int:
        return sum(event.kind == "read" for event in trace.events)

    # Without a page cache under it the kernel reads metadata again and again.
    assert count_reads(direct_trace) > 1.5 * count_reads(loop_trace)


def test_the_disk_alone_is_enough(plain: Path) -> None:
    disk = inspect_disk(plain)
    options = BootOptions(until="login:", timeout=300)
    with prepare_boot(disk, options) as starter:
        boot = run_boot(disk, starter, options)
    assert not boot.record
    # QEMU's own count, and the log of each read, made in different places.
    assert len(boot.reads) == pytest.approx(boot.statistics.reads, rel=0.05)
    assert sum(read.length for read in boot.reads) == pytest.approx(
        boot.statistics.bytes_read, rel=0.05
    )
    assert boot.cpu_seconds > 0


def test_the_signal_of_the_end_leaves_the_boot_as_it_is(plain: Path) -> None:
    disk = inspect_disk(plain)
    options = BootOptions(append="systemd.log_target=console systemd.show_status=1", timeout=300)
    with prepare_boot(disk, options) as starter:
        boot = run_boot(disk, starter, options)
    # What systemd has to say is on the console, and none of it is a complaint about the unit.
    assert "Reached target multi-user.target" in boot.console
    assert "ordering cycle" not in boot.console
    assert "Failed to start bootpress-end" not in boot.console
