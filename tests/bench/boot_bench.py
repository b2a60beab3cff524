#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Measures what the order of an image is worth to its boot.

Of one root file system four images are made, all with the same codec, level and block size:

    (a) mksquashfs, its own order          (c) bootpress without a sort list
    (b) mksquashfs -sort, the same list    (d) bootpress with the list

The list comes from a recorded boot of (c). Each image is replayed on the modelled media, mounted
through a loop device and directly, and booted in turn on a throttled disk. Last comes what a repack
costs against packing again. Everything is printed as Markdown; with --json the figures as well.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bootpress import PackOptions, loop, pack, repack
from bootpress.measure import Measurement, measure_boots
from bootpress.profile import load_medium
from bootpress.record import BootOptions
from bootpress.simulate import Simulation

LABELS = {
    "a": "(a) mksquashfs",
    "b": "(b) mksquashfs -sort",
    "c": "(c) bootpress",
    "d": "(d) bootpress, sort list",
}


@dataclass(frozen=True)
class Images:
    """The four images, and what they were made with."""

    paths: dict[str, Path]
    trace: Path
    sort_list: Path


def make_images(arguments: argparse.Namespace) -> Images:
    work: Path = arguments.work
    work.mkdir(parents=True, exist_ok=True)
    paths = {key: work / f"{key}.squashfs" for key in LABELS}
    trace, sort_list, sort_file = work / "boot.trace", work / "boot.sort", work / "boot.mksquashfs"
    options = PackOptions(codec="zstd", level=arguments.level, verify=False)
    make_once(paths["c"], lambda: pack(arguments.tree, paths["c"], options=options))
    boot = BootOptions(until=arguments.until, timeout=arguments.timeout)
    make_once(trace, lambda: loop.record(paths["c"], trace, options=boot, trace_source="both"))
    loop.order([trace], sort_list, image=paths["c"])
    loop.order([trace], sort_file, image=paths["c"], style="mksquashfs")
    make_once(
        paths["d"], lambda: pack(arguments.tree, paths["d"], options=options, sort_list=sort_list)
    )
    make_once(paths["a"], lambda: run_mksquashfs(arguments, paths["a"]))
    make_once(paths["b"], lambda: run_mksquashfs(arguments, paths["b"], "-sort", str(sort_file)))
    return Images(paths, trace, sort_list)


def make_once(target: Path, make: Callable[[], object]) -> None:
    """An image that is there from an earlier run is used again; --work a new place for new ones."""
    if not target.exists():
        print(f"making {target}", file=sys.stderr)
        make()


def run_mksquashfs(arguments: argparse.Namespace, target: Path, *words: str) -> None:
    command = ["mksquashfs", str(arguments.tree), str(target), "-comp", "zstd"]
    command += ["-Xcompression-level", str(arguments.level), "-noappend", "-no-progress", *words]
    subprocess.run(command, check=True, capture_output=True)


def simulate_all(images: Images, medium: str, attach: str) -> dict[str, Simulation]:
    done = loop.simulate(
        images.trace, list(images.paths.values()), medium=load_medium(medium), attach=attach
    )
    return dict(zip(images.paths, done, strict=True))


def print_simulations(rows: dict[str, Simulation], attach: str, medium: str) -> None:
    print(f"\nMounted {'through a loop device' if attach == 'loop' else 'directly'}, {medium}:\n")
    print("| image | reads | of metadata | MB | jumps | seek GB | modelled s | time, of (a) |")
    print("|---|---|---|---|---|---|---|---|")
    for key, row in rows.items():
        metadata = sum(total.reads for kind, total in row.kinds.items() if kind.endswith(" table"))
        print(
            f"| {LABELS[key]} | {row.reads} | {metadata} | {row.bytes_read / 1e6:.1f} "
            f"| {row.jumps} "
            f"| {row.seek_bytes / 1e9:.2f} | {row.seconds:.2f} "
            f"| {row.seconds / rows['a'].seconds:.2f} |"
        )


def print_measurements(keys: list[str], rows: tuple[Measurement, ...]) -> None:
    print(
        f"\nBooted {len(rows[0].boots)} times each in turn, {rows[0].medium}, {rows[0].accel}, "
        f"to {rows[0].until}:\n"
    )
    print("| image | mounted | seconds, median (range) | MB | reads | jumps | seek GB |")
    print("|---|---|---|---|---|---|---|")
    for key, row in zip(keys, rows, strict=True):
        seconds = row.spread(lambda boot: boot.seconds)
        print(
            f"| {LABELS[key]} | {row.attach} | {seconds.median:.1f} ({seconds.minimum:.1f}–"
            f"{seconds.maximum:.1f}) | {row.spread(lambda b: b.bytes_read).median / 1e6:.1f} "
            f"| {row.spread(lambda b: b.reads).median:.0f} "
            f"| {row.spread(lambda b: b.jumps).median:.0f} "
            f"| {row.spread(lambda b: b.seek_bytes).median / 1e9:.2f} |"
        )


def check_model(
    rows: dict[str, Simulation], keys: list[str], booted: tuple[Measurement, ...]
) -> None:
    """The model against QEMU's own count, where both have the image."""
    print("\n| image | MB, modelled / counted | reads, modelled / counted |\n|---|---|---|")
    for key, row in zip(keys, booted, strict=True):
        bytes_read = row.spread(lambda b: b.bytes_read).median
        reads = row.spread(lambda b: b.reads).median
        print(
            f"| {LABELS[key]} | {rows[key].bytes_read / bytes_read:.3f} "
            f"| {rows[key].reads / reads:.3f} |"
        )


def time_repack(images: Images, arguments: argparse.Namespace) -> tuple[float, float]:
    """Seconds of a repack, and of packing the same tree again; each with its verification."""
    target = arguments.work / "repacked.squashfs"
    began = time.monotonic()
    repack(images.paths["c"], target, sort_list=images.sort_list)
    repacked = time.monotonic() - began
    began = time.monotonic()
    options = PackOptions(codec="zstd", level=arguments.level)
    pack(arguments.tree, target, options=options, sort_list=images.sort_list)
    packed = time.monotonic() - began
    target.unlink()
    return repacked, packed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", type=Path, required=True, help="a root file system that boots")
    parser.add_argument("--work", type=Path, required=True, help="where images are made and kept")
    parser.add_argument("--until", default="multi-user.target")
    parser.add_argument("--level", type=int, default=15)
    parser.add_argument("--media", default="cd,usb2,nbd")
    parser.add_argument("--throttled", default="cd", help="boot on these; empty for none")
    parser.add_argument("--boots", default="a,b,d", help="which images to boot")
    parser.add_argument("--attach", default="loop", help="how to mount them in those boots")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=900.0)
    parser.add_argument("--no-repack", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    images = make_images(arguments)
    figures: dict[str, object] = {}
    modelled: dict[tuple[str, str], dict[str, Simulation]] = {}
    for medium in arguments.media.split(","):
        for attach in ("loop", "direct"):
            rows = simulate_all(images, medium, attach)
            modelled[medium, attach] = rows
            print_simulations(rows, attach, medium)
            figures[f"{medium} {attach}"] = {
                key: [row.reads, row.bytes_read, row.jumps, row.seek_bytes, row.seconds]
                for key, row in rows.items()
            }
    keys = arguments.boots.split(",")
    for medium in filter(None, arguments.throttled.split(",")):
        booted = measure_boots(
            [images.paths[key] for key in keys],
            options=BootOptions(
                until=arguments.until,
                medium=load_medium(medium),
                attach=arguments.attach,
                timeout=arguments.timeout,
            ),
            runs=arguments.runs,
        )
        print_measurements(keys, booted)
        rows = modelled.get((medium, arguments.attach))
        if rows is not None:
            check_model(rows, keys, booted)
        figures[f"{medium} booted {arguments.attach}"] = {
            key: [boot.seconds for boot in row.boots] for key, row in zip(keys, booted, strict=True)
        }
    if not arguments.no_repack:
        repacked, packed = time_repack(images, arguments)
        print(
            f"\nRepacking took {repacked:.1f} s, packing again {packed:.1f} s: "
            f"{packed / repacked:.0f} times as long."
        )
        figures["repack seconds"] = [repacked, packed]
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
