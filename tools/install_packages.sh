#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Installs the Debian packages that the named groups need and the machine lacks.
#   tools/install_packages.sh build test lint sanitize
# The one list of system packages of this repository. Root, or sudo.
set -eu

list_packages() {
  case "$1" in
    build) # the native core and its Python module
      echo build-essential cmake ninja-build pkg-config python3-venv python3-dev
      echo libdeflate-dev libzstd-dev liblzma-dev liblz4-dev liblzo2-dev libxxhash-dev
      echo libarchive-dev
      ;;
    demo) # a root file system, and the kernel's mount
      echo mmdebstrap mount
      ;;
    test) # judges and sources of the tests
      echo libgtest-dev squashfs-tools squashfs-tools-ng mmdebstrap mount
      echo attr acl libcap2-bin libarchive-tools tar cpio gzip bzip2 xz-utils zstd lz4
      ;;
    vm)                       # boots: trace, measure, and the tests of them
      echo qemu-system-x86    # the machine, with SeaBIOS
      echo ovmf               # its UEFI firmware
      echo busybox-static     # the neutral initramfs is busybox and one script
      echo cpio               # packs it, as any user
      echo xorriso fdisk      # where an image lies in an ISO, or on a disk
      echo mmdebstrap mount   # what is booted
      ;;
    lint) echo clang-format-19 clang-tidy-19 shellcheck ;;
    sanitize) # and the fuzzer
      echo libgtest-dev clang-19 libclang-rt-19-dev
      ;;
    bench) # the packers of others, and the bare codec (built with the native tests)
      echo squashfs-tools squashfs-tools-ng mmdebstrap libgtest-dev
      ;;
    *)
      echo "install_packages.sh: no group '$1'" >&2
      exit 2
      ;;
  esac
}

missing=
for group in "$@"; do
  for package in $(list_packages "$group"); do
    case " $missing " in *" $package "*) continue ;; esac
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing="$missing $package"
  done
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
  as_root=sudo
  command -v sudo >/dev/null || {
    echo "install_packages.sh: run as root or install sudo, to get:$missing" >&2
    exit 1
  }
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -q
# shellcheck disable=SC2086 # a list of words
$as_root env DEBIAN_FRONTEND=noninteractive \
  apt-get install -q -y --no-install-recommends $missing
