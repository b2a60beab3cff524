#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Makes a small real Debian root file system with mmdebstrap, once: a second call finds it there.
#   tools/make_rootfs.sh DIRECTORY [SUITE]
# Needs root, for owners and device nodes.
set -eu
directory=$1 suite=${2:-bookworm}

[ ! -e "$directory.complete" ] || exit 0
rm -rf "$directory"
mkdir -p "$(dirname "$directory")"
mmdebstrap --quiet --variant=minbase "$suite" "$directory" >&2
touch "$directory.complete"
