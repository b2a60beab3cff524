# SPDX-License-Identifier: GPL-2.0-or-later
"""The outside tools that judge images: the kernel first, then the readers of others."""

import functools
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BUILD = Path(os.environ.get("BUILD", Path(__file__).parents[1] / "build")).resolve()


def run(
    *command: str | bytes | Path, check: bool = True, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a tool; where it fails, fail the test with what it said."""
    done = subprocess.run(command, capture_output=True, check=False, cwd=cwd)
    if check and done.returncode:
        told = (done.stdout[-2000:] + done.stderr[-2000:]).decode("utf-8", "backslashreplace")
        pytest.fail(f"{command} ended with {done.returncode}:\n{told}")
    return done


def need(*tools: str) -> None:
    """Skip the test where a tool is missing, naming it."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


@functools.cache
def why_no_mounts() -> str:
    """Return why images cannot be mounted here, or "" where they can."""
    if os.geteuid() != 0:
        return "mounting needs root"
    if not Path("/dev/loop-control").exists():
        return "there are no loop devices"
    need_tools = [tool for tool in ("mount", "umount", "mksquashfs") if not shutil.which(tool)]
    if need_tools:
        return f"not installed: {', '.join(need_tools)}"
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "tree").mkdir()
        (place / "on").mkdir()
        subprocess.run(
            ["mksquashfs", place / "tree", place / "image", "-quiet", "-no-progress"],
            check=True,
            capture_output=True,
        )
        mounting = ["mount", "-t", "squashfs", "-o", "loop,ro", place / "image", place / "on"]
        tried = subprocess.run(mounting, capture_output=True, check=False)
        if tried.returncode:
            return f"a loop mount fails: {tried.stderr.decode(errors='replace').strip()}"
        subprocess.run(["umount", place / "on"], check=True)
    return ""


@contextmanager
def mounted(image: Path) -> Iterator[Path]:
    """Mount an image through the kernel, read-only, and unmount it whatever happens."""
    if reason := why_no_mounts():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="bootpress-mount-") as name:
        run("mount", "-t", "squashfs", "-o", "loop,ro", image, name)
        try:
            yield Path(name)
        finally:
            run("umount", name)


@contextmanager
def small_tmpfs(size: int) -> Iterator[Path]:
    """Mount a tmpfs of ``size`` bytes, and unmount it whatever happens."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    with tempfile.TemporaryDirectory(prefix="bootpress-small-") as name:
        run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", name)
        try:
            yield Path(name)
        finally:
            run("umount", name)


def read_by_dissect(image: Path, root: Path) -> int:
    """Read a whole image with dissect.squashfs against a directory; return the files read."""
    from dissect.squashfs import SquashFS  # noqa: PLC0415 - heavy, and only for some tests

    files = 0
    with image.open("rb") as handle:
        theirs = SquashFS(handle)
        pending = [("", theirs.get("/"))]
        while pending:
            path, node = pending.pop()
            ours = os.lstat(root / path)
            assert node.mode & 0o7777 == stat.S_IMODE(ours.st_mode), path
            assert (node.uid, node.gid) == (ours.st_uid, ours.st_gid), path
            assert int(node.mtime.timestamp()) == int(ours.st_mtime // 1), path
            if stat.S_ISREG(ours.st_mode):
                files += 1
                assert node.is_file(), path
                with (root / path).open("rb") as content, node.open() as stored:
                    while chunk := content.read(1 << 20):
                        assert stored.read(len(chunk)) == chunk, path
                    assert stored.read(1) == b"", path
            elif stat.S_ISLNK(ours.st_mode):
                assert node.link == os.readlink(root / path), path
            elif stat.S_ISDIR(ours.st_mode):
                children = {child.name: child for child in node.iterdir()}
                assert sorted(children) == sorted(os.listdir(root / path)), path
                pending += [
                    (f"{path}/{name}".lstrip("/"), child) for name, child in children.items()
                ]
    return files
