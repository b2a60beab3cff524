# SPDX-License-Identifier: GPL-2.0-or-later
"""Media: the ones that ship, ones of one's own, and what is refused."""

from pathlib import Path

import pytest

from bootpress.errors import SourceError, UsageError
from bootpress.profile import list_media, load_medium

GOOD = """
title = "tape"
bandwidth = 1000
access_seconds = 2.5
requests_per_second = 1
source = "a tape"
"""


def test_the_media_of_the_manual_are_there() -> None:
    assert set(list_media()) == {"cd", "dvd", "usb2", "usb3", "sd", "nbd", "none"}


@pytest.mark.parametrize("name", list_media())
def test_each_says_where_its_figures_come_from(name: str) -> None:
    medium = load_medium(name)
    assert medium.name == name
    assert medium.title
    assert len(medium.source) > 40
    assert medium.requests_per_second >= 0


def test_a_cd_takes_its_access_time_for_each_jump_and_transfers_in_between() -> None:
    cd = load_medium("cd")
    # 7.2 MB at 3.6 MB/s, and ten accesses of 110 ms; sequential reads cost nothing more.
    assert cd.model_seconds(bytes_read=7_200_000, reads=50, jumps=10) == pytest.approx(2 + 1.1)


def test_a_network_takes_a_round_trip_for_every_read() -> None:
    nbd = load_medium("nbd")
    assert nbd.model_seconds(bytes_read=0, reads=10, jumps=0) == pytest.approx(0.005)
    assert nbd.model_seconds(bytes_read=0, reads=10, jumps=10) == pytest.approx(0.005)


def test_a_disk_without_a_medium_takes_no_time() -> None:
    assert load_medium("none").model_seconds(bytes_read=1 << 30, reads=9, jumps=9) == 0


def test_a_file_is_a_medium_as_well(tmp_path: Path) -> None:
    (tmp_path / "tape.toml").write_text(GOOD)
    tape = load_medium(tmp_path / "tape.toml")
    assert (tape.name, tape.bandwidth, tape.request_seconds) == ("tape", 1000, 0)


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(UsageError, match="floppy") as caught:
        load_medium("floppy")
    assert "usb2" in (caught.value.hint or "")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"tape\.toml"):
        load_medium(tmp_path / "tape.toml")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('title = "tape"', "title = 7", "'title'"),
        ("bandwidth = 1000", "bandwidth = -1", "'bandwidth'"),
        ("bandwidth = 1000", "bandwidth = inf", "'bandwidth'"),
        ("bandwidth = 1000", "bandwidth = nan", "'bandwidth'"),
        ("bandwidth = 1000", "bandwidth = true", "'bandwidth'"),
        ('source = "a tape"', "", "'source'"),
        ('source = "a tape"', 'source = " "', "'source'"),
        ("requests", "request", "request_per_second"),
        ("title", "[", "tape.toml"),
    ],
)
def test_what_is_no_medium_is_refused(tmp_path: Path, old: str, new: str, told: str) -> None:
    (tmp_path / "tape.toml").write_text(GOOD.replace(old, new))
    with pytest.raises(UsageError, match=told):
        load_medium(tmp_path / "tape.toml")
