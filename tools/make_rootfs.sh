#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Makes a real Debian root file system with mmdebstrap, once: a second call finds it there.
#   tools/make_rootfs.sh DIRECTORY [minbase|desktop]
# minbase: about 160 MiB, for the demo and the tests. desktop: well over 1 GiB, for the bench.
# Needs root (or sudo), for owners and device nodes.
set -eu
directory=$1 flavour=${2:-minbase}

[ ! -e "$directory.complete" ] || exit 0
case $flavour in
  minbase) set -- --variant=minbase ;;
  desktop)
    set -- --variant=important \
      --include=linux-image-amd64,xfce4,lightdm,network-manager,firefox-esr,gimp,libreoffice-writer
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
