# SPDX-License-Identifier: GPL-2.0-or-later
"""Ctrl-C and SIGTERM at any moment: one line, the status, no files left, the old image kept."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import bootpress
from bootpress import Image
from bootpress.errors import Interrupted
from trees import make_bytes

COMMAND = (sys.executable, "-m", "bootpress")
MOMENTS = [random.Random(20).uniform(0.0, 1.6) for _ in range(12)]
STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About two seconds of work."""
    top = tmp_path_factory.mktemp("interrupted") / "root"
    top.mkdir()
    text = b"".join(b"%d %d\n" % (n, n * n % 1009) for n in range(150_000))
    for index in range(24):
        (top / f"text-{index}").write_bytes(b"%d" % index + text)
        (top / f"small-{index}").write_bytes(make_bytes(3000, seed=index))
    return top


def wait_until_handled(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait until the process catches SIGTERM (its start-up is Python's own), then ``seconds``."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
        if int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1:
            break
        time.sleep(0.005)
    time.sleep(seconds)


@pytest.mark.parametrize("number", list(STATUS), ids=lambda number: number.name)
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: f"{moment:.2f}s")
def test_a_pack_that_is_stopped(
    number: signal.Signals, moment: float, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "image").write_bytes(b"the image of before")
    command = [*COMMAND, "pack", root, tmp_path / "image", "--level", "19", "--jobs", "2"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        wait_until_handled(process, moment)
        process.send_signal(number)
        errors = process.communicate(timeout=30)[1].decode()
    if process.returncode == 0:  # done before the signal came
        assert len(Image(tmp_path / "image")) == 49
        return
    assert process.returncode == STATUS[number], errors
    assert [line for line in errors.splitlines() if "error" in line] == [
        "bootpress: error: interrupted"
        if number == signal.SIGINT
        else "bootpress: error: stopped by SIGTERM"
    ]
    assert "Traceback" not in errors
    assert os.listdir(tmp_path) == ["image"]
    assert (tmp_path / "image").read_bytes() == b"the image of before"


@pytest.mark.parametrize("moment", [0.0, 0.02, 0.05, 0.1])
def test_an_unpack_that_is_stopped(moment: float, root: Path, tmp_path: Path) -> None:
    bootpress.pack(root, tmp_path / "image", options=bootpress.PackOptions(codec="xz", level=0))
    with subprocess.Popen(
        [*COMMAND, "unpack", tmp_path / "image", tmp_path / "out"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        wait_until_handled(process, moment)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    if process.returncode == 0:
        assert len(os.listdir(tmp_path / "out")) == 48
        return
    assert process.returncode == 143
    assert os.listdir(tmp_path) == ["image"]


def test_a_tar_that_is_stopped(root: Path, tmp_path: Path) -> None:
    bootpress.pack(root, tmp_path / "image", options=bootpress.PackOptions(codec="xz", level=0))
    with subprocess.Popen(
        [*COMMAND, "unpack", tmp_path / "image", "--tar", tmp_path / "tar"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        wait_until_handled(process, 0.05)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode in {0, 130}
    assert sorted(os.listdir(tmp_path)) == (["image"] if process.returncode else ["image", "tar"])


@pytest.mark.parametrize("stage", ["gather", "dedupe", "compress", "verify"])
def test_a_monitor_that_raises_stops_the_work(stage: str, root: Path, tmp_path: Path) -> None:
    seen: list[str] = []

    def stop(now: str, *_: int) -> None:
        seen.append(now)
        if now == stage:
            raise Interrupted("enough", signal=signal.SIGTERM)

    stopped = None
    try:
        bootpress.pack(root, tmp_path / "image", monitor=stop)
    except Interrupted as error:
        stopped = error.exit_code
    # A stage may be over before it is due to tell of itself.
    assert stopped == (143 if stage in seen else None)
    assert os.listdir(tmp_path) == ([] if stopped else ["image"])


def test_any_exception_of_a_monitor_passes_through(root: Path, tmp_path: Path) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("of the caller")

    with pytest.raises(RuntimeError, match="of the caller"):
        bootpress.pack(root, tmp_path / "image", monitor=fail)
    assert os.listdir(tmp_path) == []


REPACK = "import sys, bootpress; bootpress.repack(sys.argv[1], sys.argv[2], sort_list=sys.argv[3])"


def make_repackable(root: Path, place: Path) -> list[str | Path]:
    bootpress.pack(root, place / "image", options=bootpress.PackOptions(level=19, block_size=4096))
    (place / "list").write_text("".join(f"small-{index}\n" for index in range(0, 24, 2)))
    return [place / "image", place / "new", place / "list"]


@pytest.mark.parametrize("moment", [0.0, 0.1, 0.15, 0.2, 0.25, 0.3])
def test_a_repack_that_is_stopped(moment: float, root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", REPACK, *make_repackable(root, tmp_path)]
    before = (tmp_path / "image").read_bytes()
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        time.sleep(moment)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    left = sorted(os.listdir(tmp_path))
    if "new" in left:  # done before the signal came
        left.remove("new")
        assert bootpress.diff(tmp_path / "image", tmp_path / "new") == ()
    else:
        assert process.returncode != 0
    assert left == ["image", "list"]
    assert (tmp_path / "image").read_bytes() == before


@pytest.mark.parametrize("stage", ["check", "copy", "verify"])
def test_a_monitor_that_raises_stops_a_repack(stage: str, root: Path, tmp_path: Path) -> None:
    def stop(now: str, *_: int) -> None:
        if now == stage:
            raise Interrupted("enough")

    source, target, listed = make_repackable(root, tmp_path)
    with pytest.raises(Interrupted, match="enough"):
        bootpress.repack(source, target, sort_list=listed, monitor=stop)
    assert sorted(os.listdir(tmp_path)) == ["image", "list"]
    # Onto itself: the image of before stays.
    before = (tmp_path / "image").read_bytes()
    with pytest.raises(Interrupted, match="enough"):
        bootpress.repack(source, source, sort_list=listed, monitor=stop)
    assert (tmp_path / "image").read_bytes() == before
