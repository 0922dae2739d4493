#!/usr/bin/env bash
# Nothing of lab/run stays, however it ends: no process, no mount, no temporary file.
set -uo pipefail
# shellcheck source=lab/tests/check.sh
source "$(dirname "$0")/check.sh"

hanging=$(guest hanging.sh <<'EOF'
echo started
sleep infinity
EOF
)

descendants() {
  local child
  for child in $(ps -o pid= --ppid "$1"); do
    echo "$child"
    descendants "$child"
  done
}

# Waits until the command succeeds; at most 90 s, ten times what the guest takes to start on an idle machine.
eventually() {
  local deadline=$((SECONDS + 90))
  until "$@"; do
    [ $SECONDS -lt $deadline ] || return 1
    sleep 0.1
  done
}

started() {
  grep -q started "$work/stdout"
}

all_gone() {
  local pid
  for pid in "$@"; do
    [ ! -e "/proc/$pid" ] || return 1
  done
}

# Prints the directory that a run keeps open, and locked, for its temporary files.
temporary_directory() {
  readlink "/proc/$1/fd"/* | grep -m1 '/\.lab/runs/'
}

mounts=$(wc -l </proc/mounts)
for signal in INT TERM KILL; do
  : >"$work/stdout"
  # Job control is on, because a shell without it starts its background jobs deaf to SIGINT.
  set -m
  "$lab/run" --limit 120 --out "$work/out" "$hanging" >"$work/stdout" 2>"$work/stderr" &
  run=$!
  set +m
  check "SIG$signal: the guest is up" eventually started
  mapfile -t processes < <(descendants "$run")
  temporary=$(temporary_directory "$run")
  check "SIG$signal: there are processes to leave behind" test ${#processes[@]} -ge 3
  check "SIG$signal: there are files to leave behind" test -d "$temporary"
  kill -s "$signal" "$run"
  wait "$run" 2>/dev/null
  check "SIG$signal: no process is left" eventually all_gone "$run" "${processes[@]}"
  if [ "$signal" = KILL ]; then
    # Only the next run can clean up after SIGKILL.
    "$lab/run" --out "$work/out" "$(guest nothing.sh <<<true)"
  fi
  check "SIG$signal: no temporary file is left" test ! -e "$temporary"
done
check "no mount is left" test "$(wc -l </proc/mounts)" -eq "$mounts"
finish
