# SPDX-License-Identifier: GPL-2.0-or-later
"""Flip any byte, cut anywhere: status 7 from every reading verb, or the tree is still right."""

import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import bootpress
from bootpress import Image, PackOptions, SortList
from bootpress.errors import BootpressError, CorruptError, UnsupportedError
from trees import make_bytes

Bootpress = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("damaged") / "root"
    for index in range(60):
        path = top / f"d{index % 5}/f{index}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_bytes(index * 37, seed=index))
    (top / "link").symlink_to("d0/f0")
    (top / "again").hardlink_to(top / "d1/f1")
    return top


@pytest.fixture(scope="module", params=["gzip", "zstd", "xz", "lz4", "lzo", "none"])
def image(
    request: pytest.FixtureRequest, root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path = tmp_path_factory.mktemp("image") / "image"
    bootpress.pack(root, path, options=PackOptions(codec=request.param))
    return path


def find_metadata(image: Path) -> range:
    info = Image(image).info()
    return range(int(info["inode_table"] or 0), int(info["bytes_used"] or 0))


def test_a_flipped_byte_of_the_metadata_is_seen(image: Path, root: Path, tmp_path: Path) -> None:
    data = image.read_bytes()
    offsets = [*range(96), *find_metadata(image)]
    for offset in random.Random(3).sample(offsets, 300) + list(range(96)):
        damaged = bytearray(data)
        damaged[offset] ^= 1 << random.Random(offset).randrange(8)
        (tmp_path / "damaged").write_bytes(damaged)
        try:
            report = bootpress.verify(tmp_path / "damaged", against=root)
        except (CorruptError, UnsupportedError):
            continue
        assert report.differences == (), offset
        assert report.seal != "intact", offset


def test_a_flipped_byte_of_the_data_is_seen(image: Path, tmp_path: Path) -> None:
    data = image.read_bytes()
    for offset in random.Random(4).sample(range(96, find_metadata(image).start), 100):
        damaged = bytearray(data)
        damaged[offset] ^= 0x20
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(CorruptError):
            bootpress.verify(tmp_path / "damaged")


def test_an_image_that_is_cut_short_is_seen(image: Path, tmp_path: Path) -> None:
    data = image.read_bytes()
    used = find_metadata(image).stop
    for length in [0, 1, 95, 96, 97, *random.Random(5).sample(range(98, used), 40), used - 1]:
        (tmp_path / "damaged").write_bytes(data[:length])
        with pytest.raises(BootpressError) as caught:
            bootpress.verify(tmp_path / "damaged")
        assert "damaged" in caught.value.message


def test_a_lost_seal_is_told(image: Path, tmp_path: Path) -> None:
    (tmp_path / "damaged").write_bytes(image.read_bytes()[: find_metadata(image).stop])
    assert bootpress.verify(tmp_path / "damaged").seal == "absent"


def test_every_reading_verb_refuses_a_damaged_image(
    image: Path, tmp_path: Path, bootpress: Bootpress
) -> None:
    damaged = tmp_path / "damaged"
    data = bytearray(image.read_bytes())
    middle = find_metadata(image)
    for offset in range(middle.start, middle.stop):
        data[offset] ^= 0xA5
    damaged.write_bytes(data)
    for arguments in (
        ["list", damaged],
        ["cat", damaged, "d0/f5"],
        ["info", damaged],
        ["layout", damaged],
        ["layout", damaged, "--json"],
        ["verify", damaged],
        ["diff", damaged, image],
        ["diff", image, damaged],
        ["unpack", damaged, tmp_path / "out"],
        ["unpack", damaged, "--tar", tmp_path / "out.tar"],
        ["pack", damaged, tmp_path / "out.squashfs"],
    ):
        done = bootpress(*arguments)
        assert done.returncode == 7, (arguments, done.stderr)
        assert done.stderr.startswith(b"bootpress: error: "), arguments
        assert bytes(damaged) in done.stderr, arguments
        assert b"Traceback" not in done.stderr
        assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged"]


def test_an_image_of_mksquashfs_verifies_without_a_seal(root: Path, tmp_path: Path) -> None:
    if shutil.which("mksquashfs") is None:
        pytest.skip("not installed: mksquashfs")
    subprocess.run(["mksquashfs", root, tmp_path / "theirs", "-quiet", "-no-progress"], check=True)
    report = bootpress.verify(tmp_path / "theirs", against=root)
    assert (report.seal, report.differences) == ("absent", ())


def test_a_repack_of_a_damaged_image_is_refused_by_name(image: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    data = bytearray(image.read_bytes())
    data[200] ^= 4  # in the data region
    damaged.write_bytes(data)
    with pytest.raises(CorruptError, match=r"damaged: the seal does not match"):
        bootpress.repack(damaged, tmp_path / "new", sort_list=SortList.from_paths(["d0/f0"]))
    damaged.write_bytes(image.read_bytes()[:-8000])
    with pytest.raises(CorruptError, match="damaged"):
        bootpress.repack(damaged, tmp_path / "new", sort_list=SortList.from_paths(["d0/f0"]))
    assert not (tmp_path / "new").exists()
