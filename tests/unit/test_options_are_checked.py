# SPDX-License-Identifier: GPL-2.0-or-later
"""Impossible options are refused before any work, by the API and the command alike."""

import argparse
import os

import pytest

from bootpress.arguments import parse_jobs, parse_owner, parse_size
from bootpress.errors import UsageError
from bootpress.model import PackOptions, decode_path, encode_path
from bootpress.workflow import complete_options, count_cpus


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"codec": "rar"}, "unknown codec 'rar'"),
        ({"block_size": 2048}, "block size 2048"),
        ({"block_size": 2 << 20}, "block size 2097152"),
        ({"block_size": 100_000}, "block size 100000"),
        ({"cold_order": "random"}, "unknown cold order"),
        ({"codec": "gzip", "bcj": "x86"}, "takes no branch filter"),
        ({"owner": (2**32 - 1, 0)}, "user id 4294967295"),
        ({"owner": (0, -1)}, "group id -1"),
        ({"source_date_epoch": -1}, "source date epoch -1"),
        ({"source_date_epoch": 2**32}, "source date epoch 4294967296"),
        ({"jobs": -1}, "negative"),
    ],
)
def test_impossible_options_say_which(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PackOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("codec", "level"), [("zstd", 23), ("gzip", 0), ("gzip", 13), ("xz", 10), ("lz4", 13)]
)
def test_levels_outside_a_codec_name_its_range(codec: str, level: int) -> None:
    with pytest.raises(UsageError, match=f"codec {codec} has no level {level}") as caught:
        complete_options(PackOptions(codec=codec, level=level))
    assert "levels are" in str(caught.value.hint)


def test_an_unknown_branch_filter_lists_the_known() -> None:
    with pytest.raises(UsageError, match="unknown branch filter 'mips'") as caught:
        complete_options(PackOptions(codec="xz", bcj="mips"))
    assert "x86" in str(caught.value.hint)


def test_defaults_are_filled_in() -> None:
    assert complete_options(PackOptions(codec="xz")).bcj == "auto"
    assert complete_options(PackOptions(codec="zstd")).bcj == "none"
    assert complete_options(PackOptions(codec="zstd")).level == 15
    assert complete_options(PackOptions()).jobs == count_cpus() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("text", ["yesterday", "-1", "1.5", "4294967296", "٣"])
def test_a_source_date_epoch_that_is_no_number_is_refused(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", text)
    with pytest.raises(UsageError, match="SOURCE_DATE_EPOCH"):
        complete_options(PackOptions())


def test_the_option_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "7")
    assert complete_options(PackOptions()).source_date_epoch == 7
    assert complete_options(PackOptions(source_date_epoch=5)).source_date_epoch == 5


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("128K", 131072), ("64m", 64 << 20), ("1G", 1 << 30), ("1MiB", 1 << 20)],
)
def test_sizes_are_powers_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "K", "1.5M", "-4K", "1T", "64 M"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_size(text)


def test_jobs_and_owners_are_parsed() -> None:
    assert parse_jobs("7") == 7
    assert parse_owner("0:70000") == (0, 70000)
    for text in ("0", "-1", "x", "9999"):
        with pytest.raises(argparse.ArgumentTypeError):
            parse_jobs(text)
    for text in ("0", "root:root", "1:", ":1"):
        with pytest.raises(argparse.ArgumentTypeError):
            parse_owner(text)


@pytest.mark.parametrize(
    ("path", "encoded"),
    [
        ("", b""),
        ("/", b""),
        ("/etc//passwd", b"etc/passwd"),
        ("./a/./b/", b"a/b"),
        (b"caf\xe9", b"caf\xe9"),
        ("caf\udce9", b"caf\xe9"),
        ("../up", b"../up"),
    ],
)
def test_paths_in_an_image_are_relative_to_its_root(path: str | bytes, encoded: bytes) -> None:
    assert encode_path(path) == encoded
    assert encode_path(decode_path(encoded)) == encoded
