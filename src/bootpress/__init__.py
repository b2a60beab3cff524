# SPDX-License-Identifier: GPL-2.0-or-later
"""bootpress: live media that boot in the order they are read.

The public API: ``pack``, ``unpack``, ``verify`` and ``diff`` are what the command's verbs do;
``Image`` reads an image like a mapping; ``SortList`` says which files come first. Errors are in
``bootpress.errors``, every one a ``BootpressError`` with a message, a hint and an exit status.
"""

from bootpress.errors import BootpressError
from bootpress.image import Entry, Image
from bootpress.model import (
    Difference,
    Extent,
    FileLayout,
    Loss,
    PackOptions,
    PackReport,
    RepackOptions,
    Stat,
    UnpackReport,
    VerifyReport,
)
from bootpress.sortlist import SortList, format_sort_list, parse_sort_list
from bootpress.workflow import diff, pack, repack, unpack, unpack_to_tar, verify

__version__ = "0.1.0"

__all__ = [
    "BootpressError",
    "Difference",
    "Entry",
    "Extent",
    "FileLayout",
    "Image",
    "Loss",
    "PackOptions",
    "PackReport",
    "RepackOptions",
    "SortList",
    "Stat",
    "UnpackReport",
    "VerifyReport",
    "__version__",
    "diff",
    "format_sort_list",
    "pack",
    "parse_sort_list",
    "repack",
    "unpack",
    "unpack_to_tar",
    "verify",
]
