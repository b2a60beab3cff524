#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Makes a real Debian root file system with mmdebstrap, once: a second call finds it there.
#   tools/make_rootfs.sh DIRECTORY [minimal|desktop]
# minimal: about 110 MB, for the demo and the tests. desktop: Xfce, Firefox and a kernel, about
# 1.3 GB in 32,000 files, for the bench. Needs root, for owners and device nodes.
set -eu
directory=$1 flavour=${2:-minimal}

[ ! -e "$directory.complete" ] || exit 0
rm -rf "$directory"
mkdir -p "$(dirname "$directory")"
case $flavour in
  minimal) set -- --variant=minbase ;;
  desktop)
    set -- --variant=important --include=linux-image-amd64,systemd-sysv,dbus,openssh-server \
      --include=python3,network-manager,lightdm,xfce4,firefox-esr
    ;;
  *) echo "unknown flavour '$flavour': minimal or desktop" >&2 && exit 2 ;;
esac
mmdebstrap --quiet "$@" bookworm "$directory" >&2
touch "$directory.complete"
