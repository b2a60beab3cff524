# SPDX-License-Identifier: GPL-2.0-or-later
"""What the arguments of several verbs share, and where their results go."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from bootpress.output import to_target_error

Verb = Callable[[argparse.Namespace], int]


class AddVerb(Protocol):
    """Adds a verb to the command and returns its parser, for its arguments."""

    def __call__(
        self, name: str, verb: Verb, text: str, examples: str = ""
    ) -> argparse.ArgumentParser:
        """Add ``name``, which runs ``verb``."""


@contextmanager
def standard_output() -> Iterator[None]:
    """Flush what the block prints, and tell a full disk from a bug."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # What is still in the buffer would fail again, when Python closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise to_target_error(error, "standard output") from error


def add_jobs(to: argparse._ActionsContainer) -> None:
    """Add --jobs."""
    to.add_argument(
        "--jobs", type=parse_jobs, metavar="N", default=0, help="threads; default: one per CPU"
    )


def add_json(to: argparse._ActionsContainer) -> None:
    """Add --json."""
    to.add_argument("--json", action="store_true", help="print JSON")


def add_quiet(to: argparse._ActionsContainer) -> None:
    """Add --quiet."""
    to.add_argument("--quiet", action="store_true", help="print errors and warnings only")


def parse_size(text: str) -> int:
    """Return bytes for "4096", "128K", "64M", "1G" (powers of 1024)."""
    found = re.fullmatch(r"([0-9]{1,15})([KMGkmg]?)(?:i?B)?", text)
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size such as 128K, 64M or 1G")
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2].upper()]


def parse_jobs(text: str) -> int:
    """Return a number of threads from 1."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of threads from 1 to 1024")
    return int(text)


def parse_owner(text: str) -> tuple[int, int]:
    """Return (uid, gid) for "0:0"."""
    found = re.fullmatch(r"([0-9]{1,10}):([0-9]{1,10})", text)
    if not found:
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form UID:GID, such as 0:0")
    return int(found[1]), int(found[2])
