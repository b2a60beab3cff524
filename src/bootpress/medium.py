# SPDX-License-Identifier: GPL-2.0-or-later
"""What lies on the thing that boots: where in an ISO or on a disk the SquashFS images are."""

import json
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from bootpress.errors import SourceError, UsageError
from bootpress.image import Image
from bootpress.model import AnyPath
from bootpress.proc import run_program

# The superblock's first and 41st bytes (fs/squashfs/squashfs_fs.h: s_magic, bytes_used).
SQUASHFS_MAGIC = b"hsqs"
BYTES_USED = slice(40, 48)
SUPERBLOCK_BYTES = 96
# ECMA-119: the volume descriptors begin at sector 16 of 2048 bytes, an identifier after each type.
ISO_MAGIC_OFFSET = 32769
ISO_MAGIC = b"CD001"
ISO_SECTOR = 2048
# The last two bytes of a boot sector. A partition table has it, GPT's protective MBR included.
MBR_MAGIC_OFFSET = 510
MBR_MAGIC = b"\x55\xaa"

DiskKind = Literal["image", "iso", "disk"]

# "File data lba:  0 ,    73 ,   10 ,    20480 , '/live/filesystem.squashfs'": extent number, first
# sector, sectors, bytes, name (xorriso(1), -find … -exec report_lba).
_EXTENT_LINE = re.compile(r"File data lba:\s*\d+ ,\s*(\d+) ,\s*\d+ ,\s*(\d+) , ('.*')")


@dataclass(frozen=True, slots=True)
class DiskImage:
    """A SquashFS image on a disk.

    Attributes:
        name: its path in an ISO, its partition's number on a disk; "" where it is all there is.
        offset: bytes before it on the disk.
        length: its superblock's bytes_used.
    """

    name: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Disk:
    """What a machine boots from.

    Attributes:
        path: the file.
        kind: a bare SquashFS image, an ISO, or a disk with partitions.
        images: in the order of their place, at least one.
    """

    path: Path
    kind: DiskKind
    images: tuple[DiskImage, ...]

    def main_image(self, name: str | None = None) -> DiskImage:
        """Return the image of that name, or the largest: the root file system, not an add-on.

        Raises:
            UsageError: no such name.
        """
        if name is None:
            return max(self.images, key=lambda image: image.length)
        for image in self.images:
            if image.name == name:
                return image
        known = ", ".join(image.name for image in self.images)
        raise UsageError(f"{self.path} holds no image '{name}'", hint=f"it holds {known}")


def inspect_disk(path: AnyPath) -> Disk:
    """Find the SquashFS images on what is to boot, by their magic, whatever they are called.

    Raises:
        SourceError: it is missing, unreadable, or holds no SquashFS image.
        MissingToolError: xorriso, for an ISO, or sfdisk, for a disk, is not installed.
    """
    file_path = Path(os.fsdecode(path))
    try:
        with file_path.open("rb") as file:
            kind, found = _inspect(file, file_path)
    except OSError as error:
        raise SourceError(f"cannot read {file_path}: {error.strerror}") from error
    if not found:
        where = {"iso": " among the ISO's files", "disk": " among its partitions", "image": ""}
        raise SourceError(
            f"{file_path} is or holds no SquashFS image{where[kind]}",
            hint="give a SquashFS image, an ISO that holds one, or a disk with one as a partition",
        )
    return Disk(file_path, kind, tuple(sorted(found, key=lambda image: image.offset)))


def open_image(disk: Disk, image: DiskImage) -> Image:
    """Open an image where it lies on a disk.

    Raises:
        SourceError: the disk cannot be read.
        CorruptError, UnsupportedError: the image; also where the disk ends before it does.
    """
    if disk.kind == "image":
        return Image(disk.path)
    return Image(disk.path, offset=image.offset, length=image.length)


def _inspect(file: BinaryIO, path: Path) -> tuple[DiskKind, list[DiskImage]]:
    if (length := _read_image_length(file, 0)) is not None:
        return "image", [DiskImage("", 0, length)]
    if _read_at(file, ISO_MAGIC_OFFSET, len(ISO_MAGIC)) == ISO_MAGIC:
        return "iso", _find_images(file, _list_iso_files(path))
    if _read_at(file, MBR_MAGIC_OFFSET, len(MBR_MAGIC)) == MBR_MAGIC:
        return "disk", _find_images(file, _list_partitions(path))
    return "image", []


def _find_images(file: BinaryIO, places: Iterator[tuple[str, int]]) -> list[DiskImage]:
    return [
        DiskImage(name, offset, length)
        for name, offset in places
        if (length := _read_image_length(file, offset)) is not None
    ]


def _read_image_length(file: BinaryIO, offset: int) -> int | None:
    """Return the bytes of the image that begins at an offset, None where none does."""
    superblock = _read_at(file, offset, SUPERBLOCK_BYTES)
    if len(superblock) < SUPERBLOCK_BYTES or not superblock.startswith(SQUASHFS_MAGIC):
        return None
    return int.from_bytes(superblock[BYTES_USED], "little")


def _read_at(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)


def _list_iso_files(path: Path) -> Iterator[tuple[str, int]]:
    """Yield every file's name and first byte, where it has bytes; the first extent's if several."""
    listing = run_program(
        ["xorriso", "-indev", path, "-find", "/", "-type", "f", "-exec", "report_lba", "--"],
        error=SourceError,
    )
    seen: set[str] = set()
    for line in listing.decode("utf-8", "surrogateescape").splitlines():
        found = _EXTENT_LINE.fullmatch(line.strip())
        if found and int(found[2]) and found[3] not in seen:
            seen.add(found[3])
            (name,) = shlex.split(found[3])  # it is quoted for a shell
            yield name, int(found[1]) * ISO_SECTOR


def _list_partitions(path: Path) -> Iterator[tuple[str, int]]:
    answer = json.loads(run_program(["sfdisk", "--json", path], error=SourceError))
    table = answer["partitiontable"]
    sector = int(table.get("sectorsize", 512))
    for partition in table.get("partitions", ()):
        number = re.search(r"\d+$", partition["node"])
        yield number[0] if number else "", int(partition["start"]) * sector
