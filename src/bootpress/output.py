# SPDX-License-Identifier: GPL-2.0-or-later
"""A file that is there whole or not at all. (Images are written so by the core itself.)"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from bootpress.errors import TargetError


def check_target(target: Path) -> None:
    """Refuse a file that cannot be written anyway, before work is spent on it.

    Raises:
        TargetError: it is a directory, or its own directory is not there.
    """
    if target.is_dir():
        raise TargetError(f"cannot write {target}: it is a directory", hint="name a file in it")
    if not target.parent.is_dir():
        raise TargetError(
            f"cannot write {target}: No such file or directory",
            hint=f"make the directory {target.parent} first",
        )


@contextmanager
def open_whole(target: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside ``target``; flush and rename it when the block succeeds.

    Raises:
        TargetError: it cannot be made or written. Nothing stays behind then, or where the block
            raises anything else.
    """
    if target.is_dir():
        raise TargetError(f"cannot write {target}: it is a directory", hint="name a file in it")
    partial = target.with_name(f".{target.name[:200]}.{os.getpid()}.part")
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise to_target_error(error, str(target)) from error
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_text(target: Path, text: str) -> None:
    """Write a text file, whole or not at all. Raises TargetError."""
    with open_whole(target) as file:
        file.write(text.encode())


def to_target_error(error: OSError, name: str) -> TargetError:
    """Return the error for output that could not be written."""
    hints = {
        "ENOSPC": "make room there, or write to another file system",
        "EDQUOT": "make room there, or write to another file system",
        "EROFS": "write to another file system",
        "EACCES": "write to a directory that you own",
        "ENOENT": "make the directory first",
    }
    code = os.strerror(error.errno) if error.errno else str(error)
    return TargetError(
        f"cannot write {name}: {code}", hint=hints.get(errno.errorcode.get(error.errno or 0, ""))
    )
