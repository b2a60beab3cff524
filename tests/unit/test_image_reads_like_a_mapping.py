# SPDX-License-Identifier: GPL-2.0-or-later
"""``bootpress.Image``: access by any kind of path, iteration, reading, errors."""

import os
import threading
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pytest

import bootpress
from bootpress import Image, PackOptions
from bootpress.errors import CorruptError, NoSuchPathError, SourceError, UsageError


@pytest.fixture
def image(small: Path, tmp_path: Path) -> Image:
    with open(os.fsencode(small) + b"/caf\xe9", "wb") as file:
        file.write(b"latin")
    bootpress.pack(small, tmp_path / "image", options=PackOptions(codec="gzip"))
    return Image(tmp_path / "image")


@pytest.mark.parametrize(
    "path",
    [
        "etc/hostname",
        "/etc/hostname",
        "./etc//hostname",
        b"etc/hostname",
        PurePosixPath("etc/hostname"),
    ],
)
def test_paths_may_be_text_bytes_or_path_objects(
    image: Image, path: str | bytes | PurePosixPath
) -> None:
    assert path in image
    assert image[path].read() == b"live\n"
    assert image.read(path) == b"live\n"
    assert image[path].path == "etc/hostname"


def test_names_that_are_not_utf8_come_out_as_surrogates_and_go_back_in(image: Image) -> None:
    assert "caf\udce9" in list(image)
    assert image.read("caf\udce9") == image.read(b"caf\xe9") == b"latin"


def test_iteration_is_depth_first_in_order_and_starts_with_the_root(image: Image) -> None:
    assert list(image) == [
        "",
        "caf\udce9",
        "empty",
        "etc",
        "etc/hostname",
        "etc/os-release",
        "usr",
        "usr/bin",
        "usr/bin/again",
        "usr/bin/link",
        "usr/bin/tool",
    ]
    assert len(image) == 11
    assert [entry.path for entry in image.walk()] == list(image)
    assert [entry.path for entry in image.walk("etc")] == ["etc", "etc/hostname", "etc/os-release"]
    assert [entry.path for entry in image.walk("empty")] == ["empty"]


def test_it_is_a_mapping(image: Image) -> None:
    assert isinstance(image, Mapping)
    assert image.get("nowhere") is None
    assert {path for path, entry in image.items() if entry.stat.type == "symlink"} == {
        "usr/bin/link"
    }
    assert image == image  # noqa: PLR0124
    assert image != Image(image.path)
    assert 7 not in image  # type: ignore[comparison-overlap]


def test_stat_tells_every_attribute(image: Image, small: Path) -> None:
    stat = image.stat("usr/bin/tool")
    ours = (small / "usr/bin/tool").stat()
    assert (stat.type, stat.size, stat.links) == ("file", 300_000, 2)
    assert (stat.mode, stat.mtime) == (ours.st_mode & 0o7777, int(ours.st_mtime))
    assert (stat.uid, stat.gid) == (ours.st_uid, ours.st_gid)
    assert stat.target is None
    assert stat.device is None
    assert image.stat("usr/bin/link").target == "tool"
    assert image.stat("").type == "directory"
    assert image["usr/bin/tool"].inode == image["usr/bin/again"].inode


def test_reading_is_clamped_to_the_file(image: Image, small: Path) -> None:
    content = (small / "usr/bin/tool").read_bytes()
    assert image.read("usr/bin/tool", 131_000, 500) == content[131_000:131_500]
    assert image.read("usr/bin/tool", 299_999, 500) == content[-1:]
    assert image.read("usr/bin/tool", 300_000) == b""
    assert image.read("usr/bin/tool", 10**12, 5) == b""
    assert image.read("usr/bin/tool", 5, 0) == b""
    assert image.read("empty") == b""


def test_a_missing_path_is_a_key_error_with_a_message(image: Image) -> None:
    with pytest.raises(NoSuchPathError, match="holds no 'etc/passwd'") as caught:
        image["etc/passwd"]
    assert isinstance(caught.value, KeyError)
    assert "etc/passwd" not in image
    # Symlinks are not followed, and nothing climbs.
    for path in ("usr/bin/link/x", "etc/hostname/x", "../etc", "etc/.."):
        assert path not in image


def test_only_regular_files_have_content(image: Image) -> None:
    with pytest.raises(UsageError, match="'etc' is a directory"):
        image.read("etc")
    with pytest.raises(UsageError, match="is a symlink"):
        image.read("usr/bin/link")
    with pytest.raises(UsageError, match="negative"):
        image.read("empty", -1)


def test_what_is_no_image_says_so(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nowhere"):
        Image(tmp_path / "nowhere")
    (tmp_path / "text").write_text("no image" * 100)
    with pytest.raises((CorruptError, SourceError), match="text"):
        Image(tmp_path / "text")


def test_one_image_serves_many_threads(image: Image, small: Path) -> None:
    content = (small / "usr/bin/tool").read_bytes()
    wrong: list[int] = []

    def read() -> None:
        for offset in range(0, 300_000, 30_011):
            if image.read("usr/bin/tool", offset, 1000) != content[offset : offset + 1000]:
                wrong.append(offset)

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_layouts_cover_every_path(image: Image) -> None:
    layouts = list(image.layouts())
    assert [layout.path for layout in layouts] == list(image)
    numbers = {layout.inode for layout in layouts}
    assert numbers == set(range(1, len(numbers) + 1))
    info = image.info()
    for layout in layouts:
        assert layout.inode_extent.offset >= int(info["inode_table"] or 0)
        for block in layout.blocks:
            assert block.offset + block.length <= layout.inode_extent.offset


def test_a_listing_is_found_by_its_reference(small: Path, tmp_path: Path) -> None:
    """Unit and offset lead to the listing's first header, and its size to where it ends."""
    (small / "void").mkdir()
    bootpress.pack(small, tmp_path / "image", options=PackOptions(codec="none"))
    image = Image(tmp_path / "image")
    data = (tmp_path / "image").read_bytes()
    table = int(image.info()["directory_table"] or 0)
    unit = int.from_bytes(data[table : table + 2], "little")
    plain = data[table + 2 : table + 2 + (unit & 0x7FFF)]
    taken = 0
    for layout in image.layouts():
        if layout.type != "directory" or layout.path == "void":
            assert (layout.listing_reference, layout.listing_bytes) == (None, 0)
            continue
        assert layout.listing_reference is not None
        assert layout.listing_reference >> 16 == 0  # the first and only unit
        at = layout.listing_reference & 0xFFFF
        listing = plain[at : at + layout.listing_bytes]
        taken += len(listing)
        names = [path for path in image if path and os.path.dirname(path) == layout.path]
        assert int.from_bytes(listing[:4], "little") + 1 == len(names)
        length = int.from_bytes(listing[18:20], "little") + 1
        assert listing[20 : 20 + length] == os.fsencode(os.path.basename(names[0]))
    assert taken == len(plain)
