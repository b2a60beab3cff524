# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure bootpress against mksquashfs, gensquashfs and tar2sqfs, and against the bare codec.

Every comparison runs in alternating pairs on the same tree (ours, theirs, ours, theirs …), tree and
output on a tmpfs (a page cache may be reclaimed between two runs, unnoticed), and is printed as
ratios with their spread: machines are shared and noisy, so seconds alone say little. The limit
beside each row is the same blocks through the bare codec on as many threads, with nothing read
while the clock runs and nothing written.

Results are kept in a JSON file row by row, so an interrupted run loses only its last row; rows
that are there already are not measured again.

The peers verify nothing, so bootpress runs with --no-verify here; ``verify`` rows show its cost.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

KIB = 1024


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: our options, theirs, and what is asked of the ratio."""

    name: str
    block: int  # bytes
    ours: tuple[str, ...]
    mksquashfs: tuple[str, ...] = ()
    gensquashfs: tuple[str, ...] = ()  # tar2sqfs takes the same
    wall_target: float | None = None  # ours / mksquashfs, at most
    size_target: float | None = None
    bare: tuple[str, ...] = ()  # arguments of bare_codec


def _rows() -> list[Row]:
    rows = []
    for block, label in ((128 * KIB, "128K"), (1024 * KIB, "1M")):
        small = block == 128 * KIB

        def row(
            name: str,
            codec: str,
            level: int,
            peer: Sequence[str],
            gen: Sequence[str],
            *,
            wall: float | None = None,
            size: float | None = None,
            bcj: str | None = None,
            block: int = block,
            label: str = label,
        ) -> Row:
            ours = ["--codec", codec, "--level", str(level)]
            bare = [*ours]
            if bcj:
                ours += ["--bcj", bcj]
                bare += ["--bcj", bcj]
            return Row(
                name=f"{name}-{label}",
                block=block,
                ours=tuple(ours),
                mksquashfs=tuple(peer),
                gensquashfs=tuple(gen),
                wall_target=wall,
                size_target=size,
                bare=tuple(bare) if codec != "none" else (),
            )

        rows += [
            row(
                "none",
                "none",
                0,
                ["-noI", "-noD", "-noF", "-noX"],
                [],
                wall=0.40 if small else None,
                size=1.00 if small else None,
            ),
            row(
                "lz4",
                "lz4",
                1,
                ["-comp", "lz4"],
                ["lz4"],
                wall=0.60 if small else None,
                size=0.985 if small else None,
            ),
            row(
                "gzip",
                "gzip",
                9,
                ["-comp", "gzip"],
                ["gzip"],
                wall=0.40 if small else None,
                size=0.975 if small else None,
            ),
            row(
                "zstd15",
                "zstd",
                15,
                ["-comp", "zstd", "-Xcompression-level", "15"],
                ["zstd", "-X", "level=15"],
                wall=0.85 if small else 0.90,
                size=0.985 if small else 0.97,
            ),
            row(
                "lz4hc",
                "lz4",
                12,
                ["-comp", "lz4", "-Xhc"],
                ["lz4", "-X", "hc"],
                wall=0.93 if small else None,
                size=0.985 if small else None,
            ),
            row(
                "xz",
                "xz",
                6,
                ["-comp", "xz"],
                ["xz"],
                wall=0.97 if small else None,
                size=0.985 if small else None,
            ),
            row(
                "xz-bcj",
                "xz",
                6,
                ["-comp", "xz", "-Xbcj", "x86"],
                ["xz", "-X", "x86"],
                bcj="auto",
                wall=0.60 if small else 0.55,
                size=0.99 if small else 0.975,
            ),
            row(
                "zstd22",
                "zstd",
                22,
                ["-comp", "zstd", "-Xcompression-level", "22"],
                ["zstd", "-X", "level=22"],
            ),
        ]
    return rows


ROWS = {row.name: row for row in _rows()}


@dataclass(slots=True)
class Run:
    """One process: what it took and what it left."""

    wall: float  # seconds
    cpu: float  # seconds, user and system
    memory: int  # peak resident bytes
    size: int  # bytes of the image


@dataclass(slots=True)
class Result:
    """All runs of one row with one number of workers, by program."""

    row: str
    workers: int
    runs: dict[str, list[Run]] = field(default_factory=dict)
    bare: list[dict[str, float]] = field(default_factory=list)


class Bench:
    """Runs programs on one tree, one after the other."""

    def __init__(self, tree: Path, scratch: Path, bare_codec: Path | None) -> None:
        self.tree = tree
        self.scratch = scratch
        self.image = scratch / "bench.image"
        self.bare_codec = bare_codec
        self._tar: Path | None = None

    def run(self, command: Sequence[str], *, stdin: Path | None = None) -> Run:
        """Run one packer to its end, and read the image's size."""
        self.image.unlink(missing_ok=True)
        with open(stdin or os.devnull, "rb") as source:
            began = time.perf_counter()
            process = subprocess.Popen(
                command, stdin=source, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            assert process.stderr is not None
            complaints = process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.stderr.buffer.write(complaints)
            raise SystemExit(f"{command[0]} failed: {' '.join(command)}")
        return Run(
            wall=wall,
            cpu=usage.ru_utime + usage.ru_stime,
            memory=usage.ru_maxrss * KIB,
            size=self.image.stat().st_size,
        )

    def ours(self, row: Row, workers: int, *extra: str) -> Run:
        """Pack with bootpress."""
        command = ["bootpress", "pack", str(self.tree), str(self.image), *row.ours]
        command += ["--block-size", str(row.block), "--jobs", str(workers), "--quiet"]
        return self.run([*command, *extra])

    def mksquashfs(self, row: Row, workers: int) -> Run:
        """Pack with mksquashfs."""
        command = ["mksquashfs", str(self.tree), str(self.image), "-noappend", "-quiet"]
        command += ["-no-progress", "-processors", str(workers), "-b", str(row.block)]
        return self.run([*command, *row.mksquashfs])

    def gensquashfs(self, row: Row, workers: int) -> Run:
        """Pack with gensquashfs."""
        command = ["gensquashfs", "-D", str(self.tree), "-q", "-f", "-j", str(workers)]
        command += ["-b", str(row.block), "-c", *row.gensquashfs, str(self.image)]
        return self.run(command)

    def tar2sqfs(self, row: Row, workers: int) -> Run:
        """Pack a tar of the tree with tar2sqfs."""
        if self._tar is None:
            self._tar = self.scratch / "bench.tar"
            subprocess.run(
                ["tar", "-C", self.tree, "--sort=name", "--xattrs", "-cf", self._tar, "."],
                check=True,
                stderr=subprocess.DEVNULL,
            )
        command = ["tar2sqfs", "-q", "-f", "-j", str(workers), "-b", str(row.block)]
        return self.run([*command, "-c", *row.gensquashfs, str(self.image)], stdin=self._tar)

    def unpack(self, image: Path, command: Sequence[str]) -> Run:
        """Unpack an image onto the tmpfs with ``command IMAGE-AND-DIRECTORY``, then remove it."""
        directory = self.scratch / "bench.unpacked"
        shutil.rmtree(directory, ignore_errors=True)
        began = time.perf_counter()
        process = subprocess.Popen(
            [word.format(image=image, directory=directory) for word in command],
            stdout=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        shutil.rmtree(directory)
        if process.returncode != 0:
            raise SystemExit(f"{command[0]} failed")
        cpu = usage.ru_utime + usage.ru_stime
        return Run(wall=wall, cpu=cpu, memory=usage.ru_maxrss * KIB, size=image.stat().st_size)

    def limit(self, row: Row, workers: int) -> dict[str, float]:
        """Run the bare codec over the very blocks that bootpress would compress."""
        blocks = self.scratch / f"blocks-{row.block}.image"
        if not blocks.exists():
            command = ["bootpress", "pack", str(self.tree), str(blocks), "--codec", "none"]
            command += ["--cold-order", "similarity", "--block-size", str(row.block), "--quiet"]
            subprocess.run([*command, "--no-verify"], check=True)
        assert self.bare_codec is not None
        command = [str(self.bare_codec), str(blocks), *row.bare, "--threads", str(workers)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        figures = json.loads(done.stdout)
        return {key: figures[key] for key in ("wall_s", "cpu_s", "in_bytes", "out_bytes")}

    def close(self) -> None:
        """Remove what was written."""
        for path in [self.image, *self.scratch.glob("blocks-*.image"), self._tar]:
            if path is not None:
                path.unlink(missing_ok=True)
        shutil.rmtree(self.tree, ignore_errors=True)


def measure_row(
    bench: Bench, row: Row, workers: int, pairs: int, peers: Sequence[str], extras: bool
) -> Result:
    """Run ours and the peers in turn, ``pairs`` times."""
    result = Result(row=row.name, workers=workers)
    for _ in range(pairs):
        result.runs.setdefault("bootpress", []).append(bench.ours(row, workers, "--no-verify"))
        if "mksquashfs" in peers:
            result.runs.setdefault("mksquashfs", []).append(bench.mksquashfs(row, workers))
        if row.gensquashfs:
            for peer in ("gensquashfs", "tar2sqfs"):
                if peer in peers:
                    run = getattr(bench, peer)(row, workers)
                    result.runs.setdefault(peer, []).append(run)
        if bench.bare_codec is not None and row.bare:
            result.bare.append(bench.limit(row, workers))
        if extras:
            unfragmented = bench.ours(row, workers, "--no-verify", "--no-fragments")
            result.runs.setdefault("bootpress --no-fragments", []).append(unfragmented)
            result.runs.setdefault("bootpress, verified", []).append(bench.ours(row, workers))
    return result


UNPACKERS = {
    "bootpress unpack": ("bootpress", "unpack", "{image}", "{directory}", "--jobs", "2", "--quiet"),
    "unsquashfs": ("unsquashfs", "-q", "-n", "-p", "2", "-d", "{directory}", "{image}"),
}


def measure_unpacking(bench: Bench, codec: str, pairs: int) -> Result:
    """Unpack one image, made by mksquashfs, with both programs in turn."""
    result = Result(row=f"unpack-{codec}", workers=2)
    image = bench.scratch / "bench.unpack.image"
    command = ["mksquashfs", str(bench.tree), str(image), "-noappend", "-quiet", "-no-progress"]
    level = ["-Xcompression-level", "3"] if codec == "zstd" else []
    try:
        subprocess.run([*command, "-comp", codec, *level], check=True, stderr=subprocess.DEVNULL)
        for _ in range(pairs):
            for program, words in UNPACKERS.items():
                result.runs.setdefault(program, []).append(bench.unpack(image, words))
    finally:
        image.unlink(missing_ok=True)
    return result


def unpack_lines(results: Sequence[Result]) -> list[str]:
    """The table of unpacking."""
    lines = [
        "| image | program | wall s | CPU s | peak MB | wall, ours/theirs |",
        "|---|---|---|---|---|---|",
    ]
    for result in results:
        ours = result.runs["bootpress unpack"]
        for program, runs in result.runs.items():
            ratio = (
                "" if runs is ours else median_ratio([r.wall for r in ours], [r.wall for r in runs])
            )
            lines.append(
                f"| {result.row.removeprefix('unpack-')} | {program} "
                f"| {statistics.median(r.wall for r in runs):.2f} "
                f"| {statistics.median(r.cpu for r in runs):.2f} "
                f"| {max(r.memory for r in runs) / 1e6:.0f} | {ratio} |"
            )
    return lines


def median_ratio(above: Sequence[float], below: Sequence[float]) -> str:
    """Pairwise ratios: the median, and the spread where there are several pairs."""
    ratios = sorted(a / b for a, b in zip(above, below, strict=True))
    text = f"{statistics.median(ratios):.3f}"
    return text if len(ratios) == 1 else f"{text} ({ratios[0]:.3f}–{ratios[-1]:.3f})"


def table_lines(results: Sequence[Result]) -> list[str]:
    """The table in Markdown: one line per row, workers and program."""
    lines = [
        "| row | workers | program | wall s | CPU s | peak MB | size MB | wall, ours/theirs "
        "| size, ours/theirs | asked |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        row = ROWS[result.row]
        ours = result.runs["bootpress"]
        for program, runs in result.runs.items():
            wall = size = asked = ""
            if program != "bootpress":
                wall = median_ratio([r.wall for r in ours], [r.wall for r in runs])
                size = median_ratio([r.size for r in ours], [r.size for r in runs])
            if program == "mksquashfs" and row.wall_target and result.workers == 2:
                asked = f"{row.wall_target:.2f} / {row.size_target}"
            lines.append(
                f"| {result.row} | {result.workers} | {program} "
                f"| {statistics.median(r.wall for r in runs):.2f} "
                f"| {statistics.median(r.cpu for r in runs):.2f} "
                f"| {max(r.memory for r in runs) / 1e6:.0f} "
                f"| {runs[0].size / 1e6:.1f} | {wall} | {size} | {asked} |"
            )
        if result.bare:
            limit = [run["wall_s"] for run in result.bare]
            wall = median_ratio([r.wall for r in ours], limit)
            lines.append(
                f"| {result.row} | {result.workers} | *bare codec* "
                f"| {statistics.median(limit):.2f} "
                f"| {statistics.median(run['cpu_s'] for run in result.bare):.2f} | | "
                f"| {wall} | | 1.08 |"
            )
    return lines


def scaling_lines(results: Sequence[Result]) -> list[str]:
    """How much faster two workers are than one, per program."""
    by_key = {(result.row, result.workers): result for result in results}
    lines = ["| row | program | 2 workers are faster by |", "|---|---|---|"]
    for (name, workers), two in by_key.items():
        one = by_key.get((name, 1))
        if workers != 2 or one is None:
            continue
        for program, runs in two.runs.items():
            if program in one.runs:
                before = statistics.median(r.wall for r in one.runs[program])
                after = statistics.median(r.wall for r in runs)
                lines.append(f"| {name} | {program} | {before / after:.2f} |")
    return lines


def describe_machine(tree: Path) -> dict[str, str | int]:
    """What the figures depend on."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    version = subprocess.run(
        ["mksquashfs", "-version"], check=False, capture_output=True, text=True
    )
    files = [p for p in tree.rglob("*") if p.is_file() and not p.is_symlink()]
    return {
        "cpu": model,
        "cpus": os.cpu_count() or 1,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "mksquashfs": version.stdout.splitlines()[0],
        "tree_files": len(files),
        "tree_bytes": sum(p.stat().st_size for p in files),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def load_results(path: Path) -> list[Result]:
    """What an earlier run measured."""
    if not path.exists():
        return []
    return [
        Result(
            row=entry["row"],
            workers=entry["workers"],
            runs={name: [Run(**run) for run in runs] for name, runs in entry["runs"].items()},
            bare=entry["bare"],
        )
        for entry in json.loads(path.read_text())["results"]
    ]


def save_results(path: Path, machine: dict[str, str | int], results: Sequence[Result]) -> None:
    """Keep what is finished."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": machine, "results": [asdict(r) for r in results]}, indent=1)
    path.with_suffix(".tmp").write_text(text + "\n")
    path.with_suffix(".tmp").replace(path)


def print_tables(results: Sequence[Result]) -> None:
    """All of it, to standard output."""
    packed = [result for result in results if result.row in ROWS]
    unpacked = [result for result in results if result.row not in ROWS]
    for lines in (table_lines(packed), scaling_lines(packed), unpack_lines(unpacked)):
        if len(lines) > 2:
            print("\n".join(lines) + "\n")


def main() -> None:
    """Measure the rows that were asked for and print the table."""
    build = Path(os.environ.get("BUILD", "build"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--tree", type=Path, default=build / "bench-rootfs")
    parser.add_argument("--scratch", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--json", type=Path, default=build / "bench.json")
    parser.add_argument("--rows", default=os.environ.get("ROWS", ",".join(ROWS)))
    parser.add_argument("--workers", default=os.environ.get("WORKERS", "2,1"))
    parser.add_argument("--pairs", type=int, default=int(os.environ.get("PAIRS", "3")))
    parser.add_argument(
        "--peers", default=os.environ.get("PEERS", "mksquashfs,gensquashfs,tar2sqfs")
    )
    parser.add_argument("--unpack", default=os.environ.get("UNPACK", "lz4,zstd,gzip,xz"))
    parser.add_argument("--no-extras", action="store_true", help="no --no-fragments, no verify")
    parser.add_argument("--bare-codec", type=Path, default=build / "bench" / "bare_codec")
    parser.add_argument("--print", action="store_true", help="print what is in --json, run nothing")
    chosen = parser.parse_args()

    results = load_results(chosen.json)
    if chosen.print:
        print_tables(results)
        return
    names = chosen.rows.split(",")
    if unknown := set(names) - set(ROWS):
        raise SystemExit(f"unknown rows {sorted(unknown)}; there are {', '.join(ROWS)}")
    if not chosen.tree.is_dir():
        raise SystemExit(
            f"{chosen.tree} is missing: tools/make_rootfs.sh {chosen.tree} desktop makes it"
        )
    peers = [p for p in chosen.peers.split(",") if p and shutil.which(p)]
    machine = describe_machine(chosen.tree)
    tree = chosen.scratch / "bench.tree"
    bench = Bench(tree, chosen.scratch, chosen.bare_codec if chosen.bare_codec.exists() else None)
    try:
        subprocess.run(["cp", "-a", chosen.tree, tree], check=True)
        for workers in (int(n) for n in chosen.workers.split(",")):
            for name in names:
                if any(r.row == name and r.workers == workers for r in results):
                    continue
                result = measure_row(
                    bench, ROWS[name], workers, chosen.pairs, peers, not chosen.no_extras
                )
                results.append(result)
                save_results(chosen.json, machine, results)
                print("\n".join(table_lines([result])[2:]), flush=True)
        for codec in filter(None, chosen.unpack.split(",")):
            if not any(r.row == f"unpack-{codec}" for r in results):
                results.append(measure_unpacking(bench, codec, chosen.pairs))
                save_results(chosen.json, machine, results)
                print("\n".join(unpack_lines(results[-1:])[2:]), flush=True)
    finally:
        bench.close()
    print()
    print_tables(results)


if __name__ == "__main__":
    main()
