#!/bin/bash
# pin COMMAND-OR-FILE…: takes programs, with the libraries they load, into memory before a measurement.
#
# The machine's files arrive over 9p, and guest time leaps while the guest waits for them. A change of
# attributes makes the overlay copy a file up to its tmpfs, where it stays. (Opening it for writing would do
# the same, but fails while it runs.)
set -euo pipefail
files=()
for name in "$@"; do
  file=$(type -P "$name") || file=$(realpath -e "$name")
  files+=("$file")
done
# Does the work of ldd without its hundred processes: this is an emulated machine.
mapfile -t libraries < <(
  for file in "${files[@]}"; do
    LD_TRACE_LOADED_OBJECTS=1 /lib64/ld-linux-x86-64.so.2 "$file" 2>/dev/null
  done | grep -o '/[^ ]*' | sort -u
)
touch -c -- "${files[@]}" "${libraries[@]}"
cat -- "${files[@]}" "${libraries[@]}" >/dev/null
