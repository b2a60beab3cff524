# SPDX-License-Identifier: GPL-2.0-or-later
"""A boot that panics, gives up, hangs or dies is one error with the reason, and no machine left."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bootpress import Image, pack
from bootpress.errors import BootError, UsageError
from bootpress.record import BootOptions, record_trace

pytestmark = pytest.mark.vm

ListMachines = Callable[[Path], list[int]]


def fail_to_boot(image: Path, options: BootOptions, list_machines: ListMachines) -> BootError:
    """Return the error of a boot, and see that no machine is left."""
    with pytest.raises(BootError) as caught:
        record_trace(image, options=options)
    assert not list_machines(image)
    return caught.value


def test_a_first_process_that_ends_is_a_panic(plain: Path, list_machines: ListMachines) -> None:
    began = time.monotonic()
    error = fail_to_boot(plain, BootOptions(append="init=/bin/true"), list_machines)
    assert "panicked before multi-user.target came: Kernel panic - not syncing:" in error.message
    assert "Attempted to kill init" in error.message
    # The end of what the console showed is the panic, not its backtrace.
    assert "Attempted to kill init" in (error.hint or "").splitlines()[-1]
    assert "\x1b" not in (error.hint or "")
    assert time.monotonic() - began < 120, "a panic ends the boot, not the timeout"


def test_a_first_process_that_is_not_there(plain: Path, list_machines: ListMachines) -> None:
    error = fail_to_boot(plain, BootOptions(append="init=/bin/nonexistent"), list_machines)
    assert "the image has no /bin/nonexistent" in error.message


def test_an_option_that_the_initramfs_does_not_know(
    plain: Path, list_machines: ListMachines
) -> None:
    error = fail_to_boot(plain, BootOptions(append="bootpress.mount=loop"), list_machines)
    assert "switched itself off" in error.message
    assert "no such option on the kernel's command line: bootpress.mount=loop" in (error.hint or "")


def test_an_image_with_damaged_data(
    plain: Path, tmp_path: Path, list_machines: ListMachines
) -> None:
    damaged = tmp_path / "damaged.squashfs"
    damaged.write_bytes(plain.read_bytes())
    opened = Image(plain)
    (library,) = (path for path in opened if Path(path).match("systemd/libsystemd-shared-*.so"))
    blocks = opened.layout(library).blocks
    assert blocks
    with damaged.open("r+b") as file:
        for block in blocks:
            file.seek(block.offset)
            file.write(bytes(block.length))
    error = fail_to_boot(damaged, BootOptions(timeout=120), list_machines)
    assert "panicked" in error.message
    assert "SQUASHFS error" in (error.hint or "")


def test_an_image_without_a_kernel(
    small: Path, tmp_path: Path, list_machines: ListMachines
) -> None:
    pack(small, tmp_path / "small.squashfs")
    error = fail_to_boot(tmp_path / "small.squashfs", BootOptions(), list_machines)
    assert "no kernel" in error.message
    assert "--kernel" in (error.hint or "")


def test_an_end_that_never_comes(plain: Path, list_machines: ListMachines) -> None:
    began = time.monotonic()
    error = fail_to_boot(plain, BootOptions(until="never.target", timeout=12), list_machines)
    assert "never.target" in error.message
    assert time.monotonic() - began < 30


def test_a_machine_that_is_killed(plain: Path, list_machines: ListMachines) -> None:
    def kill_when_it_runs() -> None:
        deadline = time.monotonic() + 60
        while not (found := list_machines(plain)) and time.monotonic() < deadline:
            time.sleep(0.1)
        os.kill(found[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_when_it_runs)
    killer.start()
    error = fail_to_boot(plain, BootOptions(timeout=120), list_machines)
    killer.join()
    assert "SIGKILL" in error.message
    assert "qemu-system-x86_64" in (error.hint or ""), "the command can be run again"


def test_what_cannot_be_waited_for(plain: Path) -> None:
    for until in ("", "a\nb"):
        with pytest.raises(UsageError):
            record_trace(plain, options=BootOptions(until=until))
    with pytest.raises(UsageError, match="past the timeout of 100 s"):
        record_trace(plain, options=BootOptions(until="300", timeout=100))
