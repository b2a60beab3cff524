# SPDX-License-Identifier: GPL-2.0-or-later
"""Which options leave an image's blocks as they are, and what a repack reports."""

from pathlib import Path

import pytest

import bootpress
from bootpress import Image, PackOptions, PackReport, RepackOptions, SortList
from bootpress.errors import StaleSortListError, UsageError

LISTED = SortList.from_paths(["usr/bin/tool", "etc/hostname"])


def repack(place: Path, made: PackOptions, **options: object) -> PackReport:
    bootpress.pack(place / "small", place / "image", options=made)
    return bootpress.repack(
        place / "image",
        place / "new",
        sort_list=LISTED,
        options=RepackOptions(**options),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("made", "options", "level"),
    [
        ({}, {}, 15),
        ({"level": 3}, {}, 3),
        ({"level": 3}, {"codec": "zstd", "level": 3, "block_size": 131072}, 3),
        ({"codec": "gzip"}, {}, 9),
        # These levels leave no trace in the image, so they hold for what is made anew.
        ({"codec": "gzip"}, {"level": 12}, 12),
        ({"codec": "xz", "level": 1}, {}, 6),
        ({"codec": "xz", "level": 1}, {"level": 2}, 2),
        ({"codec": "lz4", "level": 5}, {}, 12),
        ({"codec": "lz4", "level": 5}, {"level": 7}, 7),
        ({"codec": "none"}, {}, 0),
    ],
)
def test_blocks_stay(
    small: Path, tmp_path: Path, made: dict[str, object], options: dict[str, object], level: int
) -> None:
    report = repack(tmp_path, PackOptions(**made), **options)  # type: ignore[arg-type]
    assert report.copied_bytes >= 300_000 - 300_000 % 131072
    assert (report.options.codec, report.options.level) == (made.get("codec", "zstd"), level)
    assert report.options.block_size == 131072


@pytest.mark.parametrize(
    ("made", "options"),
    [
        ({}, {"codec": "gzip"}),
        ({}, {"level": 14}),
        ({}, {"block_size": 65536}),
        ({"codec": "gzip", "level": 3}, {"level": 12}),
        ({"codec": "lz4"}, {"level": 5}),
        ({"codec": "xz", "bcj": "none"}, {"bcj": "x86"}),
        ({"codec": "none"}, {"codec": "gzip"}),
        ({"codec": "gzip"}, {"codec": "none"}),
    ],
)
def test_blocks_are_compressed_anew(
    small: Path, tmp_path: Path, made: dict[str, object], options: dict[str, object]
) -> None:
    report = repack(tmp_path, PackOptions(**made), **options)  # type: ignore[arg-type]
    assert report.copied_bytes == report.copied_fragments == 0
    for name, value in options.items():
        assert getattr(report.options, name) == value
    assert bootpress.diff(tmp_path / "image", tmp_path / "new") == ()


def test_the_record_of_options_is_kept(small: Path, tmp_path: Path) -> None:
    for made in (
        PackOptions(level=4),
        PackOptions(codec="lzo", level=2),
        PackOptions(codec="xz", bcj="x86"),
    ):
        repack(tmp_path, made)
        before, after = (Image(tmp_path / name).info() for name in ("image", "new"))
        assert before["codec_record"] == after["codec_record"] != ""


def test_the_image_keeps_its_time_whatever_the_environment_says(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootpress.pack(small, tmp_path / "image")
    made = Image(tmp_path / "image").info()["mkfs_time"]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    for codec in (None, "gzip"):
        bootpress.repack(
            tmp_path / "image",
            tmp_path / "new",
            sort_list=LISTED,
            options=RepackOptions(codec=codec),
        )
        assert Image(tmp_path / "new").info()["mkfs_time"] == made
        assert bootpress.diff(tmp_path / "image", tmp_path / "new") == ()


def test_the_report_counts_as_that_of_a_pack_does(small: Path, tmp_path: Path) -> None:
    (small / "usr/bin/twin").write_bytes((small / "usr/bin/tool").read_bytes())
    packed = bootpress.pack(small, tmp_path / "image", sort_list=LISTED)
    report = bootpress.repack(tmp_path / "image", tmp_path / "new", sort_list=LISTED)
    # The same list again: the same image.
    assert (tmp_path / "new").read_bytes() == (tmp_path / "image").read_bytes()
    for name in (
        "image_bytes",
        "used_bytes",
        "input_bytes",
        "inodes",
        "files",
        "duplicate_files",
        "duplicate_bytes",
        "data_blocks",
        "raw_blocks",
        "hole_blocks",
        "fragments",
        "hot_files",
        "hot_bytes",
        "metadata_bytes",
        "seal",
    ):
        assert getattr(report, name) == getattr(packed, name), name
    assert (packed.copied_bytes, packed.copied_fragments) == (0, 0)
    assert report.copied_fragments == report.fragments
    assert report.copied_bytes == report.used_bytes - report.metadata_bytes - 96
    assert set(report.stages) == {
        "open",
        "check",
        "order",
        "plan",
        "copy",
        "write",
        "verify",
        "flush",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"codec": "rar"}, "unknown codec 'rar'"),
        ({"block_size": 0}, "block size 0"),
        ({"codec": "zstd", "bcj": "x86"}, "takes no branch filter"),
        ({"cold_order": "random"}, "unknown cold order"),
        ({"jobs": -1}, "negative"),
    ],
)
def test_impossible_options_say_which(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RepackOptions(**options)  # type: ignore[arg-type]


def test_what_does_not_go_with_the_image_is_refused(small: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="takes no branch filter"):
        repack(tmp_path, PackOptions(), bcj="x86")
    with pytest.raises(UsageError, match="codec zstd has no level 30"):
        repack(tmp_path, PackOptions(), level=30)


def test_a_stale_list_is_refused_or_accepted(small: Path, tmp_path: Path) -> None:
    bootpress.pack(small, tmp_path / "image")
    stale = SortList.from_paths(["nowhere", "etc/hostname"])
    with pytest.raises(StaleSortListError, match="nowhere"):
        bootpress.repack(tmp_path / "image", tmp_path / "new", sort_list=stale)
    report = bootpress.repack(
        tmp_path / "image",
        tmp_path / "new",
        sort_list=stale,
        options=RepackOptions(allow_stale=True),
    )
    assert report.sort_list is not None
    assert report.sort_list.stale == 1
