# SPDX-License-Identifier: GPL-2.0-or-later
"""Archives that are cut short, damaged or hostile: status 3, the archive's name, no image."""

import io
import os
import random
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import bootpress
from bootpress.errors import BootpressError, SourceError
from trees import make_bytes

Bootpress = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture(params=["", "gz", "xz", "bz2"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "archive"
    with tarfile.open(path, f"w:{request.param}") as tar:  # type: ignore[call-overload]
        for index in range(20):
            member = tarfile.TarInfo(f"f{index}")
            member.size = 30_000
            tar.addfile(member, io.BytesIO(make_bytes(30_000, seed=index)))
    return path


def test_an_archive_that_is_cut_short(archive: Path, tmp_path: Path) -> None:
    data = archive.read_bytes()
    for length in random.Random(1).sample(range(600, len(data) - 12_000), 12):
        archive.write_bytes(data[:length])
        with pytest.raises(SourceError, match="archive"):
            bootpress.pack(archive, tmp_path / "image")
        assert os.listdir(tmp_path) == ["archive"]


def test_what_is_no_archive(tmp_path: Path, bootpress: Bootpress) -> None:
    for index, content in enumerate((b"", b"text\n" * 1000, make_bytes(9999, seed=1))):
        (tmp_path / "input").write_bytes(content)
        done = bootpress("pack", tmp_path / "input", tmp_path / "image")
        assert done.returncode == 3, (index, done.stderr)
        assert bytes(tmp_path / "input") in done.stderr
        assert os.listdir(tmp_path) == ["input"]


def make_tar(path: Path, *members: tuple[str, bytes, str]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            member.linkname = link
            tar.addfile(member)


@pytest.mark.parametrize(
    "members",
    [
        [("../up", tarfile.REGTYPE, "")],
        [("a/../../up", tarfile.REGTYPE, "")],
        [("a", tarfile.LNKTYPE, "missing")],
        [("a", tarfile.REGTYPE, ""), ("a/b", tarfile.REGTYPE, "")],
        [("a", tarfile.SYMTYPE, "/tmp"), ("a/b", tarfile.REGTYPE, "")],
    ],
    ids=["climbs", "climbs-later", "link-to-nothing", "file-as-directory", "symlink-as-directory"],
)
def test_an_archive_that_makes_no_sense(
    members: list[tuple[str, bytes, str]], tmp_path: Path
) -> None:
    make_tar(tmp_path / "archive", *members)
    with pytest.raises(BootpressError, match="archive"):
        bootpress.pack(tmp_path / "archive", tmp_path / "image")
    assert os.listdir(tmp_path) == ["archive"]


def test_an_absolute_name_lands_inside(tmp_path: Path) -> None:
    make_tar(tmp_path / "archive", ("/etc/passwd", tarfile.REGTYPE, ""))
    bootpress.pack(tmp_path / "archive", tmp_path / "image")
    assert list(bootpress.Image(tmp_path / "image")) == ["", "etc", "etc/passwd"]


def test_of_two_members_with_one_name_the_last_counts(tmp_path: Path) -> None:
    # As tar itself would leave it.
    with tarfile.open(tmp_path / "archive", "w") as tar:
        for content in (b"first", b"second"):
            member = tarfile.TarInfo("name")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    bootpress.pack(tmp_path / "archive", tmp_path / "image")
    assert bootpress.Image(tmp_path / "image").read("name") == b"second"
