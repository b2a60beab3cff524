# SPDX-License-Identifier: GPL-2.0-or-later
"""Recorded boots of Debian 12 (their first seconds), and trees that they could have booted."""

import random
from pathlib import Path

from bootpress.trace import Trace, read_trace

DATA = Path(__file__).parent / "data"
# Two boots of one image (mmdebstrap, systemd, ssh; kernel 6.1.0-56-cloud-amd64), cut after 1,800
# events of the guest.
LOOP = DATA / "debian-12-loop.trace"
DIRECT = DATA / "debian-12-direct.trace"

# What of the large files there is: enough for several blocks.
LARGEST_FILE = 300_000
COLD_DIRECTORIES = 80
COLD_FILES = 30


def read_boot(path: Path) -> Trace:
    """Read one of the recorded boots."""
    return read_trace(path)


def make_booted_tree(root: Path, *traces: Trace) -> None:
    """Make a tree with every path of the traces, and more that they never read."""
    links: set[bytes] = set()
    directories: set[bytes] = {b""}
    pages: dict[bytes, int] = {}
    for trace in traces:
        for event in trace.events:
            path = trace.path_of(event)
            directories.add(path.rpartition(b"/")[0])
            pages.setdefault(path, 0)
            if event.kind == "listing":
                directories.add(path)
            elif event.kind == "pages":
                pages[path] = max(pages[path], event.first + event.length)
            elif event.first == 0 and event.length == 24:
                # What the kernel reads of a symlink's record ahead of its target.
                links.add(path)
    for path in sorted(directories):
        where = root / path.decode()
        where.mkdir(parents=True, exist_ok=True)
        for number in range(5):
            (where / f"cold-{number}").write_text(f"{path!r} {number}\n" * 20)
    for path, count in pages.items():
        where = root / path.decode()
        if path in links:
            where.symlink_to("target")
        elif path not in directories:
            size = min(count * 4096, LARGEST_FILE)
            where.write_bytes(random.Random(path).randbytes(size // 2) * 2)
    for number in range(COLD_DIRECTORIES):
        where = root / f"srv/{number:03}"
        where.mkdir(parents=True)
        for file in range(COLD_FILES):
            (where / f"file-{file}").write_text(f"{number} {file}\n" * 50)
