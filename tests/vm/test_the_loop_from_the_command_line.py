# SPDX-License-Identifier: GPL-2.0-or-later
"""trace → order → repack → simulate, as a user runs them, with the kernel and others as judges."""

import json
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from bootpress import Image, parse_sort_list
from bootpress.model import decode_path
from bootpress.trace import Trace, read_trace, write_trace
from compare_trees import find_differences
from judges import mounted, need, run

pytestmark = [pytest.mark.vm, pytest.mark.mounts]
Bootpress = Callable[..., subprocess.CompletedProcess[bytes]]


def test_a_boot_lays_its_image_out(
    bootpress: Bootpress, bootable: Path, plain: Path, tmp_path: Path
) -> None:
    def call(*arguments: str | Path, status: int = 0) -> str:
        done = bootpress(*arguments)
        assert done.returncode == status, done.stderr.decode()
        return done.stdout.decode()

    trace, sort_list, tuned = (tmp_path / name for name in ("b.trace", "b.sort", "tuned.squashfs"))
    said = call("trace", plain, "-o", trace, "--timeout", "300")
    assert "multi-user.target" in said
    assert read_trace(trace).source == "guest"

    said = call("order", trace, "-o", sort_list, "--image", plain)
    assert "of 1 boot" in said
    header = sort_list.read_text().splitlines()[:6]
    assert header[0] == "#! bootpress sort list 1"
    assert [line.split(":")[0] for line in header[1:]] == [
        *("# kernel", "# image", "# boots", "# date", "# tool")
    ]

    said = call("repack", plain, tuned, "--sort-list", sort_list)
    assert "copied" in said
    assert call("diff", plain, tuned) == ""
    with mounted(tuned) as place:
        assert find_differences(bootable, place) == []
    check_order(Image(tuned), sort_list)

    figures = tmp_path / "figures.json"
    said = call("simulate", trace, plain, tuned, "--medium", "cd", "--json", figures)
    assert "modelled on medium cd" in said
    before, after = json.loads(figures.read_text())["images"]
    assert after["seconds"] < 0.7 * before["seconds"]
    assert after["seek_bytes"] < 0.5 * before["seek_bytes"]


def test_mksquashfs_takes_the_list_as_well(
    bootpress: Bootpress, bootable: Path, plain: Path, loop_trace: Trace, tmp_path: Path
) -> None:
    need("mksquashfs")
    trace, sort_file, image = (tmp_path / name for name in ("b.trace", "sort", "sorted.squashfs"))
    write_trace(loop_trace, trace)
    done = bootpress("order", trace, "-o", sort_file, "--image", plain, "--style", "mksquashfs")
    assert done.returncode == 0, done.stderr.decode()
    run("mksquashfs", bootable, image, "-sort", sort_file, "-comp", "lz4", "-no-progress")
    check_order(Image(image), sort_file)


def check_order(image: Image, sort_list: Path) -> None:
    """Blocks of the files that the list has data of lie in its order, ahead of all others."""
    parsed = parse_sort_list(sort_list.read_bytes())
    listed = [decode_path(e.path) for e in parsed.entries if e.rank < 0 and not e.metadata_only]
    starts = {
        layout.path: min(block.offset for block in layout.blocks if block.length)
        for layout in image.layouts()
        if any(block.length for block in layout.blocks)
    }
    hot = [starts[path] for path in dict.fromkeys(listed) if path in starts]
    assert len(hot) > 30
    # Duplicates lie where the first of them does.
    assert sum(a > b for a, b in pairwise(hot)) <= len(hot) * 0.05
    assert max(hot) < min(start for start in starts.values() if start not in set(hot))
