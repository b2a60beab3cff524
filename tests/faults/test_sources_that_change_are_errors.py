# SPDX-License-Identifier: GPL-2.0-or-later
"""A file that is not what it was when it was gathered is an error that names it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import bootpress
from bootpress import PackOptions
from bootpress.errors import ChangedError, SourceError
from bootpress.gather import gather
from trees import make_bytes

COUNT = 40
SIZE = 400_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    top = tmp_path / "root"
    top.mkdir()
    for index in range(COUNT):
        (top / f"{index:02}").write_bytes(make_bytes(SIZE, seed=index))
    return top


def shrink(path: Path) -> None:
    os.truncate(path, SIZE // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def rewrite(path: Path) -> None:
    path.write_bytes(make_bytes(SIZE, seed=1000))


def replace(path: Path) -> None:
    path.with_name("new").write_bytes(make_bytes(SIZE, seed=1000))
    path.with_name("new").replace(path)


def become_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def become_symlink(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


@pytest.mark.parametrize(
    "change",
    [shrink, empty, grow, rewrite, replace, become_directory, become_symlink, Path.unlink],
    ids=lambda change: change.__name__,
)
def test_a_file_that_changes_after_it_was_gathered(
    change: Callable[[Path], None], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = root / f"{COUNT - 1:02}"

    def gather_then_change(*arguments: object, **keywords: object) -> object:
        gathered = gather(*arguments, **keywords)  # type: ignore[arg-type]
        change(victim)
        return gathered

    monkeypatch.setattr(bootpress.workflow, "gather", gather_then_change)
    with pytest.raises((ChangedError, SourceError)) as caught:
        bootpress.pack(root, tmp_path / "image", options=PackOptions(codec="lz4", jobs=2))
    # What is gone, or no file any more, cannot be read; everything else is read and found changed.
    assert caught.type is ChangedError or change in {Path.unlink, become_directory}
    assert victim.name in caught.value.message
    assert sorted(os.listdir(tmp_path)) == ["root"]


def test_a_file_that_shrinks_while_others_are_compressed(root: Path, tmp_path: Path) -> None:
    def shrink_once(stage: str, *_: int) -> None:
        if stage == "compress" and (root / "39").stat().st_size == SIZE:
            os.truncate(root / "39", 5)

    # One job, a slow codec, data that compresses: the last file is far from its turn at the first
    # tick.
    for index in range(COUNT):
        text = b"".join(b"%d " % (n * n % 7919 + index) for n in range(SIZE))
        (root / f"{index:02}").write_bytes(text[:SIZE])
    options = PackOptions(codec="xz", level=9, jobs=1, cold_order="path")
    with pytest.raises(ChangedError, match="39"):
        bootpress.pack(root, tmp_path / "image", options=options, monitor=shrink_once)
    assert sorted(os.listdir(tmp_path)) == ["root"]


def test_a_file_that_cannot_be_read(root: Path, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything; the command is tested as another user")
    (root / "07").chmod(0)
    with pytest.raises(SourceError, match="07"):
        bootpress.pack(root, tmp_path / "image")
    assert sorted(os.listdir(tmp_path)) == ["root"]
