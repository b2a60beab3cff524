# SPDX-License-Identifier: GPL-2.0-or-later
"""What can go wrong, and the exit status of each kind.

One hierarchy: the message says what happened and to which path, the hint what to do about it.
Libraries raise these; only the command line turns them into an exit status. Status 1 is kept for
"they differ" (``diff``, ``verify --against``), so no error has it.

The native core looks its classes up here by name.
"""

import signal as _signal


class BootpressError(Exception):
    """Anything that bootpress reports in one line.

    Attributes:
        message: what happened, and to which path.
        hint: what to do about it, or None.
        exit_code: the command's exit status.
    """

    exit_code: int = 70  # EX_SOFTWARE of sysexits.h: only subclasses are raised

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or None

    def __str__(self) -> str:
        return self.message


class UsageError(BootpressError):
    """The caller asked for something impossible: an option's value, or options that clash."""

    exit_code = 2


class SourceError(BootpressError):
    """The input is missing, unreadable or damaged."""

    exit_code = 3


class NoSuchPathError(SourceError, KeyError):
    """An image holds no such path. Also a ``KeyError``, since an image reads like a mapping."""


class ChangedError(BootpressError):
    """A file changed between the moment it was gathered and the moment it was read."""

    exit_code = 4


class LimitError(BootpressError):
    """The tree holds something that the format cannot."""

    exit_code = 5


class TargetError(BootpressError):
    """The output cannot be written: a full disk, a read-only place, a directory in the way."""

    exit_code = 6


class CorruptError(BootpressError):
    """An image breaks the format, or its checksums do not match."""

    exit_code = 7


class UnsupportedError(BootpressError):
    """Valid, but nothing that this build can read."""

    exit_code = 8


class StaleSortListError(BootpressError):
    """A sort list names paths that the tree does not have.

    An error, since a stale list undoes the speed-up without a word.

    Attributes:
        missing: the paths (or patterns) that nothing in the tree matches, in list order.
    """

    exit_code = 9

    def __init__(
        self, message: str, *, hint: str | None = None, missing: tuple[bytes, ...] = ()
    ) -> None:
        super().__init__(message, hint=hint)
        self.missing = missing


class SortListError(BootpressError):
    """A sort list cannot be read, or cannot be expressed in the dialect asked for."""

    exit_code = 10


class TraceError(BootpressError):
    """A trace cannot be read: it is none, or damaged, or cut short."""

    exit_code = 11


class BootError(BootpressError):
    """A boot hung, panicked, or never signalled its end; the hint has the console's tail."""

    exit_code = 12


class MissingToolError(BootpressError):
    """A program that bootpress drives is not installed. The hint names the package."""

    exit_code = 13


class Interrupted(BootpressError):
    """The caller asked to stop: 130 for Ctrl-C, 143 for SIGTERM, as a shell would report them.

    Args:
        message: what was stopped.
        hint: what to do about it.
        signal: the signal's number.
    """

    exit_code = 130

    def __init__(
        self, message: str, *, hint: str | None = None, signal: int = _signal.SIGINT
    ) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = 128 + signal
