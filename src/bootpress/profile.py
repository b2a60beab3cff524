# SPDX-License-Identifier: GPL-2.0-or-later
"""Media: how fast a thing that systems boot from reads, and how long it takes to get there.

Media are data, ``profiles/media/NAME.toml``, each figure with its source. Fields are those of
``Medium`` but ``name``, which is the file's; ``request_seconds`` may be left out.
"""

import os
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from bootpress.errors import SourceError, UsageError
from bootpress.model import AnyPath


@dataclass(frozen=True, slots=True)
class Medium:
    """How fast something reads.

    Attributes:
        name: what it is called on the command line.
        title: what it is called in a table.
        bandwidth: bytes a second, 0 for one that takes no time.
        access_seconds: what a read costs that does not begin where the one before it ended.
        request_seconds: what every read costs, sequential or not: a network's round trip.
        requests_per_second: reads a second at most, for QEMU's throttle, which cannot tell
            sequential ones from others; 0: no limit.
        source: where each figure comes from.
    """

    name: str
    title: str
    bandwidth: float
    access_seconds: float
    requests_per_second: float
    source: str
    request_seconds: float = 0.0

    def model_seconds(self, *, bytes_read: int, reads: int, jumps: int) -> float:
        """Return the seconds that reads take: transfer, access, and round trips.

        Args:
            bytes_read: bytes.
            reads: how many.
            jumps: how many of them did not begin where the one before it ended.
        """
        transfer = bytes_read / self.bandwidth if self.bandwidth else 0.0
        return transfer + jumps * self.access_seconds + reads * self.request_seconds


NO_MEDIUM = Medium(
    name="none",
    title="unthrottled",
    bandwidth=0.0,
    access_seconds=0.0,
    requests_per_second=0.0,
    source="A disk that takes no time: what is left is the machine's own.",
)


def list_media() -> tuple[str, ...]:
    """Return the names that ``load_medium`` knows, ascending, "none" last."""
    names = sorted(path.stem for path in _find_media().glob("*.toml"))
    return (*names, NO_MEDIUM.name)


def load_medium(name: AnyPath) -> Medium:
    """Return a medium by its name, or from a file (a name with a slash or ending in .toml).

    Raises:
        UsageError: no such name, or a file that describes no medium.
        SourceError: the file cannot be read.
    """
    text = os.fsdecode(name)
    if text == NO_MEDIUM.name:
        return NO_MEDIUM
    path = Path(text)
    if "/" not in text and path.suffix != ".toml":
        if text not in list_media():
            raise UsageError(
                f"unknown medium '{text}'",
                hint="choose one of " + ", ".join(list_media()) + ", or name a .toml file",
            )
        path = _find_media() / f"{text}.toml"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SourceError(f"cannot read medium {text}: {error.strerror}") from error
    try:
        table: dict[str, object] = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"medium {path}: {error}") from error
    return _check_medium(table, path)


def _find_media() -> Path:
    # Beside the module in an installed package, else the checkout's.
    for folder in (Path(__file__).parent, Path(__file__).resolve().parents[2]):
        if (folder / "profiles/media").is_dir():
            return folder / "profiles/media"
    raise SourceError(
        f"{Path(__file__).parent} has no profiles/media", hint="install bootpress again"
    )


def _check_medium(table: dict[str, object], path: Path) -> Medium:
    optional = {"request_seconds"}
    known = [field for field in fields(Medium) if field.name != "name"]
    for key in table.keys() - {field.name for field in known}:
        raise UsageError(f"medium {path}: unknown key '{key}'")
    texts: dict[str, str] = {}
    numbers: dict[str, float] = {}
    for field in known:
        value = table.get(field.name, 0.0 if field.name in optional else None)
        if field.type is str:
            if not isinstance(value, str) or not value.strip():
                raise UsageError(f"medium {path}: '{field.name}' is not a text")
            texts[field.name] = value.strip()
        elif (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or not 0 <= value < float("inf")
        ):
            raise UsageError(f"medium {path}: '{field.name}' is not a number from 0 up")
        else:
            numbers[field.name] = float(value)
    return Medium(
        name=path.stem,
        title=texts["title"],
        bandwidth=numbers["bandwidth"],
        access_seconds=numbers["access_seconds"],
        request_seconds=numbers["request_seconds"],
        requests_per_second=numbers["requests_per_second"],
        source=texts["source"],
    )
