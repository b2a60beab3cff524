# SPDX-License-Identifier: GPL-2.0-or-later
"""Images are found in ISOs and on disks that other tools made, at the bytes where they lie."""

import subprocess
from pathlib import Path

import pytest

from bootpress import Image, pack
from bootpress.errors import CorruptError, SourceError, UsageError
from bootpress.imagemap import ImageMap
from bootpress.medium import inspect_disk, open_image
from bootpress.record import digest_image
from judges import need, run


@pytest.fixture
def image(small: Path, tmp_path: Path) -> Path:
    pack(small, tmp_path / "image.squashfs")
    return tmp_path / "image.squashfs"


def list_paths(path: Path) -> list[str]:
    disk = inspect_disk(path)
    return list(open_image(disk, disk.main_image()))


def test_an_image_further_on_in_a_file_is_the_same_image(image: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    content = image.read_bytes()
    moved.write_bytes(bytes(12345) + content + b"something else")
    one, other = Image(image), Image(moved, offset=12345, length=len(content))
    assert list(one.layouts()) == list(other.layouts())
    assert one.info() == other.info()
    assert all(one.read(path) == other.read(path) for path in one if one.stat(path).type == "file")
    maps = ImageMap(one), ImageMap(other)
    assert maps[0].table_units("inode table") == maps[1].table_units("inode table")
    assert digest_image(one) == digest_image(other)
    with pytest.raises(CorruptError, match="cut short"):
        Image(moved, offset=12345, length=len(content) + 100)
    with pytest.raises(UsageError, match="offset -1"):
        Image(moved, offset=-1)


def test_a_bare_image_is_the_disk(image: Path) -> None:
    disk = inspect_disk(image)
    assert (disk.kind, len(disk.images)) == ("image", 1)
    assert disk.images[0].offset == 0
    assert disk.images[0].length == Image(image).info()["bytes_used"]
    assert open_image(disk, disk.images[0]).path == str(image)


def test_images_in_an_iso_are_found_by_their_magic(image: Path, tmp_path: Path) -> None:
    need("xorriso")
    tree = tmp_path / "tree"
    (tree / "live").mkdir(parents=True)
    (tree / "extra").mkdir()
    (tree / "live/root's file system.img").write_bytes(image.read_bytes())
    (tree / "empty").touch()
    (tree / "README").write_text("no image")
    (tmp_path / "less").mkdir()
    pack(tmp_path / "less", tree / "extra/add-on.sfs")
    iso = tmp_path / "live.iso"
    run("xorriso", "-as", "mkisofs", "-o", iso, "-r", "-J", tree)
    disk = inspect_disk(iso)
    assert disk.kind == "iso"
    assert {found.name for found in disk.images} == {
        "/live/root's file system.img",
        "/extra/add-on.sfs",
    }
    # The larger one is the root file system.
    assert disk.main_image().name == "/live/root's file system.img"
    assert list_paths(iso) == list(Image(image))
    assert disk.main_image("/extra/add-on.sfs").length < disk.main_image().length
    with pytest.raises(UsageError, match="holds no image 'other'"):
        disk.main_image("other")


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_images_in_partitions(label: str, image: Path, tmp_path: Path) -> None:
    need("sfdisk")
    target = tmp_path / "disk"
    with target.open("wb") as file:
        file.truncate(32 << 20)
        file.seek(10 << 20)
        file.write(image.read_bytes())
    # The first number is left free: the name is the partition's number, not its place in a list.
    table = f"label: {label}\n2: start=2048, size=4096\n3: start=20480, size=20480\n"
    subprocess.run(["sfdisk", "-q", target], input=table.encode(), check=True)
    disk = inspect_disk(target)
    assert disk.kind == "disk"
    assert [(found.name, found.offset) for found in disk.images] == [("3", 10 << 20)]
    assert list_paths(target) == list(Image(image))


def test_what_holds_no_image(tmp_path: Path) -> None:
    need("xorriso", "sfdisk")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a").write_text("text")
    (tmp_path / "text").write_text("text")
    run("xorriso", "-as", "mkisofs", "-o", tmp_path / "iso", tmp_path / "tree")
    for name in ("text", "iso", "nothing"):
        with pytest.raises(SourceError):
            inspect_disk(tmp_path / name)


def test_a_disk_that_is_cut_off_inside_its_image(image: Path, tmp_path: Path) -> None:
    need("xorriso")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/root.sfs").write_bytes(image.read_bytes())
    iso = tmp_path / "iso"
    run("xorriso", "-as", "mkisofs", "-o", iso, "-r", tmp_path / "tree")
    disk = inspect_disk(iso)
    with iso.open("r+b") as file:
        file.truncate(disk.images[0].offset + 5000)
    with pytest.raises(CorruptError, match="cut short"):
        open_image(disk, disk.images[0])
