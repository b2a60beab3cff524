#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Makes a real Debian root file system with mmdebstrap, once: a second call finds it there.
#   tools/make_rootfs.sh DIRECTORY [minbase|boot|desktop]
# minbase: about 160 MiB, for the demo and the tests. boot: one that boots in a
# virtual machine, with systemd, ssh, python and the cloud kernel (virtio only, a
# tenth of the generic one). desktop: Xfce, Firefox and a kernel, 1.3 GB in 32,000
# files, for the bench.
# Needs root (or sudo), for owners and device nodes.
set -eu
directory=$1 flavour=${2:-minbase}

[ ! -e "$directory.complete" ] || exit 0
case $flavour in
  minbase) set -- --variant=minbase ;;
  boot)
    set -- --variant=minbase --include=systemd-sysv,udev,kmod,dbus,libpam-systemd \
      --include=linux-image-cloud-amd64,openssh-server,python3
    ;;
  desktop)
    set -- --variant=important --include=linux-image-amd64,systemd-sysv,dbus,openssh-server \
      --include=python3,network-manager,lightdm,xfce4,firefox-esr
    ;;
  *)
    echo "make_rootfs.sh: no flavour '$flavour'" >&2
    exit 2
    ;;
esac
as_root=
[ "$(id -u)" = 0 ] || as_root=sudo
$as_root rm -rf "$directory"
mkdir -p "$(dirname "$directory")"
$as_root mmdebstrap --quiet "$@" bookworm "$directory" >&2
touch "$directory.complete"
