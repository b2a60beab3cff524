# SPDX-License-Identifier: GPL-2.0-or-later
r"""Sort lists: which files come first, in three dialects, read and written.

**bootpress** (the only one that keeps everything)::

    #! bootpress sort list 1
    # kernel: 6.1.0-18-amd64
    # image: sha256:…
    # boots: 3
    usr/lib/systemd/systemd<TAB>pages=0-15,20
    usr/sbin/init<TAB>pages=none
    usr/lib/x86_64-linux-gnu/libc.so.6
    usr/bin/bash<TAB>pages=none
    usr/sbin/init
    #! last
    usr/share/doc/README

The first line is the mark. ``# key: value`` lines up to the first path tell where the list comes
from; later lines that start with ``#`` are comments. Then one path per line, relative to the root,
of any type, in the order in which a boot needs them, behind which a TAB may introduce the 4 KiB
pages that it read; with ``pages=none`` it looked at the metadata only: the inode goes first, and a
directory's listing, but not the data. Paths below ``#! last`` go behind everything else.

A path may stand twice: with ``pages=none`` where it is first looked at and, further on, where it is
first read. The first line that names it places its inode and listing, the first one without
``pages=none`` its data; other lines of it mean nothing. (So what stands above ``#! last`` with
``pages=none`` and below it as well has its inode first and its data last.)

A backslash escapes: ``\\``, ``\t``, ``\n``, ``\xNN``; whatever is not printable UTF-8 is written
so, and a ``#`` or a space at either end as well. A list *without* the mark is what ``find`` prints:
one literal name per line (``#`` comments aside), no escapes, since unit names such as
``a\x2db.slice`` hold backslashes.

**mksquashfs** (``-sort``): ``path priority`` per line, -32768 to 32767, higher first, a backslash
before white space in a name. A directory's priority holds for everything below it until a more
specific entry; unlisted files have 0. The last entry for a path wins, as in mksquashfs.

**gensquashfs** (``-S``): ``priority [flags] path`` per line, 64 bit, lower first, unlisted files
have 0, the first match wins. Flags ``glob`` and ``glob_no_path`` are honoured; the packing flags
(``align`` and so on) are counted in a warning, since they do not change the order.

Both dialects' behaviour is taken from their manuals and from runs of mksquashfs 4.5.1 and
gensquashfs 1.2.0.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from bootpress.errors import SortListError, UsageError
from bootpress.model import SORT_STYLES, AnyPath, encode_path, escape_name

MARK = "#! bootpress sort list 1"
LAST_MARK = "#! last"
# mksquashfs reads priorities into 16 bits and refuses what does not fit.
MKSQUASHFS_HIGHEST = 32767
MKSQUASHFS_LOWEST = -32768
# Flags of gensquashfs that say how to pack a file, not where.
PACKING_FLAGS = frozenset(
    {"align", "dont_fragment", "dont_compress", "dont_deduplicate", "nosparse"}
)

PageRange = tuple[int, int]  # first and last page of 4 KiB, both read


class Reach(Enum):
    """What an entry's path stands for."""

    EXACT = "exact"  # the file or directory itself
    BELOW = "below"  # and, for a directory, everything below it
    GLOB = "glob"  # a pattern whose wildcards stop at slashes
    GLOB_ANY = "glob_no_path"  # a pattern whose wildcards cross slashes


@dataclass(frozen=True, slots=True)
class SortEntry:
    """One line of a list.

    Attributes:
        path: relative to the root, or a pattern.
        rank: where it goes; lower is earlier, below 0 ahead of everything unlisted, above 0
            behind it. Equal ranks keep the list's order.
        reach: what the path stands for.
        pages: the pages that a boot read, ascending, empty where nothing is known.
        metadata_only: the inode goes first (and a directory's listing), the data stays where it
            would be without the entry: where another entry of the path puts it, or with what is
            unlisted. Only ahead, and without ``pages``.
    """

    path: bytes
    rank: int
    reach: Reach = Reach.EXACT
    pages: tuple[PageRange, ...] = ()
    metadata_only: bool = False

    def __post_init__(self) -> None:
        if self.metadata_only and (self.pages or self.rank >= 0):
            raise SortListError(
                f"'{escape_name(self.path)}': pages=none goes with a rank below 0 and no pages",
                hint="without data there is nothing to put behind everything else",
            )


@dataclass(frozen=True, slots=True)
class SortList:
    """An order of files and where it comes from.

    Attributes:
        entries: in the list's order.
        provenance: the header's (key, value) pairs, in order.
        style: the dialect it was read in.
        warnings: what the list asks for that is done otherwise, each once with a count.
    """

    entries: tuple[SortEntry, ...]
    provenance: tuple[tuple[str, str], ...] = ()
    style: str = "bootpress"
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_paths(
        cls,
        hot: Iterable[AnyPath],
        *,
        last: Iterable[AnyPath] = (),
        provenance: Iterable[tuple[str, str]] = (),
    ) -> "SortList":
        """Return the list that puts ``hot`` first, in this order, and ``last`` behind all."""
        first = [encode_path(path) for path in hot]
        return cls(
            entries=(
                *(SortEntry(path, index - len(first)) for index, path in enumerate(first)),
                *(SortEntry(encode_path(path), index) for index, path in enumerate(last, 1)),
            ),
            provenance=tuple(provenance),
        )

    @property
    def hot(self) -> tuple[SortEntry, ...]:
        """Entries that go first, in their order."""
        return tuple(sorted((e for e in self.entries if e.rank < 0), key=lambda e: e.rank))

    @property
    def last(self) -> tuple[SortEntry, ...]:
        """Entries that go behind everything else, in their order."""
        return tuple(sorted((e for e in self.entries if e.rank > 0), key=lambda e: e.rank))


def parse_sort_list(data: bytes, *, style: str = "auto", name: str = "sort list") -> SortList:
    """Return the sort list that ``data`` holds.

    Args:
        data: the file's bytes.
        style: its dialect, or "auto" to tell from the content.
        name: what error messages call it.

    Raises:
        SortListError: a line that the dialect does not know, with its number, or a list that two
            dialects would read differently.
        UsageError: an unknown style.
    """
    if style not in SORT_STYLES:
        raise UsageError(
            f"unknown sort style '{style}'", hint="choose one of " + ", ".join(SORT_STYLES)
        )
    lines = data.split(b"\n")
    if style == "auto":
        style = _detect_style(lines, name)
    parse = {"bootpress": _parse_own, "mksquashfs": _parse_mksquashfs}.get(
        style, _parse_gensquashfs
    )
    return parse(lines, name)


def format_sort_list(
    sort_list: SortList, style: str = "bootpress", *, keep: Callable[[bytes], bool] | None = None
) -> bytes:
    """Return the list as a file of the given dialect.

    Args:
        sort_list: entries that name single files (``Reach.EXACT``), unless the dialect has a word
            for what they reach.
        style: "bootpress", "mksquashfs" or "gensquashfs". The two others order file data only and
            a directory's priority would hold for all below it, so entries that are another
            entry's directory are left out there, and all but a path's first that is not
            ``metadata_only``.
        keep: called with each path; False leaves the entry out. Pass "is a regular file" when
            writing for the two others.

    mksquashfs has 32,767 priorities above 0 and 32,768 below. A longer list is written in groups of
    neighbours of equal priority, which mksquashfs then orders as it likes (4.5.1: the order of its
    scan, reversed).

    Raises:
        SortListError: the dialect cannot express an entry.
        UsageError: an unknown style.
    """
    entries = [e for e in sort_list.entries if keep is None or keep(e.path)]
    match style:
        case "bootpress":
            return _format_own(entries, sort_list.provenance)
        case "mksquashfs":
            return _format_mksquashfs(_with_data(entries))
        case "gensquashfs":
            return _format_gensquashfs(_with_data(entries))
        case _:
            raise UsageError(f"cannot write sort style '{style}'")


def _with_data(entries: Iterable[SortEntry]) -> list[SortEntry]:
    first: dict[tuple[Reach, bytes], SortEntry] = {}
    for entry in sorted(entries, key=lambda e: e.rank):
        if not entry.metadata_only:
            first.setdefault((entry.reach, entry.path), entry)
    return list(first.values())


# --- telling the dialects apart ---------------------------------------------------------------

_MKSQUASHFS_LINE = re.compile(rb"\s*((?:\\.|[^\\\s])+)\s+([-+]?\d+)\s*")
_GENSQUASHFS_LINE = re.compile(rb"\s*(-?\d+)(?:\s+\[([^\]]*)\])?\s+(\S.*?)\s*")


def _detect_style(lines: Sequence[bytes], name: str) -> str:
    if lines[0].startswith(b"#! bootpress"):
        return "bootpress"
    body = [line for line in lines if line.strip() and not line.lstrip().startswith(b"#")]
    mks = sum(_MKSQUASHFS_LINE.fullmatch(line) is not None for line in body)
    gens = sum(_GENSQUASHFS_LINE.fullmatch(line) is not None for line in body)
    if not mks and not gens:
        return "bootpress"
    fits = [
        style for style, count in (("mksquashfs", mks), ("gensquashfs", gens)) if count == len(body)
    ]
    if len(fits) == 1:
        return fits[0]
    reason = "more than one dialect fits" if fits else "some lines have a priority and some do not"
    raise SortListError(
        f"{name}: cannot tell which dialect of sort list this is: {reason}",
        hint="name it with --sort-style bootpress, mksquashfs or gensquashfs",
    )


# --- bootpress --------------------------------------------------------------------------------

_ESCAPE = re.compile(rb"\\(x[0-9A-Fa-f]{2}|.|$)", re.DOTALL)
_SHORT_ESCAPES = {b"\\": b"\\", b"t": b"\t", b"n": b"\n"}
_PROVENANCE = re.compile(r"# ([A-Za-z0-9][A-Za-z0-9 _.-]*): ?(.*)")


def unescape_name(text: bytes) -> bytes:
    r"""Return the bytes that ``text`` stands for; the inverse of ``model.escape_name``.

    Raises:
        ValueError: a backslash in front of anything but ``\``, ``t``, ``n``, ``xNN``.
    """

    def unescape(match: re.Match[bytes]) -> bytes:
        what = match[1]
        if len(what) == 3:
            return bytes([int(what[1:], 16)])
        if what not in _SHORT_ESCAPES:
            raise ValueError(f"unknown escape '{escape_name(match[0])}'")
        return _SHORT_ESCAPES[what]

    return _ESCAPE.sub(unescape, text)


def _escape_line(path: bytes) -> str:
    text = escape_name(path)
    # A comment's mark, and spaces that an editor may strip.
    if text.startswith(("#", " ")):
        text = f"\\x{ord(text[0]):02x}{text[1:]}"
    if text.endswith(" "):
        text = text[:-1] + "\\x20"
    return text


def _parse_own(lines: Sequence[bytes], name: str) -> SortList:
    marked = lines[0].startswith(b"#! bootpress")
    if marked and lines[0].rstrip() != MARK.encode():
        raise SortListError(
            f"{name}: {escape_name(lines[0])}: a format that this version does not know",
            hint=f"the first line should read '{MARK}'",
        )
    provenance: list[tuple[str, str]] = []
    hot: list[tuple[bytes, tuple[PageRange, ...] | None]] = []
    last: list[tuple[bytes, tuple[PageRange, ...] | None]] = []
    goes = hot
    header = marked
    for number, raw in enumerate(lines, 1):
        line = raw.removesuffix(b"\r")
        if (marked and number == 1) or not line:
            continue
        if marked and line.rstrip() == LAST_MARK.encode():
            goes, header = last, False
            continue
        if line.startswith(b"#"):
            found = _PROVENANCE.fullmatch(line.decode("utf-8", "replace")) if header else None
            if found:
                provenance.append((found[1], found[2]))
            continue
        header = False
        if not marked:
            goes.append((encode_path(line), ()))
            continue
        text, tab, extra = line.partition(b"\t")
        try:
            pages = _parse_pages(extra) if tab else ()
            if pages is None and goes is last:
                raise ValueError(f"pages=none stands above '{LAST_MARK}' only")
            goes.append((encode_path(unescape_name(text)), pages))
        except ValueError as error:
            raise SortListError(f"{name}: line {number}: {error}") from None
    return SortList(
        entries=tuple(
            SortEntry(path, rank, pages=pages or (), metadata_only=pages is None)
            for first, chosen in ((-len(hot), hot), (1, last))
            for rank, (path, pages) in enumerate(chosen, first)
        ),
        provenance=tuple(provenance),
    )


def _parse_pages(text: bytes) -> tuple[PageRange, ...] | None:
    if text.strip() == b"pages=none":
        return None
    found = re.fullmatch(rb"pages=([0-9,-]+)", text.strip())
    if not found:
        raise ValueError(f"'{escape_name(text)}' is not of the form pages=0-15,20 or pages=none")
    ranges: list[PageRange] = []
    for part in found[1].split(b","):
        first, dash, end = part.partition(b"-")
        if not first.isdigit() or (dash and not end.isdigit()):
            raise ValueError(f"'{part.decode()}' is no range of pages")
        span = (int(first), int(end) if dash else int(first))
        if span[1] < span[0] or (ranges and span[0] <= ranges[-1][1]):
            raise ValueError(f"page range '{part.decode()}' is not ascending")
        ranges.append(span)
    return tuple(ranges)


def _format_pages(entry: SortEntry) -> str:
    if entry.metadata_only:
        return "\tpages=none"
    ranges = (str(first) if first == end else f"{first}-{end}" for first, end in entry.pages)
    return "\tpages=" + ",".join(ranges) if entry.pages else ""


def _format_own(entries: Sequence[SortEntry], provenance: Iterable[tuple[str, str]]) -> bytes:
    out = [MARK]
    for key, value in provenance:
        line = f"# {key}: {value}"
        if not _PROVENANCE.fullmatch(line) or not value.isprintable():
            raise SortListError(f"'{escape_name(line.encode())}' cannot stand in a list's header")
        out.append(line)
    ordered = sorted((e for e in entries if e.rank), key=lambda e: e.rank)
    for entry in ordered:
        if entry.reach is not Reach.EXACT:
            raise SortListError(
                f"'{escape_name(entry.path)}' stands for several files",
                hint="resolve the list against a tree first: bootpress.order.resolve",
            )
    for place in (-1, 1):
        chosen = [e for e in ordered if e.rank * place > 0]
        if place > 0 and chosen:
            out.append(LAST_MARK)
        for entry in chosen:
            # The root has no name; "/" keeps the line from being empty.
            out.append((_escape_line(entry.path) or "/") + _format_pages(entry))
    return ("\n".join(out) + "\n").encode("utf-8", "surrogateescape")


# --- mksquashfs -------------------------------------------------------------------------------


def _parse_mksquashfs(lines: Sequence[bytes], name: str) -> SortList:
    entries: dict[bytes, SortEntry] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith(b"#"):
            continue
        found = _MKSQUASHFS_LINE.fullmatch(line)
        if not found:
            raise SortListError(
                f"{name}: line {number}: '{escape_name(line)}' is not of the form 'path priority'",
                hint="a space in a name has a backslash before it",
            )
        priority = int(found[2])
        if not MKSQUASHFS_LOWEST <= priority <= MKSQUASHFS_HIGHEST:
            raise SortListError(
                f"{name}: line {number}: priority {priority} is not from "
                f"{MKSQUASHFS_LOWEST} to {MKSQUASHFS_HIGHEST}"
            )
        path = re.sub(rb"\\(.)", rb"\1", found[1])
        # mksquashfs takes "directory/*" for the directory.
        path = encode_path(path.removesuffix(b"/*"))
        entries.pop(path, None)  # the last entry wins, from its own place
        entries[path] = SortEntry(path, -priority, Reach.BELOW)
    return SortList(tuple(entries.values()), style="mksquashfs")


def _format_mksquashfs(entries: Sequence[SortEntry]) -> bytes:
    out: list[bytes] = []
    for chosen, places, sign in (
        ([e for e in entries if e.rank < 0], MKSQUASHFS_HIGHEST, 1),
        ([e for e in entries if e.rank > 0], -MKSQUASHFS_LOWEST, -1),
    ):
        chosen.sort(key=lambda e: e.rank)
        singles = _without_directories(chosen)
        group = -(-len(singles) // places) or 1
        for index, entry in enumerate(singles):
            if entry.reach not in {Reach.EXACT, Reach.BELOW}:
                raise SortListError(
                    f"mksquashfs knows no patterns: '{escape_name(entry.path)}'",
                    hint="resolve the list against a tree first: bootpress.order.resolve",
                )
            if b"\n" in entry.path:
                raise SortListError(
                    f"a mksquashfs sort list cannot name '{escape_name(entry.path)}'",
                    hint="names with a line break only fit bootpress' own format",
                )
            # The last places of `places` keep the numbers distinct from 0.
            place = index // group
            priority = places - place if sign > 0 else -1 - place
            name = re.sub(rb"([\\\s])", rb"\\\1", entry.path)
            if name.startswith(b"#"):
                name = b"\\" + name
            out.append(b"%s %d\n" % (name, priority))
    return b"".join(out)


def _without_directories(entries: Sequence[SortEntry]) -> list[SortEntry]:
    parents: set[bytes] = {b""}
    for entry in entries:
        path = entry.path
        while (slash := path.rfind(b"/")) > 0:
            path = path[:slash]
            if path in parents:
                break
            parents.add(path)
    return [e for e in entries if e.reach is not Reach.EXACT or e.path not in parents]


# --- gensquashfs ------------------------------------------------------------------------------


def _parse_gensquashfs(lines: Sequence[bytes], name: str) -> SortList:
    entries: list[SortEntry] = []
    ignored: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith(b"#"):
            continue
        found = _GENSQUASHFS_LINE.fullmatch(line)
        if not found:
            raise SortListError(
                f"{name}: line {number}: '{escape_name(line)}' is not of the form "
                "'priority [flags] path'"
            )
        priority = int(found[1])
        if not -(2**63) <= priority < 2**63:
            raise SortListError(f"{name}: line {number}: priority {priority} exceeds 64 bits")
        reach = Reach.EXACT
        for raw in (found[2] or b"").split(b","):
            flag = raw.strip().decode("utf-8", "replace")
            if flag == "glob":
                reach = Reach.GLOB
            elif flag == "glob_no_path":
                reach = Reach.GLOB_ANY
            elif flag in PACKING_FLAGS:
                ignored[flag] = ignored.get(flag, 0) + 1
            elif flag:
                raise SortListError(
                    f"{name}: line {number}: unknown flag '{flag}'",
                    hint="gensquashfs knows glob, glob_no_path, "
                    + ", ".join(sorted(PACKING_FLAGS)),
                )
        try:
            path = encode_path(_unquote(found[3]))
        except ValueError as error:
            raise SortListError(f"{name}: line {number}: {error}") from None
        entries.append(SortEntry(path, priority, reach))
    warnings = tuple(
        f"flag '{flag}' changes nothing here ({count} {'entry' if count == 1 else 'entries'})"
        for flag, count in sorted(ignored.items())
    )
    return SortList(tuple(entries), style="gensquashfs", warnings=warnings)


def _unquote(text: bytes) -> bytes:
    if not text.startswith(b'"'):
        return text
    found = re.fullmatch(rb'"((?:\\.|[^\\"])*)"', text)
    if not found:
        raise ValueError(f"unmatched quotation mark in '{escape_name(text)}'")
    return re.sub(rb'\\(["\\])', rb"\1", found[1])


def _format_gensquashfs(entries: Sequence[SortEntry]) -> bytes:
    out: list[bytes] = []
    for entry in sorted((e for e in entries if e.rank), key=lambda e: e.rank):
        if entry.reach is Reach.BELOW:
            raise SortListError(
                f"gensquashfs has no word for everything below '{escape_name(entry.path)}'",
                hint="resolve the list against a tree first: bootpress.order.resolve",
            )
        if b"\n" in entry.path:
            raise SortListError(
                f"a gensquashfs sort list cannot name '{escape_name(entry.path)}'",
                hint="names with a line break only fit bootpress' own format",
            )
        if entry.reach is Reach.EXACT:
            out.append(b"%d %s\n" % (entry.rank, _quote_for_gensquashfs(entry.path)))
        else:
            out.append(b"%d [%s] %s\n" % (entry.rank, entry.reach.value.encode(), entry.path))
    return b"".join(out)


def _quote_for_gensquashfs(path: bytes) -> bytes:
    # gensquashfs 1.2.0 takes an unquoted name literally but mangles every quoted one ("a b" becomes
    # a bb"). So a name that would need quotes goes as a pattern.
    if path.strip() == path and not path.startswith((b'"', b"[")):
        return path
    pattern = re.sub(rb"([\\*?\[\]])", rb"\\\1", path)
    pattern = re.sub(rb'^(["\s])', rb"[\1]", pattern)
    pattern = re.sub(rb"(\s)$", rb"[\1]", pattern)
    return b"[glob] " + pattern
