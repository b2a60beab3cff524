# SPDX-License-Identifier: GPL-2.0-or-later
"""The lists in sort-lists/: they parse, say where they come from, and are named in the README."""

from pathlib import Path

import pytest

from bootpress import parse_sort_list

FOLDER = Path(__file__).parents[2] / "sort-lists"
LISTS = sorted(FOLDER.glob("*.sort"))


def test_there_are_some_and_the_readme_names_them_all() -> None:
    told = (FOLDER / "README.md").read_text()
    assert LISTS
    assert [path.name for path in LISTS if f"`{path.name}`" not in told] == []


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_a_list_says_where_it_comes_from(path: Path) -> None:
    parsed = parse_sort_list(path.read_bytes(), name=str(path))
    header = dict(parsed.provenance)
    assert header.keys() >= {"kernel", "image", "boots", "date", "tool"}
    assert int(header["boots"]) >= 1
    paths = [entry.path for entry in parsed.entries]
    assert b"usr/lib/systemd/systemd" in paths
    # Twice at most: where it is first looked at, and where it is first read.
    assert max(paths.count(name) for name in set(paths)) <= 2
    assert len(set(paths)) > 300
