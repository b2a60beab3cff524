# SPDX-License-Identifier: GPL-2.0-or-later
"""The straight lines: what each verb does, from beginning to end."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from bootpress import _core
from bootpress.errors import SortListError, SourceError, UsageError
from bootpress.gather import STANDARD_INPUT, gather, to_losses
from bootpress.image import Image, name_image
from bootpress.model import (
    AnyPath,
    Difference,
    Loss,
    Monitor,
    PackOptions,
    PackReport,
    RepackOptions,
    SortListUse,
    UnpackReport,
    VerifyReport,
)
from bootpress.order import Order, resolve
from bootpress.output import check_target
from bootpress.sortlist import SortList, parse_sort_list
from bootpress.tarstream import write_tar
from bootpress.verify import compare_sources, verify_image

_NO_FRAGMENTS = 0x0010  # the superblock's flag (fs/squashfs/squashfs_fs.h: SQUASHFS_NO_FRAG)


def pack(
    source: AnyPath,
    target: AnyPath,
    *,
    options: PackOptions | None = None,
    sort_list: SortList | AnyPath | None = None,
    sort_style: str = "auto",
    monitor: Monitor | None = None,
) -> PackReport:
    """Pack a tree into a SquashFS image, and return what was done.

    The image gets its name only when it is complete (and verified, unless that is off); a run that
    fails or is interrupted leaves nothing behind and an older image in place. The same source,
    options and codec versions give the same bytes for any number of jobs.

    Args:
        source: a directory, an archive, a SquashFS image, or "-" for a tar on standard input.
        target: the image to write.
        options: how; the defaults are those of the command.
        sort_list: which files come first: a list, or the file that holds one.
        sort_style: dialect of that file.
        monitor: called about ten times a second; what it raises stops the work.

    Raises:
        UsageError: options that are impossible or clash.
        SourceError: a source that is missing, unreadable or damaged.
        ChangedError: a file that changed while it was read.
        LimitError: something that SquashFS cannot hold.
        TargetError: an output that cannot be written.
        SortListError, StaleSortListError: the sort list.

    Example:
        >>> report = pack("rootfs", "root.squashfs", options=PackOptions(codec="xz"))
        >>> report.image_bytes / report.input_bytes
        0.34
    """
    options = complete_options(options or PackOptions())
    _check_target(source, target)
    listed = _load_sort_list(sort_list, sort_style)
    began = time.perf_counter()
    gathered = gather(source, options=options, monitor=monitor)
    gather_seconds = time.perf_counter() - began
    order = _resolve(gathered.tree, listed, allow_stale=options.allow_stale)
    result = _pack_tree(gathered.tree, target, options=options, order=order, monitor=monitor)
    return _make_report(
        result,
        options=options,
        source=source,
        target=target,
        stages={"gather": gather_seconds},
        losses=gathered.losses,
        use=_describe_sort_list(sort_list, listed, order),
    )


def repack(
    source: AnyPath,
    target: AnyPath,
    *,
    sort_list: SortList | AnyPath,
    sort_style: str = "auto",
    options: RepackOptions | None = None,
    monitor: Monitor | None = None,
) -> PackReport:
    """Pack an image anew in another order, and return what was done.

    Unless the options ask for another codec, level or block size, the blocks stay as they are:
    data blocks, and fragments whose tail-ends stay together, are copied as stored; other fragments
    and the metadata are made anew with the image's codec. That takes seconds where compression
    takes minutes. Damage shows where the image carries a seal, and in what is made anew; blocks of
    an image without a seal are copied unseen (``verify`` looks at them).

    The tree stays identical, and so does the image's own time. The new image gets its name only
    when it is complete; ``target`` may be the source.

    Args:
        source: a SquashFS image, by whomever it was made.
        target: the image to write.
        sort_list: which files come first: a list, or the file that holds one.
        sort_style: dialect of that file.
        options: how; by default with what the image was made with.
        monitor: called about ten times a second; what it raises stops the work.

    Returns:
        As ``pack`` does; ``copied_bytes`` is 0 where everything was compressed anew. Its options
        have what the image does not tell filled in with the codec's standard.

    Raises:
        UsageError: options that are impossible or clash.
        SourceError: an image that is missing or unreadable.
        CorruptError, UnsupportedError: one that is damaged, or nothing this build can read.
        LimitError: something that SquashFS cannot hold.
        TargetError: an output that cannot be written.
        SortListError, StaleSortListError: the sort list.

    Example:
        >>> report = repack("root.squashfs", "tuned.squashfs", sort_list="boot.list")
        >>> report.copied_bytes / report.used_bytes
        0.97
    """
    _check_target(source, target)
    listed = _load_sort_list(sort_list, sort_style)
    began = time.perf_counter()
    image = Image(source)
    open_seconds = time.perf_counter() - began
    completed, keeps_blocks = _complete_repack_options(image, options or RepackOptions())
    order = _resolve(image.tree, listed, allow_stale=completed.allow_stale)
    with name_image(source):
        if keeps_blocks:
            result = _core.repack(
                image.native,
                os.fsencode(target),
                level=completed.level or 0,
                bcj=completed.bcj or "none",
                hot=order.hot,
                hot_data=order.hot_data,
                last=order.last,
                jobs=completed.jobs,
                memory=completed.memory,
                verify=completed.verify,
                monitor=monitor,
            )
        else:
            result = _pack_tree(image.tree, target, options=completed, order=order, monitor=monitor)
    return _make_report(
        result,
        options=completed,
        source=source,
        target=target,
        stages={"open": open_seconds},
        losses=(),
        use=_describe_sort_list(sort_list, listed, order),
    )


def _complete_repack_options(image: Image, options: RepackOptions) -> tuple[PackOptions, bool]:
    """Return the options with the image's filled in, and whether its blocks can stay."""
    codec, level, block_size, bcj = image.native.recorded_options()
    completed = options.complete(
        codec=options.codec or codec,
        block_size=block_size if options.block_size is None else options.block_size,
    )
    if completed.codec == codec:
        completed = replace(
            completed,
            level=level if options.level is None else options.level,
            bcj=options.bcj or bcj,
        )
    flags = int(image.info()["flags"] or 0)
    completed = complete_options(
        replace(
            completed,
            fragments=not flags & _NO_FRAGMENTS,
            source_date_epoch=int(image.info()["mkfs_time"] or 0),
        )
    )
    keeps_blocks = image.native.keeps_blocks(
        completed.codec, completed.level or 0, completed.block_size, completed.bcj or "none"
    )
    return completed, keeps_blocks


def _pack_tree(
    tree: _core.Tree,
    target: AnyPath,
    *,
    options: PackOptions,
    order: Order,
    monitor: Monitor | None,
) -> "_core.PackResult":
    return _core.pack(
        tree,
        os.fsencode(target),
        codec=options.codec,
        level=options.level or 0,
        block_size=options.block_size,
        bcj=options.bcj or "none",
        hot=order.hot,
        hot_data=order.hot_data,
        last=order.last,
        cold_order=options.cold_order or "similarity",
        fragments=options.fragments,
        dedupe=options.dedupe,
        mkfs_time=options.source_date_epoch,
        jobs=options.jobs,
        memory=options.memory,
        verify=options.verify,
        monitor=monitor,
    )


def _make_report(
    result: "_core.PackResult",
    *,
    options: PackOptions,
    source: AnyPath,
    target: AnyPath,
    stages: dict[str, float],
    losses: tuple[Loss, ...],
    use: SortListUse | None,
) -> PackReport:
    return PackReport(
        source=os.fsdecode(source),
        image=os.fsdecode(target),
        options=options,
        image_bytes=result["image_bytes"],
        used_bytes=result["used_bytes"],
        input_bytes=result["input_bytes"],
        inodes=result["inodes"],
        files=result["files"],
        duplicate_files=result["duplicate_files"],
        duplicate_bytes=result["duplicate_bytes"],
        data_blocks=result["data_blocks"],
        raw_blocks=result["raw_blocks"],
        hole_blocks=result["hole_blocks"],
        fragments=result["fragments"],
        hot_files=result["hot_files"],
        hot_bytes=result["hot_bytes"],
        metadata_bytes=result["metadata_bytes"],
        stages={**stages, **result["stages"]},
        seal=result["seal"].hex(),
        losses=losses,
        sort_list=use,
        libraries={row["name"]: row["version"] for row in _core.codecs()},
        copied_bytes=result["copied_bytes"],
        copied_fragments=result["copied_fragments"],
    )


def unpack(
    image: AnyPath,
    directory: AnyPath,
    *,
    jobs: int = 0,
    owners: bool | None = None,
    xattrs: bool = True,
    monitor: Monitor | None = None,
) -> UnpackReport:
    """Write an image's tree into a directory, which is made, or is empty.

    Nothing is ever written outside the directory, whatever the image says. On failure what was
    written so far is removed again.

    Args:
        image: the image.
        directory: where to.
        jobs: worker threads; 0: one for each CPU this process may use.
        owners: give files their owners (needs root); None: where this process is root.
        xattrs: restore extended attributes.

    Raises:
        SourceError, CorruptError, UnsupportedError: the image.
        TargetError: the directory.
    """
    with name_image(image):
        inodes, size, skipped = _core.unpack(
            Image(image).native,
            os.fsencode(directory),
            jobs=jobs or count_cpus(),
            owners=os.geteuid() == 0 if owners is None else owners,
            xattrs=xattrs,
            monitor=monitor,
        )
    return UnpackReport(inodes, size, to_losses(skipped))


def unpack_to_tar(image: AnyPath, out: BinaryIO, *, monitor: Monitor | None = None) -> UnpackReport:
    """Write an image's tree as a tar stream in PAX format; see ``tarstream``.

    Raises:
        SourceError, CorruptError, UnsupportedError: the image.
        OSError: from ``out``.
    """
    with name_image(image):
        return write_tar(Image(image).tree, out, monitor=monitor)


def verify(
    image: AnyPath,
    *,
    against: AnyPath | None = None,
    jobs: int = 0,
    monitor: Monitor | None = None,
) -> VerifyReport:
    """Read a whole image and return what was found; see ``verify.verify_image``."""
    return verify_image(Image(image), against=against, jobs=jobs or count_cpus(), monitor=monitor)


def diff(
    a: AnyPath, b: AnyPath, *, jobs: int = 0, monitor: Monitor | None = None
) -> tuple[Difference, ...]:
    """Return how two directories, images or archives differ; see ``verify.compare_sources``."""
    return compare_sources(a, b, jobs=jobs or count_cpus(), monitor=monitor)


def count_cpus() -> int:
    """Return how many CPUs this process may use (its affinity, not the machine's size)."""
    return len(os.sched_getaffinity(0))


def complete_options(options: PackOptions) -> PackOptions:
    """Return the options with every default filled in and the level checked.

    SOURCE_DATE_EPOCH from the environment counts where ``source_date_epoch`` is None.

    Raises:
        UsageError: a level that the codec does not have, an unknown filter, or a
            SOURCE_DATE_EPOCH that is no number of seconds.
    """
    codec = next(row for row in _core.codecs() if row["name"] == options.codec)
    level = codec["standard"] if options.level is None else options.level
    if not codec["lowest"] <= level <= codec["highest"]:
        raise UsageError(
            f"codec {options.codec} has no level {level}",
            hint=f"levels are {codec['lowest']} to {codec['highest']}, "
            f"{codec['standard']} where none is given",
        )
    bcj = options.bcj or ("auto" if options.codec == "xz" else "none")
    filters = _core.bcj_filters()
    if bcj not in filters:
        raise UsageError(
            f"unknown branch filter '{bcj}'", hint="choose one of " + ", ".join(filters)
        )
    epoch = options.source_date_epoch
    if epoch is None:
        epoch = _read_source_date_epoch()
    return replace(
        options,
        level=level,
        bcj=bcj,
        cold_order=options.cold_order or ("path" if options.codec == "none" else "similarity"),
        source_date_epoch=epoch,
        jobs=options.jobs or count_cpus(),
    )


def _read_source_date_epoch() -> int | None:
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or int(text) >= 2**32:
        raise UsageError(
            f"SOURCE_DATE_EPOCH is '{text}', not a number of seconds from 0 to {2**32 - 1}",
            hint="unset it, or set it to the output of: date +%s",
        )
    return int(text)


def _check_target(source: AnyPath, target: AnyPath) -> None:
    path = Path(os.fsdecode(target))
    check_target(path)
    if source == STANDARD_INPUT:
        return
    root = Path(os.fsdecode(source))
    if root.is_dir() and root.resolve() in path.resolve().parents:
        raise UsageError(
            f"the image {path} would lie inside the tree that it is made of, {root}",
            hint="write it somewhere else",
        )


def _load_sort_list(sort_list: SortList | AnyPath | None, style: str) -> SortList | None:
    if sort_list is None or isinstance(sort_list, SortList):
        return sort_list
    name = os.fsdecode(sort_list)
    try:
        data = Path(name).read_bytes()
    except IsADirectoryError as error:
        raise SortListError(f"cannot read sort list {name}: it is a directory") from error
    except OSError as error:
        raise SourceError(f"cannot read sort list {name}: {error.strerror}") from error
    return parse_sort_list(data, style=style, name=name)


def _resolve(tree: _core.Tree, listed: SortList | None, *, allow_stale: bool) -> Order:
    if listed is None:
        return Order()
    return resolve(tree, listed, allow_stale=allow_stale)


def _describe_sort_list(
    given: SortList | AnyPath | None, listed: SortList | None, order: Order
) -> SortListUse | None:
    if given is None or listed is None:
        return None
    return SortListUse(
        path="" if isinstance(given, SortList) else os.fsdecode(given),
        style=listed.style,
        provenance=listed.provenance,
        hot=len(order.hot),
        metadata_only=len(order.hot) - len(order.hot_data),
        last=len(order.last),
        stale=len(order.stale),
        warnings=listed.warnings,
    )
