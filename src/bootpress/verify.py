# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks images and compares trees."""

from bootpress import _core
from bootpress.errors import CorruptError
from bootpress.gather import gather
from bootpress.image import Image, name_image
from bootpress.model import (
    AnyPath,
    Difference,
    Monitor,
    PackOptions,
    VerifyReport,
    decode_path,
)


def verify_image(
    image: Image,
    *,
    against: AnyPath | None = None,
    jobs: int = 1,
    monitor: Monitor | None = None,
) -> VerifyReport:
    """Return what a full read of an image found.

    Every block and fragment is decompressed once and must have the size that its files need, and
    the seal (an xxh3-128 of the image, in the padding behind it) must match where there is one.

    Args:
        image: the image.
        against: a directory (or archive, or image) that it should hold; the differences are in
            the report. What SquashFS cannot hold is not counted as a difference.
        jobs: worker threads.

    Raises:
        CorruptError: damage, at the first place found.
    """
    with name_image(image.path):
        row = _core.verify(image.native, jobs=jobs, monitor=monitor)
    if row["seal"] == "broken":
        raise CorruptError(
            f"{image.path}: the seal does not match: the image was changed after it was made",
            hint="pack it again, or fetch it again",
        )
    differences: tuple[Difference, ...] = ()
    if against is not None:
        expected = gather(against, options=PackOptions(jobs=jobs), monitor=monitor).tree
        differences = compare_trees(expected, image.tree, jobs=jobs, monitor=monitor)
    return VerifyReport(
        files=int(row["files"]),
        blocks=int(row["blocks"]),
        bytes=int(row["bytes"]),
        seal=str(row["seal"]),
        differences=differences,
    )


def compare_sources(
    a: AnyPath, b: AnyPath, *, jobs: int = 1, monitor: Monitor | None = None
) -> tuple[Difference, ...]:
    """Return how two directories, images or archives differ, ordered by path.

    Content is compared byte by byte; modes, owners, times, xattrs, devices, targets and hard-link
    groups as well.

    Raises:
        SourceError: one of them is missing or unreadable.
        CorruptError: one of them is a damaged image.
    """
    options = PackOptions(jobs=jobs)
    trees = [gather(source, options=options, monitor=monitor).tree for source in (a, b)]
    return compare_trees(trees[0], trees[1], jobs=jobs, monitor=monitor)


def compare_trees(
    a: _core.Tree, b: _core.Tree, *, jobs: int = 1, monitor: Monitor | None = None
) -> tuple[Difference, ...]:
    """Return how two gathered trees differ; see ``compare_sources``."""
    rows = _core.compare(a, b, jobs=jobs, xattrs=True, owners=True, times=True, monitor=monitor)
    return tuple(Difference(decode_path(path), what, in_a, in_b) for path, what, in_a, in_b in rows)
