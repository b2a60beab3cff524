# SPDX-License-Identifier: GPL-2.0-or-later
"""The simulated figures against QEMU's own, on boots of a real Debian."""

from pathlib import Path

import pytest

from bootpress import Image, PackOptions, pack
from bootpress.imagemap import ImageMap
from bootpress.learn import learn_order
from bootpress.profile import NO_MEDIUM
from bootpress.record import BootOptions, record_trace
from bootpress.simulate import measure_seeks, replay_trace
from bootpress.trace import Trace

pytestmark = pytest.mark.vm


def count_real(trace: Trace) -> tuple[int, int, int]:
    """Return reads, bytes and jumps of the disk; see ``test_a_boot_is_recorded`` for QEMU's own."""
    reads = [(event.first, event.length) for event in trace.events if event.kind == "read"]
    return len(reads), sum(length for _, length in reads), measure_seeks(reads)[0]


@pytest.mark.parametrize("attach", ["loop", "direct"])
def test_a_replay_reads_what_the_boot_read(
    attach: str, plain: Path, loop_trace: Trace, direct_trace: Trace
) -> None:
    trace = loop_trace if attach == "loop" else direct_trace
    reads, bytes_read, jumps = count_real(trace)
    done = replay_trace(trace, ImageMap(Image(plain)), medium=NO_MEDIUM)
    assert done.attach == attach
    assert done.missing == 0
    # What is promised is 10%; two runs here differed by 0.4% of the reads and 0.2% of the bytes.
    assert done.bytes_read == pytest.approx(bytes_read, rel=0.05)
    assert done.reads == pytest.approx(reads, rel=0.05)
    assert done.jumps == pytest.approx(jumps, rel=0.1)


def test_the_model_foretells_the_boot_of_another_image(
    bootable: Path, plain: Path, tmp_path: Path, loop_trace: Trace, direct_trace: Trace
) -> None:
    learned, _ = learn_order([loop_trace], image=Image(plain))
    target = tmp_path / "sorted.squashfs"
    pack(bootable, target, options=PackOptions(level=3), sort_list=learned)
    foretold = replay_trace(direct_trace, ImageMap(Image(target)), medium=NO_MEDIUM)
    booted = record_trace(
        target, trace_source="host", options=BootOptions(attach="direct", timeout=300)
    )
    reads, bytes_read, _ = count_real(booted)
    assert foretold.bytes_read == pytest.approx(bytes_read, rel=0.1)
    assert foretold.reads == pytest.approx(reads, rel=0.2)
    # The ranking holds: far fewer than the plain image's.
    assert reads < 0.6 * count_real(direct_trace)[0]
    assert foretold.reads < 0.6 * count_real(direct_trace)[0]
