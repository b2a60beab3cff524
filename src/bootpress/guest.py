# SPDX-License-Identifier: GPL-2.0-or-later
"""What a bare image needs to boot: its kernel, and a neutral initramfs made for it.

The initramfs holds a static busybox, the modules that the medium and the overlay need, and the
scripts in ``initramfs/``, which say what they do and which options they take.
"""

import lzma
import os
import re
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import zstandard

from bootpress.errors import BootError, MissingToolError, SourceError
from bootpress.image import Image
from bootpress.model import AnyPath
from bootpress.proc import PACKAGES, find_program, run_program

SCRIPTS = Path(__file__).with_name("initramfs")

# What the scripts call; each is a link to busybox, which is all of them.
APPLETS = (
    *("cat", "chmod", "chown", "cp", "insmod", "ln", "losetup", "mkdir", "mount"),
    *("poweroff", "sh", "sleep", "stat", "switch_root"),
)

# Every boot: the image through a loop device under an overlay, on a virtio disk.
BASE_MODULES = ("virtio_pci", "virtio_blk", "virtio_console", "loop", "squashfs", "overlay")
# By what the image comes on. The virtual machine's controllers and those of most real ones.
BUS_MODULES = {
    "virtio": (),
    "cd": ("sr_mod", "ahci", "ata_piix", "isofs"),
    "usb": ("sd_mod", "usb_storage", "uas", "xhci_pci", "ehci_pci", "isofs"),
}

# The x86 boot protocol (Documentation/arch/x86/boot.rst): the magic, and where the release's text
# is, counted from 0x200.
HEADER_MAGIC = slice(0x202, 0x206)
HEADER_VERSION = 0x20E


@dataclass(frozen=True, slots=True)
class Kernel:
    """A Linux kernel and its modules.

    Attributes:
        release: "6.1.0-18-amd64".
        program: the bzImage.
        read_module_file: returns a file of its modules' directory, or None where there is none.
    """

    release: str
    program: bytes
    read_module_file: Callable[[str], bytes | None]


def find_kernel(image: Image, *, kernel: AnyPath | None = None) -> Kernel:
    """Return the newest kernel in an image, or the given one, with its modules.

    Args:
        image: where kernel and modules are looked for.
        kernel: a bzImage instead. Its modules are the image's; failing that, those of the tree
            that it lies in (``TREE/boot/vmlinuz`` has ``TREE/lib/modules``).

    Raises:
        BootError: the image has no kernel.
        SourceError: the given one cannot be read, or is none.
    """
    if kernel is None:
        return _find_own_kernel(image)
    path = Path(os.fsdecode(kernel))
    try:
        program = path.read_bytes()
    except OSError as error:
        raise SourceError(f"cannot read kernel {path}: {error.strerror}") from error
    release = read_release(program)
    if release is None:
        raise SourceError(f"{path} is no kernel", hint="a bzImage is wanted, as /boot/vmlinuz is")
    if (inside := _find_modules(image, release)) is not None:
        return Kernel(release, program, inside)
    beside = path.resolve().parent.parent / "lib/modules" / release
    return Kernel(release, program, lambda name: _read_if_there(beside / name))


def read_release(program: bytes) -> str | None:
    """Return the release that a bzImage says it is, or None where it is none."""
    if program[HEADER_MAGIC] != b"HdrS":
        return None
    (pointer,) = struct.unpack_from("<H", program, HEADER_VERSION)
    text = program[pointer + 0x200 :][:256].partition(b"\0")[0].split()
    return text[0].decode("ascii", "replace") if pointer and text else None


def _find_own_kernel(image: Image) -> Kernel:
    names = [
        *_list_directory(image, "boot", r"vmlinuz-.+"),
        *_list_directory(image, "usr/lib/modules", r"[^/]+/vmlinuz"),
        *_list_directory(image, "lib/modules", r"[^/]+/vmlinuz"),
    ]
    for name in sorted(names, key=_version_key, reverse=True):
        program = image.read(name)
        release = read_release(program)
        if release is not None and (modules := _find_modules(image, release)) is not None:
            return Kernel(release, program, modules)
    raise BootError(
        f"{image.path} holds no kernel with its modules",
        hint="give one: --kernel /boot/vmlinuz-RELEASE",
    )


def _list_directory(image: Image, directory: str, pattern: str) -> list[str]:
    """Return the regular files below a directory whose path from there matches, if it is one."""
    if directory not in image or image.stat(directory).type != "directory":
        return []
    return [
        entry.path
        for entry in image.walk(directory)
        if re.fullmatch(pattern, entry.path.removeprefix(f"{directory}/"))
        and entry.stat.type == "file"
    ]


def _version_key(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts numbers in names as numbers: 6.1.0-9 before 6.1.0-18."""
    parts = re.split(r"(\d+)", name.rpartition("vmlinuz-")[2])
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _find_modules(image: Image, release: str) -> Callable[[str], bytes | None] | None:
    for top in ("usr/lib/modules", "lib/modules"):
        directory = f"{top}/{release}"
        if f"{directory}/modules.dep" in image:

            def read_inside(name: str, directory: str = directory) -> bytes | None:
                path = f"{directory}/{name}"
                return image.read(path) if path in image else None

            return read_inside
    return None


def _read_if_there(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}") from error


def order_modules(kernel: Kernel, wanted: Iterable[str]) -> tuple[str, ...]:
    """Return the files of modules and of what they need, in the order to load them.

    Those that the kernel has built in are left out, and so are those that it does not have at
    all: whether they are missed depends on the machine.

    Args:
        kernel: whose.
        wanted: names; "-" and "_" are the same.

    Returns:
        Paths below the modules' directory, as modules.dep(5) has them.

    Raises:
        BootError: the kernel has no list of its modules.
    """
    listing = kernel.read_module_file("modules.dep")
    if listing is None:
        raise BootError(
            f"no modules of kernel {kernel.release} (lib/modules/{kernel.release}/modules.dep)",
            hint="pack the kernel's modules into the image, or give another --kernel",
        )
    needs: dict[str, tuple[str, ...]] = {}
    for line in listing.decode("utf-8", "replace").splitlines():
        name, _, rest = line.partition(":")
        # The module that is needed first stands last.
        needs[name] = tuple(reversed(rest.split()))
    by_name = {_module_name(path): path for path in needs}
    order: dict[str, None] = {}
    for name in wanted:
        path = by_name.get(name.replace("-", "_"))
        if path is not None:
            order.update(dict.fromkeys((*needs[path], path)))
    return tuple(order)


def _module_name(path: str) -> str:
    return path.rpartition("/")[2].partition(".ko")[0].replace("-", "_")


def _read_module(kernel: Kernel, path: str) -> bytes:
    content = kernel.read_module_file(path)
    if content is None:
        raise BootError(f"modules.dep of {kernel.release} names {path}, which is not there")
    try:
        if path.endswith(".zst"):
            return zstandard.ZstdDecompressor().stream_reader(content).read()
        if path.endswith(".xz"):
            return lzma.decompress(content)
        if path.endswith(".gz"):
            return zlib.decompress(content, wbits=31)
    except (zstandard.ZstdError, lzma.LZMAError, zlib.error) as error:
        raise BootError(f"module {path} of {kernel.release} is damaged: {error}") from error
    return content


def make_initramfs(
    kernel: Kernel, target: Path, *, buses: Sequence[str] = ("virtio",)
) -> tuple[str, ...]:
    """Make the neutral initramfs for a kernel; the same input gives the same bytes.

    Args:
        kernel: whose modules go in.
        target: the file to write, an uncompressed cpio archive.
        buses: what the image may come on; see ``BUS_MODULES``.

    Returns:
        The files of the modules in it.

    Raises:
        MissingToolError: busybox or cpio is not installed, or busybox is not the static one.
        BootError: a module is missing or damaged.
    """
    wanted = [*BASE_MODULES, *(name for bus in buses for name in BUS_MODULES[bus])]
    modules = order_modules(kernel, wanted)
    with tempfile.TemporaryDirectory(prefix="bootpress-") as name:
        root = Path(name)
        (root / "bin").mkdir()
        (root / "modules").mkdir()
        for script in sorted(SCRIPTS.iterdir()):
            _add_file(root / script.name, script.read_bytes())
        _add_file(root / "bin/busybox", _read_busybox())
        for applet in APPLETS:
            (root / "bin" / applet).symlink_to("busybox")
        for path in modules:
            _add_file(root / "modules" / f"{_module_name(path)}.ko", _read_module(kernel, path))
        order = "".join(f"{_module_name(path)}.ko\n" for path in modules)
        _add_file(root / "modules/order", order.encode())
        _pack_cpio(root, target)
    return modules


def _add_file(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o755)


def _read_busybox() -> bytes:
    program = Path(find_program("busybox")).read_bytes()
    if _has_interpreter(program):
        raise MissingToolError(
            "busybox is not the static one, which an initramfs needs",
            hint=f"apt-get install {PACKAGES['busybox']}",
        )
    return program


def _has_interpreter(program: bytes) -> bool:
    """Tell whether an ELF program of 64 bits needs a dynamic linker (elf(5): PT_INTERP is 3)."""
    (start,) = struct.unpack_from("<Q", program, 32)
    size, count = struct.unpack_from("<HH", program, 54)
    kinds = (struct.unpack_from("<I", program, start + n * size)[0] for n in range(count))
    return 3 in kinds


def _pack_cpio(root: Path, target: Path) -> None:
    paths = sorted(root.rglob("*"))
    for path in paths:
        os.utime(path, (0, 0), follow_symlinks=False)
    names = b"".join(os.fsencode(path.relative_to(root)) + b"\0" for path in paths)
    archive = run_program(
        ["cpio", "--quiet", "-o", "-0", "-H", "newc", "--reproducible", "-R", "0:0"],
        error=BootError,
        stdin=names,
        directory=root,
    )
    target.write_bytes(archive)
