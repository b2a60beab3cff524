#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Packs a small real Debian, mounts the image through the kernel and compares every file.
# `make demo` calls this. Root (or sudo), for mmdebstrap's owners and for the mount.
set -euo pipefail

BUILD=${BUILD:-build}
BOOTPRESS=${BOOTPRESS:-bootpress}
PYTHON=${PYTHON:-python3}

if [ "$(id -u)" != 0 ]; then
  exec sudo env BUILD="$BUILD" BOOTPRESS="$BOOTPRESS" PYTHON="$PYTHON" "$0"
fi

tools=$(dirname "$0")/../tools
rootfs=$BUILD/rootfs/boot
image=$BUILD/demo/root.squashfs
tuned=$BUILD/demo/tuned.squashfs
mountpoint=$BUILD/demo/mounted
mkdir -p "$BUILD/demo" "$mountpoint"

mounted=
clean_up() {
  if [ -n "$mounted" ]; then
    umount "$mountpoint"
  fi
}
trap clean_up EXIT

# 1. A root file system, kept for the next run.
echo "== a root file system from mmdebstrap, in $rootfs"
"$tools/make_rootfs.sh" "$rootfs" boot

# 2. Pack it.
echo "== bootpress pack $rootfs $image"
"$BOOTPRESS" pack "$rootfs" "$image" --report "$BUILD/demo/report.json"

# 3. Mount it through the kernel, and let the kernel's view stand against the directory. The
#    comparison is a walk with system calls only; it shares no code with bootpress.
echo "== mount -o loop,ro $image"
mount -t squashfs -o loop,ro "$image" "$mountpoint"
mounted=yes
"$PYTHON" "$tools/compare_trees.py" "$rootfs" "$mountpoint"

umount "$mountpoint"
mounted=
echo "== the kernel shows what was packed; the report as JSON: $BUILD/demo/report.json"

# 4. Boot it once and record what the boot reads, from the mount in the initramfs to its end.
echo "== bootpress trace $image"
"$BOOTPRESS" trace "$image" -o "$BUILD/demo/boot.trace"

# 5. The order of those reads.
echo "== bootpress order $BUILD/demo/boot.trace"
"$BOOTPRESS" order "$BUILD/demo/boot.trace" -o "$BUILD/demo/boot.sort" --image "$image"

# 6. Lay the image out in that order. The compressed blocks are copied; the tree stays the same.
echo "== bootpress repack $image $tuned"
"$BOOTPRESS" repack "$image" "$tuned" --sort-list "$BUILD/demo/boot.sort"
"$BOOTPRESS" diff "$image" "$tuned"

# 7. What it is worth: exactly, by the model, and in wall seconds of one boot each.
echo "== bootpress simulate: the same boot from a CD"
"$BOOTPRESS" simulate "$BUILD/demo/boot.trace" "$image" "$tuned" --medium cd
echo "== bootpress measure: booted from a disk as slow as a CD"
"$BOOTPRESS" measure "$image" "$tuned" --medium cd --runs 1
