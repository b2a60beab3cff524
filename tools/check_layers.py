# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks that C++ includes go downward only, and that only the bindings see Python.

python tools/check_layers.py ext
"""

import re
import sys
from pathlib import Path

# From the bottom; a folder may include itself and what stands before it. Folders of one step do
# not see each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("base",),
    ("squashfs",),  # the format's constants and records, no code that reads or writes
    ("codec",),
    ("tree",),
    ("image",),
    ("pack",),
    ("bindings",),
)
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
PYTHON_HEADERS = re.compile(r"^(pybind11/|Python\.h)")


def find_violations(root: Path) -> list[str]:
    """Return a line for every include of ``root`` that goes upward or sideways."""
    level = {folder: step for step, folders in enumerate(LAYERS) for folder in folders}
    found: list[str] = []
    for file in sorted(root.rglob("*.[ch]pp")):
        folder = file.relative_to(root).parts[0].removesuffix(".cpp")
        if folder not in level:
            found.append(f"{file}: folder '{folder}' is in no layer of tools/check_layers.py")
            continue
        for match in INCLUDE.finditer(file.read_text()):
            header = match[1] or match[2]
            line = file.read_text()[: match.start()].count("\n") + 1
            if PYTHON_HEADERS.match(header) and folder != "bindings":
                found.append(f"{file}:{line}: the core builds without Python's headers")
            if not match[1]:
                continue
            included = header.split("/")[0]
            same_file = "/" not in header
            if same_file or included not in level:
                found.append(f'{file}:{line}: "{header}" is not named from ext/')
            elif included != folder and level[included] >= level[folder]:
                found.append(f"{file}:{line}: {folder} includes {header}, which is not below it")
    return found


def main() -> int:
    """Print what is wrong; return the exit status."""
    violations = find_violations(Path(sys.argv[1] if len(sys.argv) > 1 else "ext"))
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
