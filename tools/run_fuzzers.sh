#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Runs every fuzz target of tests/fuzz for a while.
#   tools/run_fuzzers.sh BUILD_DIRECTORY SECONDS_PER_TARGET
# Seeds: tests/fuzz/corpus/<target without _fuzz>/ (committed). Finds: BUILD_DIRECTORY/corpus/<target>/ and, for
# a crash, BUILD_DIRECTORY/crash-*; a crash fails the run.
set -euo pipefail
build=$1 seconds=$2

ran=0
for source in tests/fuzz/*.cpp; do
  target=$(basename "$source" .cpp)
  seeds=tests/fuzz/corpus/${target%_fuzz}
  found=$build/corpus/$target
  mkdir -p "$found"
  corpora=("$found")
  if [ -d "$seeds" ]; then
    corpora+=("$seeds")
  fi
  echo "fuzzing $target for $seconds s"
  "$build/$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
    -print_final_stats=1 -verbosity=0 -artifact_prefix="$build/" "${corpora[@]}"
  ran=$((ran + 1))
done
if [ "$ran" = 0 ]; then
  echo "run_fuzzers.sh: no targets in tests/fuzz" >&2
  exit 1
fi
