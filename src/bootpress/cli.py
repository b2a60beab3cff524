# SPDX-License-Identifier: GPL-2.0-or-later
"""The command: reads arguments, calls one verb, and turns errors into exit statuses."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from bootpress import __version__, report, workflow
from bootpress.arguments import (
    Verb,
    add_jobs,
    add_json,
    add_quiet,
    parse_owner,
    parse_size,
    standard_output,
)
from bootpress.errors import BootpressError, Interrupted, LimitError, UsageError
from bootpress.image import Image
from bootpress.model import (
    CHUNK_BYTES,
    CODECS,
    COLD_ORDERS,
    SORT_STYLES,
    PackOptions,
    PackReport,
    RepackOptions,
    UnpackReport,
)
from bootpress.output import check_target, open_whole, write_text

DIFFERENT = 1  # exit status of diff and verify --against; no error has it
BUG = 70  # EX_SOFTWARE of sysexits.h
# What boots take to import is 80 ms, as long as packing a small tree; these do without.
PACKING = {"pack", "repack", "unpack", "list", "cat", "info", "layout", "verify", "diff"}

EPILOG = """\
exit status:
  0 done   1 they differ (diff, verify --against)   2 usage   3 source   4 a file changed while it
  was read   5 the format cannot hold it   6 target   7 damaged image   8 unsupported   9 stale
  sort list   10 unreadable sort list   11 unreadable trace   12 a boot that failed   13 a missing
  program   130, 143 interrupted

examples:
  bootpress pack rootfs root.squashfs --sort-list boot.list
  bootpress verify root.squashfs --against rootfs

  bootpress trace root.squashfs -o boot.trace
  bootpress order boot.trace -o boot.sort --image root.squashfs
  bootpress repack root.squashfs tuned.squashfs --sort-list boot.sort
  bootpress measure root.squashfs tuned.squashfs --medium cd
"""


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors look like all others."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"{self.prog} -h shows what it takes")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    Args:
        arguments: without the command's name; None: those of the process.
    """
    signal.signal(signal.SIGTERM, _raise_interrupted)
    # A locale that cannot show a name must not stop a listing.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    if hasattr(sys.stderr, "reconfigure"):
        sys.stderr.reconfigure(errors="backslashreplace")
    try:
        status = _run(arguments)
    except BrokenPipeError:
        _die_of_closed_pipe()
    except BootpressError as error:
        report.print_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        stopped = Interrupted("interrupted")
        report.print_error(stopped)
        return stopped.exit_code
    except MemoryError:
        short = LimitError("not enough memory", hint="fewer --jobs, or less --memory")
        report.print_error(short)
        return short.exit_code
    # The one place that may: whatever comes here is a bug, and is shown as one.
    except Exception as error:
        report.print_bug(error)
        return BUG
    return status


def _run(arguments: Sequence[str] | None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    chosen = make_parser(packing=bool(words) and words[0] in PACKING).parse_args(arguments)
    verb: Verb = chosen.verb
    return verb(chosen)


def _raise_interrupted(number: int, _frame: FrameType | None) -> None:
    raise Interrupted(f"stopped by {signal.Signals(number).name}", signal=number)


def _die_of_closed_pipe() -> NoReturn:
    # As cat(1) would: by the signal itself, which Python turned into an exception.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    os._exit(128 + signal.SIGPIPE)


# --- verbs ------------------------------------------------------------------------------------


def _pack(chosen: argparse.Namespace) -> int:
    options = PackOptions(
        codec=chosen.codec,
        level=chosen.level,
        block_size=chosen.block_size,
        bcj=chosen.bcj,
        cold_order=chosen.cold_order,
        fragments=not chosen.no_fragments,
        dedupe=not chosen.no_dedupe,
        xattrs=not chosen.no_xattrs,
        excludes=tuple(chosen.exclude),
        owner=chosen.owner,
        source_date_epoch=chosen.source_date_epoch,
        allow_stale=chosen.allow_stale,
        jobs=chosen.jobs,
        memory=chosen.memory,
        verify=not chosen.no_verify,
    )
    if chosen.report:
        check_target(chosen.report)
    with report.Progress(quiet=chosen.quiet) as progress:
        done = workflow.pack(
            chosen.source,
            chosen.image,
            options=options,
            sort_list=chosen.sort_list,
            sort_style=chosen.sort_style,
            monitor=progress,
        )
    return _report_packed(chosen, done)


def _repack(chosen: argparse.Namespace) -> int:
    options = RepackOptions(
        codec=chosen.codec,
        level=chosen.level,
        block_size=chosen.block_size,
        bcj=chosen.bcj,
        cold_order=chosen.cold_order,
        allow_stale=chosen.allow_stale,
        jobs=chosen.jobs,
        memory=chosen.memory,
        verify=not chosen.no_verify,
    )
    if chosen.report:
        check_target(chosen.report)
    with report.Progress(quiet=chosen.quiet) as progress:
        done = workflow.repack(
            chosen.source,
            chosen.image,
            options=options,
            sort_list=chosen.sort_list,
            sort_style=chosen.sort_style,
            monitor=progress,
        )
    return _report_packed(chosen, done)


def _report_packed(chosen: argparse.Namespace, done: PackReport) -> int:
    if not chosen.quiet:
        with standard_output():
            report.print_pack_report(done)
    if chosen.report:
        write_text(chosen.report, report.format_pack_report(done, version=__version__))
    return 0


def _unpack(chosen: argparse.Namespace) -> int:
    if (chosen.directory is None) == (chosen.tar is None):
        raise UsageError(
            "unpack needs a directory or --tar, and only one of them",
            hint="bootpress unpack root.squashfs rootfs, or: --tar root.tar",
        )
    with report.Progress(quiet=chosen.quiet) as progress:
        if chosen.tar is None:
            done = workflow.unpack(
                chosen.image, chosen.directory, jobs=chosen.jobs, monitor=progress
            )
        elif chosen.tar == "-":
            done = _write_tar_to_stdout(chosen.image, progress)
        else:
            with open_whole(Path(chosen.tar)) as file:
                done = workflow.unpack_to_tar(chosen.image, file, monitor=progress)
    report.print_losses(done.skipped, what="could not be kept")
    if not chosen.quiet and chosen.tar != "-":
        with standard_output():
            report.print_unpack_report(done, target=chosen.directory or chosen.tar)
    return 0


def _write_tar_to_stdout(image: str, progress: report.Progress) -> UnpackReport:
    if sys.stdout.isatty():
        raise UsageError("a tar would go to the terminal", hint="pipe it, or name a file")
    with standard_output():
        return workflow.unpack_to_tar(image, sys.stdout.buffer, monitor=progress)


def _list(chosen: argparse.Namespace) -> int:
    entries = Image(chosen.image).walk(chosen.path)
    with standard_output():
        report.print_listing(entries)
    return 0


def _cat(chosen: argparse.Namespace) -> int:
    entry = Image(chosen.image)[chosen.path]
    offset = 0
    with standard_output():
        # At least once, since it is the read that refuses a directory.
        while chunk := entry.read(offset, CHUNK_BYTES):
            sys.stdout.buffer.write(chunk)
            offset += len(chunk)
    return 0


def _info(chosen: argparse.Namespace) -> int:
    image = Image(chosen.image)
    with standard_output():
        report.print_info(image, as_json=chosen.json)
    return 0


def _layout(chosen: argparse.Namespace) -> int:
    image = Image(chosen.image)
    with standard_output():
        report.print_layout(image, as_json=chosen.json)
    return 0


def _verify(chosen: argparse.Namespace) -> int:
    with report.Progress(quiet=chosen.quiet or chosen.json) as progress:
        done = workflow.verify(
            chosen.image, against=chosen.against, jobs=chosen.jobs, monitor=progress
        )
    if chosen.json or not chosen.quiet:
        with standard_output():
            report.print_verify_report(done, image=chosen.image, as_json=chosen.json)
    return DIFFERENT if done.differences else 0


def _diff(chosen: argparse.Namespace) -> int:
    with report.Progress(quiet=chosen.quiet or chosen.json) as progress:
        differences = workflow.diff(chosen.a, chosen.b, jobs=chosen.jobs, monitor=progress)
    if chosen.json or not chosen.quiet:
        with standard_output():
            report.print_differences(differences, as_json=chosen.json)
    return DIFFERENT if differences else 0


# --- arguments --------------------------------------------------------------------------------


def make_parser(*, packing: bool = False) -> argparse.ArgumentParser:
    """Return the parser of the whole command; with ``packing``, without those that boot."""
    parser = _Parser(
        prog="bootpress",
        description="Packs a Linux root file system into a SquashFS image that the stock kernel "
        "mounts, learns the order in which a boot reads it, and lays it out in that order.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"bootpress {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    def add(name: str, verb: Verb, text: str, examples: str = "") -> argparse.ArgumentParser:
        added: _Parser = verbs.add_parser(
            name,
            help=text,
            description=text[:1].upper() + text[1:] + ".",
            epilog=f"examples:\n{examples}" if examples else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        added.set_defaults(verb=verb)
        return added

    pack = add(
        "pack",
        _pack,
        "pack a directory, archive or image into a SquashFS image",
        "  bootpress pack rootfs root.squashfs --codec xz --block-size 1M\n"
        "  mmdebstrap bookworm - | bootpress pack - root.squashfs\n"
        "  bootpress pack old.squashfs new.squashfs --sort-list boot.list --allow-stale\n",
    )
    _add_pack_arguments(pack)

    repack = add(
        "repack",
        _repack,
        "lay an image out anew by a sort list, copying its blocks as they are",
        "  bootpress repack root.squashfs tuned.squashfs --sort-list boot.sort\n"
        "  bootpress repack root.squashfs small.squashfs --sort-list boot.sort --codec xz\n",
    )
    _add_repack_arguments(repack)

    unpack = add(
        "unpack",
        _unpack,
        "write an image's files into a directory, or as a tar",
        "  bootpress unpack root.squashfs rootfs\n"
        "  bootpress unpack root.squashfs --tar - | tar -t\n",
    )
    unpack.add_argument("image", metavar="IMAGE")
    unpack.add_argument("directory", metavar="DIRECTORY", nargs="?", help="is made, or is empty")
    unpack.add_argument(
        "--tar", metavar="FILE", help="write a tar in PAX format instead; '-': standard output"
    )
    add_jobs(unpack)
    add_quiet(unpack)

    listing = add(
        "list", _list, "list an image's files", "  bootpress list root.squashfs usr/bin\n"
    )
    listing.add_argument("image", metavar="IMAGE")
    listing.add_argument(
        "path", metavar="PATH", nargs="?", default="", help="only this, and what is below it"
    )

    cat = add(
        "cat",
        _cat,
        "write one file's content to standard output",
        "  bootpress cat root.squashfs etc/os-release\n",
    )
    cat.add_argument("image", metavar="IMAGE")
    cat.add_argument("path", metavar="PATH")

    info = add("info", _info, "show an image's figures", "  bootpress info root.squashfs --json\n")
    info.add_argument("image", metavar="IMAGE")
    add_json(info)

    layout = add(
        "layout",
        _layout,
        "show where every file's data and metadata lie in an image",
        "  bootpress layout root.squashfs --json\n\n"
        "JSON extents are [offset, length] in bytes; a block of length 0 is a hole; 'tail' lies\n"
        "in the decompressed fragment. Bytes of a name that are not UTF-8 are surrogate escapes\n"
        "(\\udc80 to \\udcff), as os.fsdecode makes them.\n",
    )
    layout.add_argument("image", metavar="IMAGE")
    add_json(layout)

    verify = add(
        "verify",
        _verify,
        "read a whole image and check it",
        "  bootpress verify root.squashfs --against rootfs\n",
    )
    verify.add_argument("image", metavar="IMAGE")
    verify.add_argument(
        "--against", metavar="DIRECTORY", help="compare with this; exit status 1 where they differ"
    )
    add_jobs(verify)
    add_json(verify)
    add_quiet(verify)

    diff = add(
        "diff",
        _diff,
        "compare two images or directories; exit status 1 where they differ",
        "  bootpress diff old.squashfs new.squashfs\n"
        "  bootpress diff rootfs root.squashfs --json\n",
    )
    diff.add_argument("a", metavar="A")
    diff.add_argument("b", metavar="B")
    add_jobs(diff)
    add_json(diff)
    add_quiet(diff)

    if not packing:
        from bootpress import cli_boot  # noqa: PLC0415 # see PACKING

        cli_boot.add_verbs(add)
    return parser


def _add_pack_arguments(pack: argparse.ArgumentParser) -> None:
    defaults = PackOptions()
    pack.add_argument(
        "source",
        metavar="SOURCE",
        help="a directory, an archive (tar or cpio; gzip, xz, zstd, lz4 or bzip2), '-' for a tar "
        "on standard input, or a SquashFS image",
    )
    pack.add_argument("image", metavar="IMAGE", help="the image to write")
    compression = pack.add_argument_group("compression")
    compression.add_argument(
        "--codec",
        metavar="|".join(CODECS),
        default=defaults.codec,
        help=f"default {defaults.codec}",
    )
    compression.add_argument("--level", type=int, metavar="N", help="in the codec's own scale")
    compression.add_argument(
        "--block-size",
        type=parse_size,
        metavar="SIZE",
        default=defaults.block_size,
        help="4K to 1M, a power of two; default 128K",
    )
    compression.add_argument(
        "--bcj",
        metavar="FILTER",
        help="xz: a filter for machine code (x86, arm64, …), auto (the default: judged block by "
        "block) or none",
    )
    order = pack.add_argument_group("order")
    _add_sort_list(order)
    order.add_argument(
        "--cold-order",
        metavar="|".join(COLD_ORDERS),
        default=defaults.cold_order,
        help="order of all other files; default similarity (path with --codec none)",
    )
    content = pack.add_argument_group("content")
    content.add_argument(
        "--no-fragments", action="store_true", help="a block of its own for every tail-end"
    )
    content.add_argument("--no-dedupe", action="store_true", help="store equal files again")
    content.add_argument("--no-xattrs", action="store_true", help="leave out extended attributes")
    content.add_argument(
        "--exclude",
        metavar="PATTERN",
        action="append",
        default=[],
        help="leave out names that match at any depth, or with a slash, paths from the root; may "
        "be given again",
    )
    content.add_argument(
        "--owner", type=parse_owner, metavar="UID:GID", help="owner and group of everything"
    )
    content.add_argument(
        "--source-date-epoch",
        type=int,
        metavar="N",
        help="seconds since 1970: the image's time, and the newest that a file may have; default "
        "SOURCE_DATE_EPOCH, or else the newest file's time",
    )
    _add_run(pack)


def _add_repack_arguments(repack: argparse.ArgumentParser) -> None:
    repack.add_argument("source", metavar="IMAGE")
    repack.add_argument("image", metavar="NEW", help="the image to write")
    _add_sort_list(repack.add_argument_group("order"), required=True)
    again = repack.add_argument_group(
        "compression", "Any of these that differs from the image's own compresses everything anew."
    )
    again.add_argument("--codec", metavar="|".join(CODECS))
    again.add_argument("--level", type=int, metavar="N", help="in the codec's own scale")
    again.add_argument(
        "--block-size", type=parse_size, metavar="SIZE", help="4K to 1M, a power of two"
    )
    again.add_argument("--bcj", metavar="FILTER", help="xz: as in pack")
    again.add_argument(
        "--cold-order",
        metavar="|".join(COLD_ORDERS),
        help="order of all other files, where everything is compressed anew",
    )
    _add_run(repack)


def _add_sort_list(order: argparse._ActionsContainer, *, required: bool = False) -> None:
    order.add_argument("--sort-list", metavar="FILE", required=required, help="what comes first")
    order.add_argument(
        "--sort-style",
        metavar="|".join(SORT_STYLES),
        default="auto",
        help="the list's dialect; default auto",
    )
    order.add_argument(
        "--allow-stale", action="store_true", help="accept a list that names missing files"
    )


def _add_run(verb: argparse.ArgumentParser) -> None:
    run = verb.add_argument_group("run")
    add_jobs(run)
    run.add_argument(
        "--memory",
        type=parse_size,
        metavar="SIZE",
        default=0,
        help="bytes of blocks in flight (64M, 1G); default: a few blocks per job",
    )
    run.add_argument("--no-verify", action="store_true", help="do not read the image back")
    run.add_argument("--report", type=Path, metavar="FILE.json", help="write a report as JSON")
    add_quiet(run)
