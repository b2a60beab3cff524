# SPDX-License-Identifier: GPL-2.0-or-later
"""Processes: missing ones name their package, failing ones say why, and none outlives its block."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bootpress.errors import BootError, MissingToolError
from bootpress.proc import measure_cpu_seconds, run_program, start_program


def is_running(pid: int) -> bool:
    """Tell whether a process runs; one that nobody has waited for yet does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def wait_until_gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)


def test_a_missing_program_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    with pytest.raises(MissingToolError, match="qemu-system-x86_64 is not installed") as caught:
        run_program(["qemu-system-x86_64"], error=BootError)
    assert caught.value.hint == "apt-get install qemu-system-x86"


def test_a_failing_program_says_why_and_how_to_run_it_again() -> None:
    with pytest.raises(BootError, match="sh failed: status 7") as caught:
        run_program(["sh", "-c", "echo 'no room' >&2; exit 7"], error=BootError)
    assert "no room" in (caught.value.hint or "")
    command = (caught.value.hint or "").partition("again: ")[2]
    assert (
        subprocess.run(command, shell=True, check=False, stderr=subprocess.DEVNULL).returncode == 7
    )


def test_a_killed_program_names_the_signal() -> None:
    with pytest.raises(BootError, match="killed by SIGKILL"):
        run_program(["sh", "-c", "kill -9 $$"], error=BootError)


def test_input_output_directory_and_environment(tmp_path: Path) -> None:
    done = run_program(
        ["sh", "-c", 'cat; pwd; echo "$BOOTED"'],
        error=BootError,
        stdin=b"in ",
        directory=tmp_path,
        environment={"BOOTED": "yes"},
    )
    assert done == b"in %s\nyes\n" % os.fsencode(tmp_path)


def test_a_program_ends_with_its_block(tmp_path: Path) -> None:
    with (tmp_path / "output").open("wb") as output:
        with start_program(["sleep", "600"], output=output) as process:
            assert is_running(process.pid)
        assert not is_running(process.pid)


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ValueError])
def test_a_program_ends_with_what_ends_its_block(
    failure: type[BaseException], tmp_path: Path
) -> None:
    pids: list[int] = []

    def fail_inside() -> None:
        with (
            (tmp_path / "output").open("wb") as output,
            start_program(["sleep", "600"], output=output) as process,
        ):
            pids.append(process.pid)
            raise failure

    with pytest.raises(failure):
        fail_inside()
    assert not is_running(pids[0])


def test_a_program_that_ignores_being_asked_is_killed_with_its_children(tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 600 & echo $!; wait; wait; sleep 600"
    with (tmp_path / "output").open("w+b") as output:
        with start_program(["sh", "-c", script], output=output):
            while not (child := (tmp_path / "output").read_text()).endswith("\n"):
                time.sleep(0.02)
        assert wait_until_gone(int(child))


def test_a_program_dies_with_a_process_that_is_killed(tmp_path: Path) -> None:
    code = """
import sys, time
from bootpress.proc import start_program
with open(sys.argv[1], "wb") as output, start_program(["sleep", "600"], output=output) as process:
    print(process.pid, flush=True)
    time.sleep(600)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "output"], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        # The kernel's promise is made by the program itself, once it runs.
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and "sleep" not in Path(f"/proc/{pid}/comm").read_text():
            time.sleep(0.02)
        parent.send_signal(signal.SIGKILL)
    assert wait_until_gone(pid)


def test_cpu_seconds_are_those_of_the_process(tmp_path: Path) -> None:
    with (tmp_path / "output").open("wb") as output:
        script = "while :; do :; done"
        with start_program(["sh", "-c", script], output=output) as process:
            deadline = time.monotonic() + 20
            while measure_cpu_seconds(process.pid) < 0.2 and time.monotonic() < deadline:
                time.sleep(0.02)
            assert measure_cpu_seconds(process.pid) >= 0.2
