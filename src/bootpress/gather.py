# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes a tree of a source: a directory, an archive, or a SquashFS image."""

import os
import stat
from dataclasses import dataclass

from bootpress import _core
from bootpress.errors import SourceError
from bootpress.image import name_image
from bootpress.model import AnyPath, Loss, Monitor, PackOptions, decode_path

STANDARD_INPUT = "-"
_MAGIC = b"hsqs"  # the superblock's first field


@dataclass(frozen=True, slots=True)
class Gathered:
    """A tree and where it comes from.

    Attributes:
        tree: nodes without data.
        kind: "directory", "archive" or "image".
        losses: what the source has and an image cannot hold.
    """

    tree: _core.Tree
    kind: str
    losses: tuple[Loss, ...]


def gather(
    source: AnyPath, *, options: PackOptions | None = None, monitor: Monitor | None = None
) -> Gathered:
    """Return the tree that ``source`` holds, whatever it is.

    Args:
        source: a directory; an archive (tar or cpio, compressed or not: told by its content); a
            SquashFS image; or "-" for a tar on standard input. An archive's content is spooled to
            ``TMPDIR``, otherwise /var/tmp, since a root file system may exceed a /tmp that lives
            in memory.
        options: excludes, owner, xattrs, the newest time to keep, and the number of jobs.

    Raises:
        SourceError: a source that is missing, unreadable or damaged.
        CorruptError: a damaged image.
    """
    options = options or PackOptions()
    jobs = max(options.jobs, 1)
    selection = make_selection(options)
    if source == STANDARD_INPUT:
        return _finish(_read_archive(0, "standard input", selection, monitor), "archive")
    path = os.fsencode(source)
    name = os.fsdecode(path)
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - a path of bytes
        if stat.S_ISDIR(mode):
            tree = _core.scan_directory(path, selection, jobs=jobs, monitor=monitor)
            return _finish(tree, "directory")
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a path of bytes
            seekable = stat.S_ISREG(mode) or stat.S_ISBLK(mode)
            if seekable and os.pread(file.fileno(), len(_MAGIC), 0) == _MAGIC:
                with name_image(path):
                    return _finish(_core.select(_core.Image(path).tree, selection), "image")
            return _finish(_read_archive(file.fileno(), name, selection, monitor), "archive")
    except OSError as error:
        raise SourceError(f"cannot read {name}: {error.strerror}", hint=_hint(error)) from error


def make_selection(options: PackOptions) -> _core.Selection:
    """Return what the core takes from a source under these options."""
    return _core.Selection(
        excludes=[
            pattern.encode("utf-8", "surrogateescape") if isinstance(pattern, str) else pattern
            for pattern in options.excludes
        ],
        xattrs=options.xattrs,
        owner=options.owner,
        newest_mtime=options.source_date_epoch,
    )


def to_losses(rows: list[tuple[str, int, bytes]]) -> tuple[Loss, ...]:
    """Return the core's (kind, count, first path) rows as values."""
    return tuple(Loss(kind, count, decode_path(path)) for kind, count, path in rows)


def _finish(tree: _core.Tree, kind: str) -> Gathered:
    return Gathered(tree, kind, to_losses(tree.losses))


def _read_archive(
    descriptor: int, name: str, selection: _core.Selection, monitor: Monitor | None
) -> _core.Tree:
    spool = os.environb.get(b"TMPDIR") or b"/var/tmp"
    return _core.read_archive(descriptor, name, spool, selection, monitor)


def _hint(error: OSError) -> str | None:
    if isinstance(error, FileNotFoundError):
        return "check the path; '-' reads a tar from standard input"
    if isinstance(error, PermissionError):
        return "run as a user who may read it; a whole root file system needs root"
    return None
