# SPDX-License-Identifier: GPL-2.0-or-later
"""Seeded random trees through pack → mount, pack → unpack, pack → list."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bootpress
from bootpress import Image, PackOptions
from bootpress.model import encode_path
from compare_trees import find_differences, read_tree
from judges import mounted
from trees import RandomNode, random_trees, write_random_tree

pytestmark = pytest.mark.usefixtures("needs_root")

options = st.builds(
    PackOptions,
    codec=st.sampled_from(["gzip", "zstd", "lz4", "lzo", "xz", "none"]),
    level=st.just(None),
    block_size=st.sampled_from([4096, 8192, 131072]),
    cold_order=st.sampled_from(["similarity", "path", "gathered"]),
    fragments=st.booleans(),
    dedupe=st.booleans(),
    jobs=st.integers(1, 4),
)
links = st.lists(st.integers(0, 1000), max_size=4)


def pack_random(place: str, tree: RandomNode, more_names: list[int], how: PackOptions) -> Path:
    write_random_tree(os.fsencode(place) + b"/root", tree, more_names)
    image = Path(place) / "image"
    bootpress.pack(Path(place) / "root", image, options=how)
    return image


@pytest.mark.mounts
@given(random_trees, links, options)
@settings(max_examples=60)
def test_the_kernel_shows_a_random_tree(
    tree: RandomNode, more_names: list[int], how: PackOptions
) -> None:
    with tempfile.TemporaryDirectory() as place:
        image = pack_random(place, tree, more_names, how)
        with mounted(image) as mountpoint:
            assert find_differences(Path(place) / "root", mountpoint) == []


@given(random_trees, links, options)
@settings(max_examples=120)
def test_a_random_tree_unpacks_as_it_was(
    tree: RandomNode, more_names: list[int], how: PackOptions
) -> None:
    with tempfile.TemporaryDirectory() as place:
        image = pack_random(place, tree, more_names, how)
        bootpress.unpack(image, Path(place) / "out")
        assert find_differences(Path(place) / "root", Path(place) / "out") == []


@given(random_trees, links, options)
@settings(max_examples=120)
def test_a_random_tree_lists_as_it_was(
    tree: RandomNode, more_names: list[int], how: PackOptions
) -> None:
    with tempfile.TemporaryDirectory() as place:
        image = Image(pack_random(place, tree, more_names, how))
        nodes = read_tree(os.fsencode(place) + b"/root")
        assert sorted(map(encode_path, image)) == sorted(nodes)
        for path, node in nodes.items():
            stat = image.stat(path)
            assert (stat.mode, (stat.uid, stat.gid), stat.mtime) == (
                node.mode,
                node.owner,
                node.mtime,
            ), path
            assert stat.device == node.device, path
            assert tuple(sorted(stat.xattrs.items())) == node.xattrs, path
            if node.kind == "-":
                with open(os.path.join(os.fsencode(place), b"root", path), "rb") as file:
                    assert image.read(path) == file.read(), path
