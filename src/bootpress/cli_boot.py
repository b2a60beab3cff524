# SPDX-License-Identifier: GPL-2.0-or-later
"""The verbs that boot, and what follows from a boot: trace, order, measure, simulate."""

import argparse
from pathlib import Path
from typing import get_args

from bootpress import __version__, boot_report, loop, report
from bootpress.arguments import AddVerb, add_quiet, parse_size, standard_output
from bootpress.measure import STANDARD_RUNS, measure_boots
from bootpress.model import SORT_STYLES
from bootpress.output import check_target, write_text
from bootpress.profile import list_media, load_medium
from bootpress.qemu import Accel, Bus, Firmware
from bootpress.record import STANDARD_UNTIL, BootOptions
from bootpress.trace import TraceSource

ATTACH = ("loop", "direct")


def add_verbs(add: AddVerb) -> None:
    """Add the verbs with their arguments."""
    _add_trace(add)
    _add_order(add)
    _add_measure(add)
    _add_simulate(add)


# --- trace --------------------------------------------------------------------------------------


def _add_trace(add: AddVerb) -> None:
    trace = add(
        "trace",
        _trace,
        "boot an image in QEMU and record what the boot reads",
        "  bootpress trace root.squashfs -o boot.trace\n"
        "  bootpress trace root.squashfs -o boot.trace --until graphical.target --source both\n"
        "  bootpress trace live.iso -o boot.trace --source host --until 'login:'\n",
    )
    trace.add_argument("image", metavar="IMAGE", help="a SquashFS image, an ISO or a disk")
    trace.add_argument("-o", "--output", metavar="TRACE", required=True, help="the trace to write")
    trace.add_argument(
        "--source",
        metavar="|".join(get_args(TraceSource)),
        choices=get_args(TraceSource),
        help="where to record: in the guest (pages and metadata; a bare image), at its virtual "
        "disk (anything that boots), or both; default guest for an image, host for others",
    )
    _add_boot_arguments(trace)
    add_quiet(trace)


def _trace(chosen: argparse.Namespace) -> int:
    source: TraceSource = chosen.source
    if source is None:
        source = "guest" if loop.is_bare_image(chosen.image) else "host"
    with report.Progress(quiet=chosen.quiet) as progress:
        done = loop.record(
            chosen.image,
            chosen.output,
            options=_read_boot_options(chosen),
            trace_source=source,
            monitor=progress,
        )
    if not chosen.quiet:
        with standard_output():
            boot_report.print_trace_report(done, target=chosen.output)
    return 0


def _add_boot_arguments(verb: argparse.ArgumentParser) -> None:
    defaults = BootOptions()
    boot = verb.add_argument_group("boot")
    boot.add_argument(
        "--until",
        metavar="UNIT|TEXT|SECONDS",
        help="what ends the boot: a systemd unit (of a bare image), a text on the serial console, "
        f"or seconds; default {STANDARD_UNTIL} for a bare image",
    )
    boot.add_argument(
        "--medium",
        metavar="NAME",
        default="none",
        help="what the disk is as fast as: "
        + ", ".join(list_media())
        + ", or a .toml file; default none, unthrottled",
    )
    boot.add_argument(
        "--attach",
        metavar="|".join(ATTACH),
        choices=ATTACH,
        default=defaults.attach,
        help="mount a bare image through a loop device, as live media do, or directly as the disk, "
        "as appliances do; default loop",
    )
    boot.add_argument("--kernel", metavar="FILE", help="boot this one, not the image's own")
    boot.add_argument(
        "--initrd", metavar="FILE", help="goes with --kernel; default: one made for the image"
    )
    boot.add_argument(
        "--append", metavar="WORDS", default="", help="more words for the kernel's command line"
    )
    boot.add_argument(
        "--image-name", metavar="NAME", help="which image, where an ISO or disk holds several"
    )
    boot.add_argument(
        "--bus",
        metavar="|".join(get_args(Bus)),
        choices=get_args(Bus),
        default=defaults.bus,
        help=f"how the disk is attached; default {defaults.bus}",
    )
    boot.add_argument(
        "--firmware",
        metavar="|".join(get_args(Firmware)),
        choices=get_args(Firmware),
        default=defaults.firmware,
        help=f"what starts an ISO or disk; default {defaults.firmware}",
    )
    boot.add_argument(
        "--accel",
        metavar="|".join(get_args(Accel)),
        choices=get_args(Accel),
        default=defaults.accel,
        help="default auto: what BOOTPRESS_ACCEL says, or KVM where it works, else emulation",
    )
    boot.add_argument(
        "--memory",
        type=parse_size,
        metavar="SIZE",
        default=defaults.memory << 20,
        help=f"of the machine; default {defaults.memory}M",
    )
    boot.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        default=defaults.timeout,
        help=f"give a boot up after this; default {defaults.timeout:.0f}",
    )


def _read_boot_options(chosen: argparse.Namespace) -> BootOptions:
    return BootOptions(
        image=chosen.image_name,
        kernel=chosen.kernel,
        initrd=chosen.initrd,
        append=chosen.append,
        attach=chosen.attach,
        until=chosen.until,
        medium=load_medium(chosen.medium),
        bus=chosen.bus,
        firmware=chosen.firmware,
        accel=chosen.accel,
        memory=chosen.memory >> 20,
        timeout=chosen.timeout,
    )


# --- order --------------------------------------------------------------------------------------


def _add_order(add: AddVerb) -> None:
    order = add(
        "order",
        _order,
        "make a sort list of one or more traces",
        "  bootpress order boot.trace -o boot.sort --image root.squashfs\n"
        "  bootpress order a.trace b.trace c.trace -o boot.sort --min-boots 2\n"
        "  bootpress order boot.trace -o sort.txt --style mksquashfs\n",
    )
    order.add_argument("traces", metavar="TRACE", nargs="+")
    order.add_argument("-o", "--output", metavar="LIST", required=True, help="the list to write")
    order.add_argument(
        "--image",
        metavar="IMAGE",
        help="the image that was traced, or another of the same tree: tells files from "
        "directories, and how much of each was not read",
    )
    order.add_argument(
        "--style",
        metavar="|".join(SORT_STYLES[1:]),
        choices=SORT_STYLES[1:],
        default="bootpress",
        help="the list's dialect; default bootpress, the only one that keeps everything",
    )
    order.add_argument(
        "--min-boots",
        type=int,
        metavar="N",
        default=1,
        help="leave out what fewer boots than this read; default 1",
    )
    add_quiet(order)


def _order(chosen: argparse.Namespace) -> int:
    _, learnt = loop.order(
        chosen.traces,
        chosen.output,
        image=chosen.image,
        style=chosen.style,
        min_boots=chosen.min_boots,
    )
    if not chosen.quiet:
        with standard_output():
            boot_report.print_learn_report(learnt, target=chosen.output)
    return 0


# --- measure ------------------------------------------------------------------------------------


def _add_measure(add: AddVerb) -> None:
    measure = add(
        "measure",
        _measure,
        "boot images in turn and compare what the boots cost",
        "  bootpress measure root.squashfs tuned.squashfs --medium cd --runs 5\n"
        "  bootpress measure live.iso --until 'login:' --json boots.json\n",
    )
    measure.add_argument("images", metavar="IMAGE", nargs="+", help="images, ISOs or disks")
    measure.add_argument(
        "--runs",
        type=int,
        metavar="N",
        default=STANDARD_RUNS,
        help=f"boots of each; default {STANDARD_RUNS}",
    )
    measure.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    _add_boot_arguments(measure)
    add_quiet(measure)


def _measure(chosen: argparse.Namespace) -> int:
    if chosen.json:
        check_target(chosen.json)
    with report.Progress(quiet=chosen.quiet) as progress:
        measured = measure_boots(
            chosen.images,
            options=_read_boot_options(chosen),
            runs=chosen.runs,
            monitor=progress,
        )
    if not chosen.quiet:
        with standard_output():
            boot_report.print_measurements(measured)
    if chosen.json:
        write_text(chosen.json, boot_report.format_measurements(measured, version=__version__))
    return 0


# --- simulate -----------------------------------------------------------------------------------


def _add_simulate(add: AddVerb) -> None:
    simulate = add(
        "simulate",
        _simulate,
        "tell what a traced boot would read of other images, without booting",
        "  bootpress simulate boot.trace root.squashfs tuned.squashfs --medium cd\n"
        "  bootpress simulate boot.trace root.squashfs --attach direct\n",
    )
    simulate.add_argument("trace", metavar="TRACE")
    simulate.add_argument("images", metavar="IMAGE", nargs="+", help="images of the traced tree")
    simulate.add_argument(
        "--medium",
        metavar="NAME",
        default="none",
        help=", ".join(list_media()) + ", or a .toml file; default none",
    )
    simulate.add_argument(
        "--attach",
        metavar="|".join(ATTACH),
        choices=ATTACH,
        help="how the image is mounted; default: as recorded",
    )
    simulate.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    add_quiet(simulate)


def _simulate(chosen: argparse.Namespace) -> int:
    if chosen.json:
        check_target(chosen.json)
    simulated = loop.simulate(
        chosen.trace, chosen.images, medium=load_medium(chosen.medium), attach=chosen.attach
    )
    if not chosen.quiet:
        with standard_output():
            boot_report.print_simulations(simulated)
    if chosen.json:
        write_text(chosen.json, boot_report.format_simulations(simulated, version=__version__))
    return 0
