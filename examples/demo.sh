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
rootfs=$BUILD/rootfs/bookworm
image=$BUILD/demo/root.squashfs
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
"$tools/make_rootfs.sh" "$rootfs"

# 2. Pack it.
echo "== bootpress pack $rootfs $image"
"$BOOTPRESS" pack "$rootfs" "$image" --report "$BUILD/demo/report.json"

# 3. Mount it through the kernel, and let the kernel's view stand against the directory. The
#    comparison is a walk with system calls only; it shares no code with bootpress.
echo "== mount -o loop,ro $image"
mount -t squashfs -o loop,ro "$image" "$mountpoint"
mounted=yes
"$PYTHON" "$tools/compare_trees.py" "$rootfs" "$mountpoint"

echo "== the kernel shows what was packed; the report as JSON: $BUILD/demo/report.json"
