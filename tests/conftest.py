# SPDX-License-Identifier: GPL-2.0-or-later
"""What tests share: the command, a real root file system, a tree that holds everything."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from hypothesis import HealthCheck, settings

from judges import BUILD, run, why_no_mounts
from trees import make_everything

# The same examples on every run: a failure on one machine is a failure on all. Files are written
# and mounted for each, so time limits per example would measure the disk.
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("repeatable")

Bootpress = Callable[..., subprocess.CompletedProcess[bytes]]
COMMAND = (sys.executable, "-m", "bootpress")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that mount where nothing can be mounted, with the reason."""
    if item.get_closest_marker("mounts") and (reason := why_no_mounts()):
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def no_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the caller's SOURCE_DATE_EPOCH out of the tests."""
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)


@pytest.fixture
def bootpress() -> Bootpress:
    """Run the command as a process; returns its status, output and errors."""

    def run_command(
        *arguments: str | bytes | Path,
        stdin: IO[bytes] | None = None,
        env: dict[str, str] | None = None,
        user: int | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*COMMAND, *arguments],
            stdin=stdin or subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=300,
            env={**os.environ, **(env or {})},
            user=user,
        )

    return run_command


@pytest.fixture(scope="session")
def needs_root() -> None:
    """Skip where owners, devices and trusted xattrs cannot be made."""
    if os.geteuid() != 0:
        pytest.skip("making owners, devices and trusted xattrs needs root")


@pytest.fixture(scope="session")
def debian(needs_root: None) -> Path:
    """A real Debian root file system (mmdebstrap, minbase), kept between runs."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("not installed: mmdebstrap")
    root = BUILD / "rootfs/bookworm"
    run(Path(__file__).parents[1] / "tools/make_rootfs.sh", root)
    return root


@pytest.fixture(scope="session")
def everything(needs_root: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree with everything that SquashFS can hold."""
    root = tmp_path_factory.mktemp("everything") / "root"
    make_everything(root)
    return root


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A tree of a few files that anybody can make."""
    root = tmp_path / "small"
    (root / "etc").mkdir(parents=True)
    (root / "usr/bin").mkdir(parents=True)
    (root / "etc/hostname").write_text("live\n")
    (root / "etc/os-release").write_text("ID=test\n" * 1000)
    (root / "usr/bin/tool").write_bytes(os.urandom(300_000))
    (root / "usr/bin/again").hardlink_to(root / "usr/bin/tool")
    (root / "usr/bin/link").symlink_to("tool")
    (root / "empty").touch()
    return root
