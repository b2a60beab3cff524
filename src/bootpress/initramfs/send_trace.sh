#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Waits for the host's word, then sends what the kernel recorded. It runs in the initramfs' root,
# where switch_root leaves nothing but this directory.
#   send_trace.sh DIRECTORY 0<> PORT 1>&0
PATH=$1
tracing=$1/tracing

read -r _
busybox echo "bootpress end" > "$tracing/trace_marker"
echo 0 > "$tracing/tracing_on"
busybox cat "$tracing/trace"
# What was lost ("event hits misses" for the probe), and that this is all.
if [ -e "$tracing/kprobe_profile" ]; then
  busybox sed 's/^/# probe /' "$tracing/kprobe_profile"
fi
for cpu in "$tracing"/per_cpu/cpu*; do
  busybox sed -n "s/^\(overrun\|commit overrun\|dropped events\): /# lost \1 /p" "$cpu/stats"
done
echo "# bootpress end"
