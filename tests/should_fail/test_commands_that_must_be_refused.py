# SPDX-License-Identifier: GPL-2.0-or-later
"""A table of commands that must be refused: exit status, what the line says, whether it hints.

Each runs in a directory that holds ``tree`` (a directory), ``image`` (of it), ``text`` (a text
file), ``foreign`` (an archive cut short) and the sort lists named below. None may print a
traceback, print anything to standard output, or leave a file behind.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import bootpress as api
from bootpress import errors
from bootpress.trace import Event, Trace, write_trace

Bootpress = Callable[..., subprocess.CompletedProcess[bytes]]

SORT_LISTS = {
    "stale.list": "etc/hostname\nnowhere/a\nnowhere/b\n",
    "ambiguous.list": "10 20\n",
    "broken.list": "#! bootpress sort list 1\na\\q\n",
    "newer.list": "#! bootpress sort list 9\n",
    "flags.list": "5 [shiny] a\n",
    "priority.list": "a 40000\n",
    "one.list": "a\n",
    "bad.toml": "bandwidth = 1\n",
}
TRACE = Trace(
    source="guest",
    tool="by hand",
    created="2026-01-01T00:00:00+00:00",
    kernel="6.1",
    image="other.squashfs",
    image_bytes=4096,
    image_digest="sha256:0",
    block_size=131072,
    attach="loop",
    medium="none",
    until="multi-user.target",
    boot_seconds=1.0,
    machine="none",
    paths=(b"usr/bin/elsewhere",),
    events=(Event(0, "inode", 0, 0, 32), Event(1, "pages", 0, 0, 1)),
)

# name: (arguments, status, the line holds, there is a hint)
REFUSED: dict[str, tuple[str, int, str, bool]] = {
    "no-verb": ("", 2, "VERB", True),
    "unknown-verb": ("shrink tree", 2, "shrink", True),
    "unknown-option": ("pack tree out --fast", 2, "--fast", True),
    "abbreviated-option": ("pack tree out --cod xz", 2, "--cod", True),
    "no-target": ("pack tree", 2, "IMAGE", True),
    "unknown-codec": ("pack tree out --codec rar", 2, "'rar'", True),
    "level-too-high": ("pack tree out --codec zstd --level 23", 2, "no level 23", True),
    "level-no-number": ("pack tree out --level best", 2, "'best'", True),
    "block-size-odd": ("pack tree out --block-size 100K", 2, "102400", True),
    "block-size-too-large": ("pack tree out --block-size 2M", 2, "2097152", True),
    "block-size-too-small": ("pack tree out --block-size 2K", 2, "2048", True),
    "block-size-no-size": ("pack tree out --block-size large", 2, "'large'", True),
    "filter-without-xz": ("pack tree out --codec gzip --bcj x86", 2, "branch filter", True),
    "filter-unknown": ("pack tree out --codec xz --bcj mips", 2, "'mips'", True),
    "jobs-zero": ("pack tree out --jobs 0", 2, "'0'", True),
    "memory-no-size": ("pack tree out --memory lots", 2, "'lots'", True),
    "owner-names": ("pack tree out --owner root:root", 2, "'root:root'", True),
    "owner-too-high": ("pack tree out --owner 4294967295:0", 2, "4294967295", False),
    "epoch-negative": ("pack tree out --source-date-epoch=-1", 2, "-1", True),
    "epoch-too-late": ("pack tree out --source-date-epoch 4294967296", 2, "4294967296", True),
    "cold-order-unknown": ("pack tree out --cold-order random", 2, "'random'", True),
    "sort-style-unknown": ("pack tree out --sort-list stale.list --sort-style x", 2, "'x'", True),
    "image-inside-source": ("pack tree tree/out", 2, "inside", True),
    "unpack-nowhere": ("unpack image", 2, "directory or --tar", True),
    "unpack-twice": ("unpack image out --tar t", 2, "only one", True),
    "cat-a-directory": ("cat image etc", 2, "is a directory", False),
    "source-missing": ("pack nowhere out", 3, "nowhere: No such file", True),
    "source-text": ("pack text out", 3, "text", True),
    "source-cut-short": ("pack foreign out", 3, "foreign", True),
    "sort-list-missing": ("pack tree out --sort-list nowhere", 3, "nowhere", False),
    "image-missing": ("info nowhere", 3, "nowhere", False),
    "path-missing": ("cat image etc/nowhere", 3, "'etc/nowhere'", True),
    "list-path-missing": ("list image usr/nowhere", 3, "'usr/nowhere'", True),
    "diff-missing": ("diff tree nowhere", 3, "nowhere", True),
    "against-missing": ("verify image --against nowhere", 3, "nowhere", True),
    "target-directory": ("pack tree tree", 6, "is a directory", True),
    "target-nowhere": ("pack tree nowhere/out", 6, "nowhere", True),
    "report-nowhere": ("pack tree out --report nowhere/report.json", 6, "nowhere", True),
    "unpack-full-directory": ("unpack image tree", 6, "tree", True),
    "tar-directory": ("unpack image --tar tree", 6, "is a directory", True),
    "image-text": ("info text", 7, "text", False),
    "verify-text": ("verify text", 7, "text", False),
    "unpack-text": ("unpack text out", 7, "text", False),
    "stale": ("pack tree out --sort-list stale.list", 9, "2 entries: 'nowhere/a'", True),
    "ambiguous": ("pack tree out --sort-list ambiguous.list", 10, "which dialect", True),
    "broken-list": ("pack tree out --sort-list broken.list", 10, "broken.list: line 2", False),
    "newer-list": ("pack tree out --sort-list newer.list", 10, "newer.list", True),
    "unknown-flag": ("pack tree out --sort-list flags.list", 10, "'shiny'", True),
    "priority-range": ("pack tree out --sort-list priority.list", 10, "40000", False),
    "trace-no-target": ("trace image", 2, "-o", True),
    "trace-source-unknown": ("trace image -o t --source tape", 2, "'tape'", True),
    "trace-guest-of-text": ("trace text -o t", 3, "no SquashFS image", True),
    "trace-missing": ("trace nowhere -o t", 3, "nowhere: No such file", False),
    "trace-no-kernel": ("trace image -o t", 12, "kernel", True),
    "trace-initrd-alone": ("trace image -o t --initrd text", 2, "kernel", True),
    "trace-kernel-text": ("trace image -o t --kernel text", 3, "no kernel", True),
    "trace-target-nowhere": ("trace image -o nowhere/t", 6, "nowhere", True),
    "trace-no-time": ("trace image -o t --timeout nan", 2, "nan seconds", False),
    "trace-negative-time": ("trace image -o t --timeout=-1", 2, "-1.0 seconds", False),
    "trace-no-memory": ("trace image -o t --memory 1K", 2, "0 MiB", True),
    "medium-unknown": ("measure image --medium tape", 2, "'tape'", True),
    "medium-missing": ("measure image --medium ./tape.toml", 3, "tape.toml", False),
    "medium-text": ("measure image --medium ./bad.toml", 2, "bad.toml", False),
    "measure-nothing": ("measure image --runs 0", 2, "one run", False),
    "measure-json-nowhere": ("measure image --json nowhere/t", 6, "nowhere", True),
    "order-no-trace": ("order text -o list", 11, "text", True),
    "order-missing": ("order nowhere -o list", 3, "nowhere", False),
    "order-of-an-image": ("order image -o list", 11, "image", True),
    "order-too-many-boots": ("order boot.trace -o list --min-boots 2", 2, "at least 2", True),
    "order-cut-short": ("order cut.trace -o list", 11, "cut.trace", True),
    "order-target": ("order boot.trace -o tree", 6, "is a directory", True),
    "simulate-no-trace": ("simulate image image", 11, "no trace", True),
    "simulate-another-tree": ("simulate boot.trace image", 11, "none of the paths", True),
    "repack-no-list": ("repack image out", 2, "--sort-list", True),
    "repack-directory": ("repack tree out --sort-list one.list", 3, "tree", False),
    "repack-text": ("repack text out --sort-list one.list", 7, "text", False),
    "repack-stale": ("repack image out --sort-list stale.list", 9, "2 entries", True),
    "repack-codec": ("repack image out --sort-list one.list --codec rar", 2, "'rar'", True),
    "repack-style": ("repack image out --sort-list one.list --sort-style x", 2, "'x'", True),
    "repack-level": ("repack image out --sort-list one.list --level 99", 2, "no level 99", True),
    "list-directory": ("pack tree out --sort-list tree", 10, "is a directory", False),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("refused")
    (top / "tree/etc").mkdir(parents=True)
    (top / "tree/etc/hostname").write_text("live\n")
    (top / "tree/a").write_text("a")
    (top / "text").write_text("no archive, no image\n" * 100)
    (top / "foreign").write_bytes(b"\x1f\x8b\x08\0" + bytes(40))
    for name, content in SORT_LISTS.items():
        (top / name).write_text(content)
    write_trace(TRACE, top / "boot.trace")
    (top / "cut.trace").write_bytes((top / "boot.trace").read_bytes()[:-20])
    api.pack(top / "tree", top / "image")
    return top


@pytest.mark.parametrize("name", list(REFUSED))
def test_refused(
    name: str, place: Path, bootpress: Bootpress, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, status, says, hint = REFUSED[name]
    before = sorted(os.walk(place))
    monkeypatch.chdir(place)
    done = bootpress(*arguments.split())
    errors = done.stderr.decode()
    assert done.returncode == status, errors
    lines = errors.splitlines()
    assert lines[0].startswith("bootpress: error: ")
    assert says in lines[0]
    assert len(lines) == (2 if lines[1:] else 1)
    assert lines[1:] == [] or lines[1].startswith("  hint: ")
    assert bool(lines[1:]) >= hint, "the line needs a hint"
    assert done.stdout == b""
    assert sorted(os.walk(place)) == before


def test_every_kind_of_error_has_its_own_status() -> None:
    classes = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.BootpressError)
    ]
    by_status: dict[int, set[type]] = {}
    for kind in classes:
        by_status.setdefault(kind.exit_code, set()).add(kind)
        assert kind.__doc__
    assert 1 not in by_status  # "they differ"
    assert {status for status, kinds in by_status.items() if len(kinds) > 1} == {3}
    assert by_status[3] == {errors.SourceError, errors.NoSuchPathError}


def test_a_bug_shows_a_traceback_and_says_so(place: Path) -> None:
    program = (
        "import sys; from bootpress import cli, workflow\n"
        "def fail(*_, **__): raise ZeroDivisionError('oops')\n"
        "workflow.verify = fail\n"
        "sys.exit(cli.main(['verify', 'image']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=place, capture_output=True, check=False
    )
    assert done.returncode == 70
    assert b"Traceback" in done.stderr
    assert b"this is a bug" in done.stderr.splitlines()[-1]
