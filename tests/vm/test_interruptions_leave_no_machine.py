# SPDX-License-Identifier: GPL-2.0-or-later
"""Ctrl-C, SIGTERM and even SIGKILL end the machine with the process that started it."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.vm

# As the command does it: SIGTERM becomes an exception, Ctrl-C is one.
RECORD = """
import signal, sys
from bootpress.record import BootOptions, record_trace
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
record_trace(sys.argv[1], options=BootOptions(until="never.target", timeout=300))
"""


def wait_while(condition: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while condition() and time.monotonic() < deadline:
        time.sleep(0.05)


STATUS = {signal.SIGINT: -signal.SIGINT, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}
# Seconds after QEMU is there: while it starts, and while the kernel does. Not even the kernel can
# kill with its parent what is not yet running.
MOMENTS = [
    (signal.SIGINT, 0.0),
    (signal.SIGINT, 3.0),
    (signal.SIGTERM, 0.0),
    (signal.SIGTERM, 3.0),
    (signal.SIGKILL, 3.0),
]


@pytest.mark.parametrize(("number", "moment"), MOMENTS, ids=str)
def test_a_recording_that_is_stopped(
    number: signal.Signals,
    moment: float,
    plain: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    list_machines: Callable[[Path], list[int]],
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-c", RECORD, plain], stderr=subprocess.DEVNULL
    ) as process:
        wait_while(lambda: not list_machines(plain), 60)
        assert list_machines(plain)
        time.sleep(moment)
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(30) == STATUS[number]
    wait_while(lambda: list_machines(plain), 5)
    assert not list_machines(plain)
    # Nobody can clean up after a SIGKILL.
    assert number == signal.SIGKILL or not list(tmp_path.iterdir())
