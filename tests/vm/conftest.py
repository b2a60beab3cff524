# SPDX-License-Identifier: GPL-2.0-or-later
"""What boots: a small real Debian, packed once, and its recorded boots, which tests share."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bootpress import PackOptions, pack
from bootpress.record import BootOptions, record_trace
from bootpress.trace import Trace
from judges import BUILD, need, run

# Emulation everywhere: KVM's absence is not what these tests are about, and probing for it takes
# five seconds of each process where it is there but of no use.
os.environ.setdefault("BOOTPRESS_ACCEL", "tcg")


@pytest.fixture(scope="session")
def bootable(needs_root: None) -> Path:
    """A real Debian that boots (systemd, ssh, the cloud kernel), kept between runs."""
    need("mmdebstrap", "qemu-system-x86_64", "busybox", "cpio")
    root = BUILD / "rootfs/boot"
    run(Path(__file__).parents[2] / "tools/make_rootfs.sh", root, "boot")
    return root


@pytest.fixture(scope="session")
def plain(bootable: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It as an image, without a sort list."""
    image = tmp_path_factory.mktemp("vm") / "plain.squashfs"
    pack(bootable, image, options=PackOptions(level=3))
    return image


@pytest.fixture(scope="session")
def loop_trace(plain: Path) -> Trace:
    """A boot through a loop device, recorded in the guest and at the disk."""
    return record_trace(plain, trace_source="both", options=BootOptions(timeout=300))


@pytest.fixture(scope="session")
def direct_trace(plain: Path) -> Trace:
    """A boot of the disk itself, recorded in the guest and at the disk."""
    options = BootOptions(attach="direct", timeout=300)
    return record_trace(plain, trace_source="both", options=options)


@pytest.fixture
def list_machines() -> Callable[[Path], list[int]]:
    """Return the processes whose command line names a disk."""

    def look(disk: Path) -> list[int]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command = (process / "cmdline").read_bytes()
            except OSError:
                continue  # it ended in between
            if b"qemu" in command and os.fsencode(disk) in command:
                found.append(int(process.name))
        return found

    return look
