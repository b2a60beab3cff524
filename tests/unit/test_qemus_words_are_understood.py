# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU's log of reads, a console's output, the accelerator: real lines, and damaged ones."""

from pathlib import Path

import pytest

from bootpress.errors import TraceError, UsageError
from bootpress.qemu import (
    PROBE,
    DiskRead,
    Machine,
    MachineOptions,
    choose_accel,
    parse_block_log,
    strip_ansi,
)

# Of QEMU 7.2: the firmware's, the kernel's, and the mount's reads.
REAL = (Path(__file__).parents[1] / "data/qemu-reads.log").read_bytes()


def test_a_real_log() -> None:
    reads = parse_block_log(REAL)
    assert len(reads) == 40
    assert reads[0] == DiskRead(1795266786.349403, offset=0, length=512)
    assert reads[4] == DiskRead(1795266791.188695, offset=132370432, length=4096)


def test_a_line_that_is_being_written_is_left_for_later() -> None:
    assert parse_block_log(REAL[:-9]) == parse_block_log(REAL)[:-1]
    assert parse_block_log(b"") == ()


def test_other_lines_of_the_log_are_passed_over() -> None:
    assert parse_block_log(b"qemu: a warning\n" + REAL) == parse_block_log(REAL)


@pytest.mark.parametrize("damaged", [b"offset -1", b"offset", b"offset 1e9"])
def test_a_read_that_is_worded_otherwise_is_named(damaged: bytes) -> None:
    with pytest.raises(TraceError, match="line 1 of QEMU's log"):
        parse_block_log(REAL.replace(b"offset 0", damaged, 1))


def test_control_sequences_are_stripped() -> None:
    output = b"\x1b[0;32m  OK  \x1b[0m Reached\x1b]0;title\x07 \x1b[?25hlogin:\r\n\x1bc\xff"
    assert strip_ansi(output) == "  OK   Reached login:\n\ufffd"


def test_the_accelerator_is_what_was_asked_for_then_what_the_environment_says() -> None:
    assert choose_accel("kvm", environment={"BOOTPRESS_ACCEL": "tcg"}) == "kvm"
    assert choose_accel("auto", environment={"BOOTPRESS_ACCEL": "tcg"}) == "tcg"
    with pytest.raises(UsageError, match="unknown accelerator 'xen'"):
        choose_accel("auto", environment={"BOOTPRESS_ACCEL": "xen"})


def test_the_probe_is_a_boot_sector() -> None:
    assert len(PROBE) == 512
    assert PROBE.endswith(b"\x55\xaa")


def test_a_command_line_of_two_lines_is_refused() -> None:
    with pytest.raises(UsageError, match="one line"):
        Machine(MachineOptions(disk=Path("disk"), command_line="quiet\ninit=/x", accel="tcg"))
