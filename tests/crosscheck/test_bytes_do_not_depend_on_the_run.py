# SPDX-License-Identifier: GPL-2.0-or-later
"""The same source, options and codecs give the same bytes, for any number of workers."""

import os
import random
import shutil
import threading
import time
from pathlib import Path

import pytest

import bootpress
from bootpress import Image, PackOptions


@pytest.mark.parametrize("codec", ["zstd", "gzip", "xz", "lz4", "none"])
def test_any_number_of_jobs_gives_the_same_bytes(
    codec: str, everything: Path, tmp_path: Path
) -> None:
    images = set()
    for jobs in (1, 2, 7):
        options = PackOptions(codec=codec, level=None if codec == "none" else 1, jobs=jobs)
        bootpress.pack(everything, tmp_path / "image", options=options)
        images.add((tmp_path / "image").read_bytes())
    assert len(images) == 1


def test_randomised_delays_and_little_memory_change_nothing(debian: Path, tmp_path: Path) -> None:
    def stagger(seed: int) -> bootpress.model.Monitor:
        delays = random.Random(seed)
        return lambda *_: time.sleep(delays.random() / 20)

    bootpress.pack(debian, tmp_path / "first", options=PackOptions(codec="lz4", jobs=1))
    stop = threading.Event()

    def disturb() -> None:
        while not stop.is_set():
            sum(range(20000))
            time.sleep(random.random() / 200)

    disturbing = [threading.Thread(target=disturb) for _ in range(3)]
    for thread in disturbing:
        thread.start()
    try:
        for seed, (jobs, memory) in enumerate([(2, 1 << 20), (7, 0), (7, 1 << 21), (3, 64 << 20)]):
            options = PackOptions(codec="lz4", jobs=jobs, memory=memory)
            bootpress.pack(debian, tmp_path / "next", options=options, monitor=stagger(seed))
            assert (tmp_path / "next").read_bytes() == (tmp_path / "first").read_bytes(), jobs
    finally:
        stop.set()
        for thread in disturbing:
            thread.join()


def test_the_order_of_creation_and_the_place_change_nothing(
    everything: Path, tmp_path: Path
) -> None:
    # Other inode numbers, another order of the directory entries, another path.
    shutil.copytree(everything / "names", tmp_path / "a/names", symlinks=True)
    names = sorted(os.listdir(os.fsencode(everything) + b"/names"), reverse=True)
    os.makedirs(tmp_path / "elsewhere/b/names")
    for name in names:
        shutil.copy2(
            os.fsencode(everything) + b"/names/" + name,
            os.fsencode(tmp_path) + b"/elsewhere/b/names/" + name,
        )
    for root in ("a", "elsewhere/b"):
        shutil.copystat(everything / "names", tmp_path / root / "names")
        os.utime(tmp_path / root, (5, 5))
    bootpress.pack(tmp_path / "a", tmp_path / "image-a")
    bootpress.pack(tmp_path / "elsewhere/b", tmp_path / "image-b")
    assert (tmp_path / "image-a").read_bytes() == (tmp_path / "image-b").read_bytes()


def test_the_clock_changes_nothing(small: Path, tmp_path: Path) -> None:
    bootpress.pack(small, tmp_path / "first")
    time.sleep(1.1)
    bootpress.pack(small, tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_source_date_epoch_sets_the_time_and_holds_back_newer_files(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.utime(small / "empty", (500, 500))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000")
    bootpress.pack(small, tmp_path / "image")
    image = Image(tmp_path / "image")
    assert image.stat("empty").mtime == 500
    assert image.stat("etc/hostname").mtime == 1000
    # The superblock's mkfs_time is at 8 (squashfs_fs.h).
    assert int.from_bytes((tmp_path / "image").read_bytes()[8:12], "little") == 1000
    # Touched files give the same bytes.
    (small / "etc/hostname").touch()
    bootpress.pack(small, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "image").read_bytes()


def test_without_an_epoch_the_newest_file_sets_the_time(small: Path, tmp_path: Path) -> None:
    for path in [small, *small.rglob("*")]:
        os.utime(path, (1000, 1000), follow_symlinks=False)
    os.utime(small / "etc/hostname", (2000, 2000))
    bootpress.pack(small, tmp_path / "image")
    assert int.from_bytes((tmp_path / "image").read_bytes()[8:12], "little") == 2000
