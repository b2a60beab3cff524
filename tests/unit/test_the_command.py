# SPDX-License-Identifier: GPL-2.0-or-later
"""What each verb prints, and with which status it ends, where nothing goes wrong."""

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import bootpress as api

Bootpress = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def image(small: Path, tmp_path: Path) -> Path:
    for path in [small, *small.rglob("*")]:
        os.utime(path, (1_000_000_000, 1_000_000_000), follow_symlinks=False)
    api.pack(small, tmp_path / "image", options=api.PackOptions(codec="gzip", owner=(0, 70_000)))
    return tmp_path / "image"


def test_versions_agree(bootpress: Bootpress) -> None:
    assert bootpress("--version").stdout.decode() == f"bootpress {api.__version__}\n"
    assert importlib.metadata.version("bootpress") == api.__version__


@pytest.mark.parametrize(
    "verb", ["", "pack", "unpack", "list", "cat", "info", "layout", "verify", "diff"]
)
def test_help_has_examples(verb: str, bootpress: Bootpress) -> None:
    done = bootpress(*verb.split(), "-h")
    assert done.returncode == 0
    assert f"bootpress {verb or 'pack'} ".encode() in done.stdout.split(b"examples:")[1]


def test_pack_reports_in_words_and_in_json(
    small: Path, tmp_path: Path, bootpress: Bootpress
) -> None:
    (small / "copy").write_bytes((small / "usr/bin/tool").read_bytes())
    (tmp_path / "list").write_text(
        "#! bootpress sort list 1\n# kernel: 6.1\netc/hostname\nusr/bin/tool\ngone\n"
    )
    done = bootpress(
        "pack",
        small,
        tmp_path / "image",
        "--sort-list",
        tmp_path / "list",
        "--allow-stale",
        "--report",
        tmp_path / "report.json",
        "--codec",
        "xz",
        "--exclude",
        "*release",
        "--jobs",
        "2",
    )
    assert done.returncode == 0, done.stderr
    words = done.stdout.decode()
    assert "xz level" in words
    assert "1 file, 293 KiB" in words  # the duplicate
    assert "2 files" in words.split("hot region")[1].splitlines()[0]
    assert b"1 entry matches nothing" in done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["format"] == 1
    assert report["bootpress"] == api.__version__
    assert report["libraries"]["gzip"].startswith("libdeflate ")
    assert report["options"]["jobs"] == 2
    assert report["options"]["excludes"] == ["*release"]
    assert report["options"]["bcj"] == "auto"
    assert report["image_bytes"] == (tmp_path / "image").stat().st_size
    assert report["duplicate_files"] == 1
    assert report["duplicate_bytes"] == 300_000
    assert report["hot_files"] == 2
    assert report["sort_list"] == {
        "path": str(tmp_path / "list"),
        "style": "bootpress",
        "provenance": {"kernel": "6.1"},
        "hot": 2,
        "metadata_only": 0,
        "last": 0,
        "stale": 1,
        "warnings": [],
    }
    assert set(report["stages"]) >= {"gather", "dedupe", "order", "plan", "compress", "verify"}
    assert len(report["seal"]) == 32


def test_quiet_is_quiet(small: Path, tmp_path: Path, bootpress: Bootpress) -> None:
    done = bootpress("pack", small, tmp_path / "image", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    done = bootpress("verify", tmp_path / "image", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    done = bootpress("unpack", tmp_path / "image", tmp_path / "out", "--quiet")
    assert (done.returncode, done.stdout) == (0, b"")


def test_list_prints_lines_like_ls(image: Path, bootpress: Bootpress) -> None:
    lines = bootpress("list", image, "usr").stdout.decode().splitlines()
    assert [line.split(maxsplit=6)[6] for line in lines] == [
        "usr",
        "usr/bin",
        "usr/bin/again",
        "usr/bin/link -> tool",
        "usr/bin/tool",
    ]
    fields = lines[-1].split()
    assert fields == [
        "-rw-r--r--",
        "2",
        "0/70000",
        "300000",
        "2001-09-09",
        "01:46:40",
        "usr/bin/tool",
    ]
    assert bootpress("list", image).stdout.decode().splitlines()[0].endswith(" .")


def test_list_keeps_odd_names_on_their_line(tmp_path: Path, bootpress: Bootpress) -> None:
    (tmp_path / "root").mkdir()
    for name in (b"new\nline", b"caf\xe9", b"\x1b[31m", "größe".encode()):
        with open(os.fsencode(tmp_path) + b"/root/" + name, "wb"):
            pass
    bootpress("pack", tmp_path / "root", tmp_path / "image")
    for environment in ({"LC_ALL": "C.UTF-8"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}):
        done = bootpress("list", tmp_path / "image", env=environment)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == 5
        assert b"new\\nline" in done.stdout
        assert b"caf\\xe9" in done.stdout
        assert b"\x1b" not in done.stdout


def test_cat_writes_the_content(image: Path, small: Path, bootpress: Bootpress) -> None:
    assert bootpress("cat", image, "/usr/bin/tool").stdout == (small / "usr/bin/tool").read_bytes()
    assert bootpress("cat", image, "empty").stdout == b""


@pytest.mark.parametrize("arguments", [["cat", "big"], ["list"], ["layout", "--json"], ["--tar"]])
def test_a_closed_pipe_ends_quietly(arguments: list[str], tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "big").write_bytes(bytes(9 << 20))
    for index in range(3000):
        (root / f"{index}-{'x' * 60}").touch()
    api.pack(root, tmp_path / "image")
    command = (
        ["unpack", tmp_path / "image", "--tar", "-"]
        if arguments == ["--tar"]
        else [arguments[0], tmp_path / "image", *arguments[1:]]
    )
    with subprocess.Popen(
        [sys.executable, "-m", "bootpress", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.read(1)
        process.stdout.close()
        errors = process.stderr.read()
    assert errors == b""
    assert process.returncode == -13  # SIGPIPE, as cat(1) ends


def test_info_prints_figures(image: Path, bootpress: Bootpress) -> None:
    info = json.loads(bootpress("info", image, "--json").stdout)
    assert info["codec"] == "gzip"
    assert info["block_size"] == 131072
    assert info["inodes"] == 9
    assert "codec" in bootpress("info", image).stdout.decode()


def test_layout_prints_every_path_as_json(image: Path, bootpress: Bootpress) -> None:
    layout = json.loads(bootpress("layout", image, "--json").stdout)
    assert layout["image"] == str(image)
    assert layout["block_size"] == 131072
    files = {row["path"]: row for row in layout["files"]}
    assert set(files) == set(api.Image(image))
    tool = files["usr/bin/tool"]
    assert tool["inode"] == files["usr/bin/again"]["inode"]
    assert len(tool["blocks"]) == 2
    assert tool["tail"][1] == 300_000 % 131072
    assert tool["fragment_extent"][1] > 0
    assert tool["type"] == "file"
    assert tool["listing_extent"] is None
    assert files["etc"]["listing_extent"][1] > 0
    assert (tool["listing_reference"], tool["listing_bytes"]) == (None, 0)
    # One header of 12 bytes, and 8 and the name per entry.
    assert files["etc"]["listing_bytes"] == 12 + 8 + len("hostname") + 8 + len("os-release")
    assert files["etc"]["listing_reference"] >= 0
    assert all(len(row["inode_extent"]) == 2 for row in layout["files"])
    assert len(bootpress("layout", image).stdout.splitlines()) == len(files)


def test_verify_and_diff_tell_differences_by_status_1(
    image: Path, small: Path, bootpress: Bootpress
) -> None:
    assert bootpress("verify", image).returncode == 0
    # The image was packed with --owner, so every file differs.
    done = bootpress("verify", image, "--against", small, "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert {difference["what"] for difference in found["differences"]} == {"owner"}
    done = bootpress("diff", small, image)
    assert done.returncode == 1
    assert b"etc/hostname: owner: " in done.stdout
    assert bootpress("diff", image, image).returncode == 0


def test_diff_tells_every_kind_of_difference(
    small: Path, tmp_path: Path, bootpress: Bootpress
) -> None:
    subprocess.run(["cp", "-a", small, tmp_path / "other"], check=True)
    other = tmp_path / "other"
    (other / "etc/hostname").write_text("dead\n")
    (other / "etc/os-release").chmod(0o600)
    (other / "usr/bin/link").unlink()
    (other / "usr/bin/link").symlink_to("again")
    (other / "usr/bin/again").unlink()
    (other / "empty").unlink()
    (other / "empty").mkdir()
    (other / "new").touch()
    done = bootpress("diff", small, other, "--json")
    assert done.returncode == 1
    found = {(row["path"], row["what"]) for row in json.loads(done.stdout)}
    assert found >= {
        ("etc/hostname", "content"),
        ("etc/os-release", "mode"),
        ("usr/bin/link", "target"),
        ("usr/bin/again", "only in a"),
        ("new", "only in b"),
        ("empty", "type"),
    }


def test_progress_without_a_terminal_is_plain_lines(
    tmp_path: Path, bootpress: Bootpress, small: Path
) -> None:
    done = bootpress("pack", small, tmp_path / "image")
    assert b"\r" not in done.stderr
    assert b"\x1b" not in done.stderr


def test_importing_stays_light() -> None:
    # For the start-up of every command. Modules, not milliseconds: a count is the same everywhere.
    program = "import sys; b = set(sys.modules); import bootpress; print(*set(sys.modules) - b)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    loaded = set(done.stdout.decode().split())
    assert "bootpress.workflow" in loaded
    assert not loaded & {"argparse", "json", "subprocess", "socket", "ctypes", "tempfile"}
