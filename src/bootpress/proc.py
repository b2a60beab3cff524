# SPDX-License-Identifier: GPL-2.0-or-later
"""The one module that spawns processes."""

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from bootpress.errors import BootpressError, MissingToolError
from bootpress.model import AnyPath

# Debian's packages of the programs that are driven.
PACKAGES = {
    "busybox": "busybox-static",
    "cpio": "cpio",
    "qemu-system-x86_64": "qemu-system-x86",
    "setpriv": "util-linux",
    "sfdisk": "fdisk",
    "xorriso": "xorriso",
}
# Of what a program complained about, what fits into a hint.
COMPLAINT_LINES = 8
# QEMU closes its disks within this; then it is killed.
END_SECONDS = 3.0


def find_program(name: str) -> str:
    """Return where a program is, in ``PATH`` or where only root's ``PATH`` leads.

    Raises:
        MissingToolError: nowhere.
    """
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin")
    if found is None:
        raise MissingToolError(
            f"{name} is not installed", hint=f"apt-get install {PACKAGES.get(name, name)}"
        )
    return found


def run_program(
    command: Sequence[AnyPath],
    *,
    error: type[BootpressError],
    stdin: bytes = b"",
    directory: AnyPath | None = None,
    environment: Mapping[str, str] | None = None,
) -> bytes:
    """Run a program to its end and return what it printed.

    Args:
        command: the program's name and its arguments.
        error: what to raise where it fails.
        stdin: what it reads.
        directory: where it runs; None is here.
        environment: variables to set or change.

    Raises:
        MissingToolError: it is not installed.
    """
    argv: list[str | bytes] = [
        find_program(os.fsdecode(command[0])),
        *(os.fsencode(part) for part in command[1:]),
    ]
    done = subprocess.run(
        argv,
        input=stdin,
        capture_output=True,
        check=False,
        cwd=directory,
        env={**os.environ, **(environment or {})},
    )
    if done.returncode:
        name = Path(os.fsdecode(argv[0])).name
        raise error(
            f"{name} failed: {describe_status(done.returncode)}",
            hint=f"{tail_text(done.stderr)}\nagain: {format_command(command)}",
        )
    return done.stdout


@contextmanager
def start_program(
    command: Sequence[AnyPath], *, output: IO[bytes], descriptors: Sequence[int] = ()
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a program that is ended when the block is left, whatever leaves it.

    It has a process group of its own, so that Ctrl-C at the terminal reaches only this process,
    which then ends it; and should this process be killed, the kernel kills the program too.

    Args:
        command: the program's name and its arguments.
        output: takes what it prints.
        descriptors: open files that it inherits under the same numbers.

    Raises:
        MissingToolError: it is not installed.
    """
    argv: list[str | bytes] = [
        find_program("setpriv"),
        *("--pdeathsig", "KILL", "--"),
        find_program(os.fsdecode(command[0])),
        *(os.fsencode(part) for part in command[1:]),
    ]
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=descriptors,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        _end_process(process)


def _end_process(process: "subprocess.Popen[bytes]") -> None:
    # A second Ctrl-C must not leave it behind: whatever comes, the last word is KILL.
    try:
        if process.poll() is None:
            _signal_group(process.pid, signal.SIGTERM)
            process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        pass  # it has had its time
    finally:
        _signal_group(process.pid, signal.SIGKILL)
        process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    # None left is what is wanted.
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def measure_cpu_seconds(pid: int) -> float:
    """Return the CPU time that a running process has taken, its threads included (proc(5))."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    # The name, in brackets, may hold anything.
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def format_command(command: Sequence[AnyPath]) -> str:
    """Return a command line that a shell runs as it is."""
    return shlex.join(os.fsdecode(part) for part in command)


def describe_status(status: int) -> str:
    """Return what a process' exit status says: "status 2", "killed by SIGSEGV"."""
    if status >= 0:
        return f"status {status}"
    return f"killed by {signal.Signals(-status).name}"


def tail_text(output: bytes, *, lines: int = COMPLAINT_LINES) -> str:
    """Return the last lines of what a program printed, "" where it printed nothing."""
    text = output.decode("utf-8", "replace").strip()
    return "\n".join(text.splitlines()[-lines:])
