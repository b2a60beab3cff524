# SPDX-License-Identifier: GPL-2.0-or-later
"""What people see: progress on a terminal and elsewhere, sizes, durations, modes."""

import io
import itertools

import pytest

from bootpress import boot_report, report


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that advances one second each time it is asked."""
    ticks = itertools.count()
    monkeypatch.setattr(report.time, "monotonic", lambda: float(next(ticks)))


@pytest.mark.usefixtures("clock")
def test_a_terminal_gets_one_line_that_is_rewritten_and_cleared() -> None:
    out = Terminal()
    with report.Progress(stream=out) as progress:
        for done in range(1, 4):
            progress("compress", done << 20, 8 << 20, done, 8)
    text = out.getvalue()
    assert "\n" not in text
    assert "compress  3.0 MiB of 8.0 MiB  38%  3 of 8 files" in text
    assert "MiB/s" in text
    assert "left" in text
    assert text.endswith("\r\x1b[K")


@pytest.mark.usefixtures("clock")
def test_a_line_is_never_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    out = Terminal()
    progress = report.Progress(stream=out)
    progress("compress", 1 << 40, 1 << 41, 10**6, 10**7)
    line = out.getvalue().removeprefix("\r").removesuffix("\x1b[K")
    assert len(line) == 19


@pytest.mark.usefixtures("clock")
def test_elsewhere_there_are_plain_lines_every_few_seconds() -> None:
    out = io.StringIO()
    with report.Progress(stream=out) as progress:
        for done in range(1, 21):
            progress("compress", done, 20, 0, 0)
    lines = out.getvalue().splitlines()
    assert len(lines) == 4
    assert all(line.startswith("bootpress: compress") for line in lines)
    assert "\x1b" not in out.getvalue()


@pytest.mark.usefixtures("clock")
def test_quiet_says_nothing() -> None:
    out = Terminal()
    with report.Progress(quiet=True, stream=out) as progress:
        for done in range(20):
            progress("compress", done, 20, 0, 0)
    assert out.getvalue() == ""


def test_unknown_totals_are_left_out() -> None:
    assert report.format_progress("gather", 0, 0, 12345, 0, 2.0) == "gather  12,345 files"
    assert report.format_progress("compress", 1024, 0, 0, 0, 1.0) == "compress  1.0 KiB  1.0 KiB/s"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (150 << 10, "150 KiB"),
        (3 << 29, "1.5 GiB"),
        (1 << 60, "1024 PiB"),
    ],
)
def test_sizes_read_well(size: int, text: str) -> None:
    assert report.format_bytes(size) == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (61.4, "1:01"), (3725, "1:02:05")])
def test_durations_read_well(seconds: float, text: str) -> None:
    assert report.format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("kind", "mode", "text"),
    [
        ("directory", 0o1777, "drwxrwxrwt"),
        ("file", 0o4755, "-rwsr-xr-x"),
        ("file", 0o2644, "-rw-r-Sr--"),
        ("char device", 0o600, "crw-------"),
        ("symlink", 0o777, "lrwxrwxrwx"),
        ("directory", 0o1770, "drwxrwx--T"),
    ],
)
def test_modes_read_as_ls_shows_them(kind: str, mode: int, text: str) -> None:
    assert report.format_mode(kind, mode) == text


def test_images_of_one_name_are_told_apart() -> None:
    assert boot_report._label_images(["a/x.img", "b/y.img"]) == ["x.img", "y.img"]
    assert boot_report._label_images(["a/x.img", "b/x.img"]) == ["a/x.img", "b/x.img"]
