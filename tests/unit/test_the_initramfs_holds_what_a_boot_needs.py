# SPDX-License-Identifier: GPL-2.0-or-later
"""The neutral initramfs: kernels and modules are found, ordered, decompressed, packed alike."""

import gzip
import lzma
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
import zstandard

from bootpress import Image, pack
from bootpress.errors import BootError, MissingToolError, SourceError
from bootpress.guest import Kernel, find_kernel, make_initramfs, order_modules, read_release
from judges import need

# As modules.dep(5) has it: what is needed first stands last.
DEPENDENCIES = """\
kernel/drivers/virtio/virtio.ko: kernel/drivers/virtio/virtio_ring.ko
kernel/drivers/virtio/virtio_ring.ko:
kernel/drivers/virtio/virtio_pci.ko: kernel/drivers/virtio/virtio.ko \
kernel/drivers/virtio/virtio_ring.ko
kernel/drivers/block/virtio_blk.ko.zst: kernel/drivers/virtio/virtio.ko \
kernel/drivers/virtio/virtio_ring.ko
kernel/drivers/block/loop.ko.xz:
kernel/fs/squashfs/squashfs.ko.gz:
kernel/drivers/usb/storage/usb-storage.ko: kernel/drivers/scsi/scsi_mod.ko
kernel/drivers/scsi/scsi_mod.ko:
"""


def make_kernel(files: Mapping[str, bytes]) -> Kernel:
    return Kernel("6.1.0-test", b"", files.get)


def make_program(release: str) -> bytes:
    """Return the beginning of a bzImage: the magic, and where the release's text is."""
    header = bytearray(0x400)
    header[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", header, 0x20E, 0x100)
    text = f"{release} (someone@somewhere) #1 SMP".encode() + b"\0"
    return bytes(header[:0x300]) + text


def test_modules_come_after_what_they_need() -> None:
    kernel = make_kernel({"modules.dep": DEPENDENCIES.encode()})
    order = [Path(path).name for path in order_modules(kernel, ["virtio_pci", "virtio_blk"])]
    assert order == ["virtio_ring.ko", "virtio.ko", "virtio_pci.ko", "virtio_blk.ko.zst"]


def test_names_with_dashes_are_names_with_underscores() -> None:
    kernel = make_kernel({"modules.dep": DEPENDENCIES.encode()})
    order = [Path(path).name for path in order_modules(kernel, ["usb_storage"])]
    assert order == ["scsi_mod.ko", "usb-storage.ko"]


def test_what_is_built_in_is_not_looked_for() -> None:
    kernel = make_kernel({"modules.dep": b""})
    assert order_modules(kernel, ["overlay", "squashfs"]) == ()


def test_a_kernel_without_its_modules() -> None:
    with pytest.raises(BootError, match=r"no modules of kernel 6\.1\.0-test"):
        order_modules(make_kernel({}), ["loop"])


def make_module_files() -> dict[str, bytes]:
    return {
        "modules.dep": DEPENDENCIES.encode(),
        "kernel/drivers/virtio/virtio.ko": b"virtio",
        "kernel/drivers/virtio/virtio_ring.ko": b"ring",
        "kernel/drivers/virtio/virtio_pci.ko": b"pci",
        "kernel/drivers/block/virtio_blk.ko.zst": zstandard.compress(b"block"),
        "kernel/drivers/block/loop.ko.xz": lzma.compress(b"loop"),
        "kernel/fs/squashfs/squashfs.ko.gz": gzip.compress(b"squashfs"),
    }


def test_the_archive_holds_decompressed_modules_and_is_always_the_same(tmp_path: Path) -> None:
    need("busybox", "cpio")
    kernel = make_kernel(make_module_files())
    make_initramfs(kernel, tmp_path / "one")
    make_initramfs(kernel, tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    (tmp_path / "root").mkdir()
    # GNU cpio is the judge of its own format.
    with (tmp_path / "one").open("rb") as archive:
        subprocess.run(
            ["cpio", "--quiet", "-id", "--no-absolute-filenames"],
            stdin=archive,
            cwd=tmp_path / "root",
            check=True,
        )
    root = tmp_path / "root"
    assert (root / "modules/order").read_text().split() == [
        *("virtio_ring.ko", "virtio.ko", "virtio_pci.ko", "virtio_blk.ko"),
        *("loop.ko", "squashfs.ko"),
    ]
    assert (root / "modules/virtio_blk.ko").read_bytes() == b"block"
    assert (root / "modules/loop.ko").read_bytes() == b"loop"
    assert (root / "modules/squashfs.ko").read_bytes() == b"squashfs"
    assert (root / "init").stat().st_mode & 0o777 == 0o755
    # The shell that is to run it reads it.
    for script in ("init", "functions.sh", "send_trace.sh"):
        subprocess.run([root / "bin/busybox", "sh", "-n", root / script], check=True)


def test_every_program_that_the_scripts_call_is_there(tmp_path: Path) -> None:
    need("busybox", "cpio")
    make_initramfs(make_kernel(make_module_files()), tmp_path / "archive")
    listing = subprocess.run(
        ["cpio", "--quiet", "-t"],
        input=(tmp_path / "archive").read_bytes(),
        capture_output=True,
        check=True,
    ).stdout.split()
    for name in (b"insmod", b"losetup", b"mount", b"poweroff", b"switch_root", b"sh"):
        assert b"bin/" + name in listing


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("kernel/drivers/block/virtio_blk.ko.zst", b"no zstd"),
        ("kernel/drivers/block/loop.ko.xz", b"no xz"),
        ("kernel/fs/squashfs/squashfs.ko.gz", gzip.compress(b"squashfs")[:-9]),
    ],
)
def test_a_damaged_module_is_named(path: str, content: bytes, tmp_path: Path) -> None:
    need("busybox", "cpio")
    kernel = make_kernel({**make_module_files(), path: content})
    with pytest.raises(BootError, match=f"module {path} of 6.1.0-test is damaged"):
        make_initramfs(kernel, tmp_path / "archive")


def test_a_module_that_is_listed_and_missing_is_named(tmp_path: Path) -> None:
    need("busybox", "cpio")
    files = make_module_files()
    del files["kernel/drivers/block/loop.ko.xz"]
    with pytest.raises(BootError, match=r"names kernel/drivers/block/loop\.ko\.xz"):
        make_initramfs(make_kernel(files), tmp_path / "archive")


def test_a_busybox_that_is_not_static(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "busybox").symlink_to("/bin/ls")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError, match="not the static one") as caught:
        make_initramfs(make_kernel(make_module_files()), tmp_path / "archive")
    assert "busybox-static" in (caught.value.hint or "")


def test_the_newest_kernel_of_an_image_by_its_numbers(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "boot").mkdir(parents=True)
    for release in ("6.1.0-9-amd64", "6.1.0-18-amd64", "6.1.0-9-rt-amd64"):
        (root / f"boot/vmlinuz-{release}").write_bytes(make_program(release))
        modules = root / "usr/lib/modules" / release
        modules.mkdir(parents=True)
        (modules / "modules.dep").write_text(f"of-{release}.ko:\n")
    (root / "lib").symlink_to("usr/lib")
    pack(root, tmp_path / "image")
    kernel = find_kernel(Image(tmp_path / "image"))
    assert kernel.release == "6.1.0-18-amd64"
    assert kernel.read_module_file("modules.dep") == b"of-6.1.0-18-amd64.ko:\n"
    assert kernel.read_module_file("modules.alias") is None


def test_a_given_kernel_takes_its_modules_from_the_image_or_its_own_tree(
    small: Path, tmp_path: Path
) -> None:
    pack(small, tmp_path / "image")
    tree = tmp_path / "tree"
    (tree / "boot").mkdir(parents=True)
    (tree / "boot/vmlinuz").write_bytes(make_program("6.9"))
    (tree / "lib/modules/6.9").mkdir(parents=True)
    (tree / "lib/modules/6.9/modules.dep").write_bytes(b"loop.ko:\n")
    kernel = find_kernel(Image(tmp_path / "image"), kernel=tree / "boot/vmlinuz")
    assert kernel.release == "6.9"
    assert order_modules(kernel, ["loop"]) == ("loop.ko",)


def test_what_is_no_kernel(small: Path, tmp_path: Path) -> None:
    pack(small, tmp_path / "image")
    image = Image(tmp_path / "image")
    with pytest.raises(SourceError, match="is no kernel"):
        find_kernel(image, kernel=small / "usr/bin/tool")
    with pytest.raises(SourceError, match="cannot read kernel"):
        find_kernel(image, kernel=small / "nothing")
    assert read_release(b"") is None
