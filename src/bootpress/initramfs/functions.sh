#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# What an initramfs does, one function each, in the order of their use. busybox' ash runs them.
# A step that fails says what it was about on the console and ends the machine: nobody sits there.

# The host listens at these virtio-serial ports, where there is one.
signal_name=org.bootpress.signal
trace_name=org.bootpress.trace

# Where things lie before the image's own tree takes over.
image=/image         # the image, read only
overlay=/overlay     # a tmpfs for what is written over it
new_root=/new_root   # both together: what becomes the root
kept=/kept           # a tmpfs that outlives switch_root, out of the new root's sight

say() { echo "bootpress: $*" > /dev/console; }

# Tells the host a line, where a host listens.
tell() { if [ -n "$signal_port" ]; then echo "$*" > "$signal_port"; fi; }

fail() {
  say "$*"
  tell "failed $*"
  # With panic=-1 and -no-reboot either way ends the machine; a real one stays off.
  poweroff -f
}

mount_kernel_filesystems() {
  mkdir -p /proc /sys /dev /run "$image" "$overlay" "$new_root" "$kept"
  mount -t proc -o nosuid,nodev,noexec proc /proc
  mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
  mount -t devtmpfs -o nosuid,mode=0755 devtmpfs /dev
  # Not noexec: the program that signals the boot's end runs from here.
  mount -t tmpfs -o nosuid,nodev,mode=0755 tmpfs /run
}

# Sets one variable for each of these words of the kernel's command line:
#   bootpress.attach=loop|direct   mount the image through a loop device, or the device itself
#   bootpress.device=/dev/vda      the block device that holds it
#   bootpress.offset=0             bytes before it there; only through a loop device
#   bootpress.ports=no|yes         whether a host listens at virtio-serial ports
#   bootpress.trace=none|pages|metadata   record page-cache events; accesses to metadata as well
#   bootpress.buffer=32            MiB per CPU to record into
#   bootpress.until=TARGET         the systemd unit whose start is the boot's end; "" for none
#   init=/sbin/init                what runs as the image's first process
read_options() {
  signal_port=''
  attach=loop device=/dev/vda offset=0 ports=no trace=none buffer=32 until='' init=/sbin/init
  read -r words < /proc/cmdline
  set -f # words are no patterns
  for word in $words; do
    value=${word#*=}
    case $word in
      bootpress.attach=*) attach=$value ;;
      bootpress.device=*) device=$value ;;
      bootpress.offset=*) offset=$value ;;
      bootpress.ports=*) ports=$value ;;
      bootpress.trace=*) trace=$value ;;
      bootpress.buffer=*) buffer=$value ;;
      bootpress.until=*) until=$value ;;
      bootpress.*) fail "no such option on the kernel's command line: $word" ;;
      init=*) init=$value ;;
    esac
  done
  set +f
  case $attach in loop | direct) ;; *) fail "bootpress.attach is loop or direct, not $attach" ;; esac
  case $ports in no | yes) ;; *) fail "bootpress.ports is no or yes, not $ports" ;; esac
  case $trace in
    none | pages | metadata) ;;
    *) fail "bootpress.trace is none, pages or metadata, not $trace" ;;
  esac
  case $offset in '' | *[!0-9]*) fail "bootpress.offset is a number of bytes, not $offset" ;; esac
  case $buffer in '' | *[!0-9]*) fail "bootpress.buffer is a number of MiB, not $buffer" ;; esac
  if [ "$attach" = direct ] && [ "$offset" != 0 ]; then
    fail "bootpress.attach=direct mounts a whole device: it takes no bootpress.offset"
  fi
}

# Modules lie in the order in which they need each other. One that finds no hardware is no fault;
# what was needed and is missing shows at the step that needs it.
load_modules() {
  while read -r module; do
    insmod "/modules/$module" || say "cannot load $module"
  done < /modules/order
}

# Finds the host's ports by their names, which come a moment after their driver.
find_ports() {
  trace_port=''
  if [ "$ports" = no ]; then return; fi
  tenths=100
  while [ -z "$signal_port" ] || [ -z "$trace_port" ]; do
    tenths=$((tenths - 1))
    if [ "$tenths" = 0 ]; then fail "no ports $signal_name and $trace_name after 10 seconds"; fi
    for port in /sys/class/virtio-ports/*; do
      case $(cat "$port/name" 2> /dev/null) in
        "$signal_name") signal_port=/dev/${port##*/} ;;
        "$trace_name") trace_port=/dev/${port##*/} ;;
      esac
    done
    if [ -z "$signal_port" ] || [ -z "$trace_port" ]; then sleep 0.1; fi
  done
}

wait_for_device() {
  tenths=100
  until [ -b "$device" ]; do
    tenths=$((tenths - 1))
    if [ "$tenths" = 0 ]; then fail "no $device after 10 seconds"; fi
    sleep 0.1
  done
}

# Prints the number that trace filters know a block device by (MKDEV of linux/kdev_t.h).
print_device_number() {
  IFS=: read -r major minor < "/sys/class/block/${1##*/}/dev"
  echo $(((major << 20) | minor))
}

# Records what the image's mount and everything after it reads, into the kernel's own buffer.
# A process stays behind, in the initramfs' root, that sends the buffer when the host asks for it:
# so any end of the boot will do, and the image needs nothing for it.
start_trace() {
  if [ "$trace" = none ]; then return; fi
  if [ -z "$trace_port" ]; then fail "bootpress.trace=$trace needs bootpress.ports=yes"; fi
  wait_for_device
  traced=$device
  if [ "$attach" = loop ]; then traced=/dev/loop0; fi
  number=$(print_device_number "$traced")

  mount -t tmpfs -o nosuid,nodev,mode=0700 tmpfs "$kept"
  mkdir "$kept/tracing"
  mount -t tracefs tracefs "$kept/tracing" || fail "this kernel has no tracefs"
  events=$kept/tracing/events
  echo mono > "$kept/tracing/trace_clock"
  # The first events are what counts: rather stop than write over them.
  echo 0 > "$kept/tracing/options/overwrite"
  echo $((buffer * 1024)) > "$kept/tracing/buffer_size_kb" \
    || fail "no $buffer MiB per CPU to record into"
  pages=$events/filemap/mm_filemap_add_to_page_cache
  echo "s_dev == $number" > "$pages/filter" || fail "this kernel has no filemap events"
  echo 1 > "$pages/enable"
  if [ "$trace" = metadata ]; then trace_metadata; fi
  cp /bin/busybox /send_trace.sh "$kept"
  # One opening for both directions: a port has room for one.
  "$kept/busybox" sh "$kept/send_trace.sh" "$kept" 0<> "$trace_port" 1>&0 &
  echo "bootpress begin" > "$kept/tracing/trace_marker"
}

# One event for every look at metadata, cached or not: squashfs_read_metadata(sb, buffer, *block,
# *offset, length) of fs/squashfs/cache.c. s_dev lies behind the list head of struct super_block.
trace_metadata() {
  probe="p:bootpress/metadata squashfs_read_metadata dev=+16(\$arg1):u32"
  probe="$probe block=+0(\$arg3):u64 offset=+0(\$arg4):s32 length=\$arg5:s32"
  if echo "$probe" > "$kept/tracing/kprobe_events"; then
    echo "dev == $number" > "$events/bootpress/metadata/filter"
    echo 1 > "$events/bootpress/metadata/enable"
  else
    say "this kernel takes no probe at squashfs_read_metadata: metadata is not traced"
  fi
}

attach_image() {
  wait_for_device
  mounted=$device
  if [ "$attach" = loop ]; then
    mounted=/dev/loop0
    losetup -r -o "$offset" "$mounted" "$device" || fail "cannot attach $device to $mounted"
  fi
}

mount_image() {
  mount -t squashfs -o ro "$mounted" "$image" \
    || fail "cannot mount the image on $device through $mounted"
}

mount_overlay() {
  mount -t tmpfs -o mode=0755 tmpfs "$overlay"
  mkdir "$overlay/upper" "$overlay/work"
  # The upper layer's root is what the new root looks like.
  chmod "$(stat -c %a "$image")" "$overlay/upper"
  chown "$(stat -c %u:%g "$image")" "$overlay/upper"
  mount -t overlay -o "lowerdir=$image,upperdir=$overlay/upper,workdir=$overlay/work" \
    overlay "$new_root" || fail "cannot lay an overlay over the image"
}

# A unit that runs after $until and tells the host so.
install_end_signal() {
  if [ -z "$until" ] || [ -z "$signal_port" ]; then return; fi
  mkdir -p /run/bootpress "/run/systemd/system/$until.wants"
  cp /bin/busybox /run/bootpress/busybox
  # Without default dependencies nothing orders it before the target that wants it.
  cat > /run/systemd/system/bootpress-end.service << UNIT
[Unit]
Description=Tell the host that $until is reached
DefaultDependencies=no
After=$until
[Service]
Type=oneshot
ExecStart=/run/bootpress/busybox sh -c 'echo end > $signal_port'
UNIT
  ln -s ../bootpress-end.service "/run/systemd/system/$until.wants/"
}

leave_for_image() {
  for mount in proc sys dev run; do
    if [ ! -d "$new_root/$mount" ]; then fail "the image has no directory /$mount"; fi
  done
  # An absolute link leads out of the new root from here: that it is there has to do.
  if [ ! -e "$new_root$init" ] && [ ! -L "$new_root$init" ]; then fail "the image has no $init"; fi
  for mount in proc sys dev run; do
    mount -o move "/$mount" "$new_root/$mount"
  done
  exec switch_root "$new_root" "$init"
}
