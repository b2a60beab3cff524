# SPDX-License-Identifier: GPL-2.0-or-later
"""Resolves a sort list against a tree: names become inodes."""

import re
from dataclasses import dataclass

from bootpress._core import Tree
from bootpress.errors import StaleSortListError
from bootpress.model import escape_name
from bootpress.sortlist import Reach, SortEntry, SortList

# How many missing names an error shows; the rest is a count.
NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Order:
    """A sort list in a tree's own terms.

    Attributes:
        hot: inode ids whose inodes and listings go first, in that order, each once.
        hot_data: those of ``hot`` whose data goes first as well, in the order of the data. The
            data of the others stays where it would be without the list.
        last: inode ids that go behind everything else, in their order, each once.
        stale: entries that nothing in the tree matches, in list order.
    """

    hot: tuple[int, ...] = ()
    hot_data: tuple[int, ...] = ()
    last: tuple[int, ...] = ()
    stale: tuple[bytes, ...] = ()


def resolve(tree: Tree, sort_list: SortList, *, allow_stale: bool = False) -> Order:
    """Return the inodes that a sort list names, in its order.

    A file with several names is placed by the first of them that the list has. Where several
    entries match one name, the list's dialect decides: mksquashfs takes the entry nearest to the
    name, gensquashfs the first, and bootpress' own lists the first (a file is first read once).
    Its data has a place of its own: all this once more, of the entries that are not
    ``metadata_only``.

    Raises:
        StaleSortListError: entries that nothing in the tree matches, unless ``allow_stale``; a
            stale list silently undoes the speed-up.
    """
    entries = sort_list.entries
    if all(entry.reach is Reach.EXACT for entry in entries):
        match = _match_paths
    elif sort_list.style == "mksquashfs":
        match = _match_nearest
    else:
        match = _match_first
    of_inodes, stale = match(tree, entries)
    if stale and not allow_stale:
        raise _stale_error(stale)
    of_data, _ = match(tree, tuple(entry for entry in entries if not entry.metadata_only))
    of_inodes.sort()
    of_data.sort()
    hot = dict.fromkeys(inode for rank, _, _, inode in of_inodes if rank < 0)
    hot_data = dict.fromkeys(inode for rank, _, _, inode in of_data if rank < 0)
    last = dict.fromkeys(inode for rank, _, _, inode in of_data if rank > 0)
    return Order(
        hot=tuple(hot),
        hot_data=tuple(hot_data),
        last=tuple(inode for inode in last if inode not in hot_data),
        stale=tuple(stale),
    )


# (rank, place in the list, place in the tree, inode)
_Ranked = list[tuple[int, int, int, int]]


def _match_paths(tree: Tree, entries: tuple[SortEntry, ...]) -> tuple[_Ranked, list[bytes]]:
    ranked: _Ranked = []
    stale: dict[bytes, None] = {}
    for place, entry in enumerate(entries):
        inode = tree.find(entry.path)
        if inode is None:
            stale.setdefault(entry.path)
        else:
            ranked.append((entry.rank, place, 0, inode))
    return ranked, list(stale)


def _match_nearest(tree: Tree, entries: tuple[SortEntry, ...]) -> tuple[_Ranked, list[bytes]]:
    by_path = {entry.path: place for place, entry in enumerate(entries)}
    ranked: _Ranked = []
    seen: set[int] = set()
    for index, (path, inode) in enumerate(tree.names()):
        nearest = path
        while nearest not in by_path and nearest:
            nearest = nearest[: max(nearest.rfind(b"/"), 0)]
        place = by_path.get(nearest)
        if place is not None:
            ranked.append((entries[place].rank, place, index, inode))
        if path in by_path:
            seen.add(by_path[path])
    return ranked, [entry.path for place, entry in enumerate(entries) if place not in seen]


def _match_first(tree: Tree, entries: tuple[SortEntry, ...]) -> tuple[_Ranked, list[bytes]]:
    exact: dict[bytes, int] = {}
    patterns: list[tuple[int, re.Pattern[bytes]]] = []
    for place, entry in enumerate(entries):
        if entry.reach is Reach.EXACT:
            exact.setdefault(entry.path, place)
        else:
            translated = translate_pattern(entry.path, cross=entry.reach is Reach.GLOB_ANY)
            patterns.append((place, re.compile(translated, re.DOTALL)))
    ranked: _Ranked = []
    seen: set[int] = set()
    for index, (path, inode) in enumerate(tree.names()):
        found = exact.get(path)
        for place, pattern in patterns:
            if found is not None and place > found:
                break
            if pattern.fullmatch(path):
                found = place
                break
        # An entry that an earlier one shadows still names something.
        if path in exact:
            seen.add(exact[path])
        if found is not None:
            seen.add(found)
            ranked.append((entries[found].rank, found, index, inode))
    shadowed = [
        place
        for place, pattern in patterns
        if place not in seen and any(pattern.fullmatch(path) for path, _ in tree.names())
    ]
    seen.update(shadowed)
    stale: dict[bytes, None] = {}
    for place, entry in enumerate(entries):
        first = exact.get(entry.path, place) if entry.reach is Reach.EXACT else place
        if first not in seen:
            stale.setdefault(entry.path)
    return ranked, list(stale)


def translate_pattern(pattern: bytes, *, cross: bool) -> bytes:
    r"""Return a regular expression for a shell pattern, as fnmatch(3) reads it.

    Args:
        pattern: ``*``, ``?``, ``[…]`` with ``!`` or ``^`` to negate, a backslash to escape.
        cross: wildcards match slashes (without FNM_PATHNAME).
    """
    other = b"." if cross else b"[^/]"
    out: list[bytes] = []
    at = 0
    while at < len(pattern):
        char = pattern[at : at + 1]
        at += 1
        if char == b"*":
            out.append(other + b"*")
        elif char == b"?":
            out.append(other)
        elif char == b"\\" and at < len(pattern):
            out.append(re.escape(pattern[at : at + 1]))
            at += 1
        elif char == b"[" and (found := re.compile(rb"([!^]?)(\]?[^]]*)\]").match(pattern, at)):
            at = found.end()
            negate, chosen = found[1], found[2]
            chosen = re.sub(rb"([\\\[\]&~|^])", rb"\\\1", chosen)
            guard = b"" if cross else b"(?!/)"
            out.append(guard + b"[" + (b"^" if negate else b"") + chosen + b"]")
        else:
            out.append(re.escape(char))
    return b"".join(out)


def _stale_error(stale: list[bytes]) -> StaleSortListError:
    shown = ", ".join(f"'{escape_name(path)}'" for path in stale[:NAMES_SHOWN])
    more = len(stale) - NAMES_SHOWN
    if more > 0:
        shown += f" and {more} more"
    entries = "1 entry" if len(stale) == 1 else f"{len(stale)} entries"
    return StaleSortListError(
        f"the sort list is stale: the tree has no match for {entries}: {shown}",
        hint="record a new list, or accept the rest of this one with --allow-stale",
        missing=tuple(stale),
    )
