# shellcheck shell=bash
# Named steps with progress and a summary. Source this, then:
#
#   step NAME COMMAND…     adds a step that runs alone
#   queue NAME COMMAND…    adds a step that takes one processor; queued steps run side by side
#   need_disk GIB          ends the script here if the disk has no room for what it builds
#   run_steps              runs all steps, shows the summary, and returns 1 when a step failed
#
# A step that fails does not stop the others: one run shows all failures. A step that cannot run here calls
# `skip REASON` as its last command, and counts as skipped. A step that leaves out a part of itself calls it
# and goes on. The summary shows both reasons. A script of its own appends the reason to the file that
# STEP_SKIPS names, and ends with 77. A test that failed once and then passed is flaky: its name goes to the
# file that STEP_FLAKY names.
#
# The summary ends with the last lines of each failed step, because often only the tail of a log is kept.

names=() commands=() alone=() results=() failures=() flaky=()
passed=0 failed=0 skipped=0
step_folder=$(mktemp -d)
trap 'jobs -p | xargs --no-run-if-empty kill; rm -rf "$step_folder"' EXIT

# The exit status of a step that did not run.
readonly SKIPPED=77
# The lines about failed steps at the very end, all together.
readonly FAILURE_LINES=16

# Says why the step, or a part of it, does not run here.
skip() {
  printf 'skipped: %s\n' "$1"
  printf '%s\n' "$1" >>"${STEP_SKIPS:-/dev/null}"
  return "$SKIPPED"
}

# need_disk GIB: ends the script if the disk has no room for what it builds. What is built already counts.
need_disk() {
  local built free
  mkdir -p target
  built=$(du --summarize --block-size=1G target | cut -f 1)
  free=$(df --output=avail --block-size=1G target | tail -n 1)
  [ $((built + free)) -ge "$1" ] || {
    printf '%s has %d GiB free, and %d are needed for the build: make room there\n' \
      "$PWD/target" "$free" $(($1 - built)) >&2
    exit 1
  }
}

step() { add yes "$@"; }

queue() { add no "$@"; }

# add ALONE NAME COMMAND…
add() {
  alone+=("$1") names+=("$2")
  shift 2
  commands+=("$(printf '%q ' "$@")")
}

run_steps() {
  local next=0
  while [ "$next" -lt ${#names[@]} ]; do
    if [ "${alone[$next]}" = yes ]; then run_alone; else run_queue; fi
  done
  summary
}

title() {
  printf '\n━━ %s of %s: %s%s\n' "$(($1 + 1))" ${#names[@]} "${names[$1]}" "${2:+ ($2)}"
}

# Runs the step `next`.
run_alone() {
  local at=$next started=$SECONDS status
  next=$((next + 1))
  title "$at"
  perform "$at" 2>&1 | tee "$step_folder/output.$at"
  status=${PIPESTATUS[0]}
  ended "$at" "$status" $((SECONDS - started))
}

# Runs the queued steps from `next` on, as many at once as there are processors. The output of a step follows
# its end.
run_queue() {
  local running=0 pid status at
  local -A index=() started=()
  while { [ "$next" -lt ${#names[@]} ] && [ "${alone[$next]}" = no ]; } || [ "$running" -gt 0 ]; do
    while [ "$next" -lt ${#names[@]} ] && [ "${alone[$next]}" = no ] && [ "$running" -lt "$(nproc)" ]; do
      title "$next" started
      perform "$next" >"$step_folder/output.$next" 2>&1 </dev/null &
      index[$!]=$next started[$!]=$SECONDS
      next=$((next + 1)) running=$((running + 1))
    done
    wait -n -p pid
    status=$? at=${index[$pid]} running=$((running - 1))
    ended "$at" "$status" $((SECONDS - started[$pid]))
    title "$at" "${results[$at]}"
    cat "$step_folder/output.$at"
  done
}

perform() {
  : >"$step_folder/skips.$1"
  : >"$step_folder/flaky.$1"
  STEP_SKIPS=$step_folder/skips.$1 STEP_FLAKY=$step_folder/flaky.$1
  export STEP_SKIPS STEP_FLAKY
  eval "${commands[$1]}"
}

# Notes the end of a step: NUMBER STATUS SECONDS
ended() {
  local reasons test
  reasons=$(paste -sd ';' "$step_folder/skips.$1")
  while read -r test; do flaky+=("$test"); done <"$step_folder/flaky.$1"
  case $2 in
    0) passed=$((passed + 1)) results[$1]="ok      $3 s${reasons:+, but skipped: $reasons}" ;;
    "$SKIPPED") skipped=$((skipped + 1)) results[$1]="skipped: ${reasons:-no reason given}" ;;
    *) failed=$((failed + 1)) results[$1]="FAILED  $3 s" failures+=("$1") ;;
  esac
}

summary() {
  printf '\n━━ summary after %s s\n' "$SECONDS"
  local at lines
  for at in "${!names[@]}"; do
    printf '  %-44s %s\n' "${names[$at]}" "${results[$at]}"
  done
  if [ "$failed" -gt 0 ]; then
    lines=$((FAILURE_LINES / failed - 1))
    for at in "${failures[@]}"; do
      printf '━━ FAILED: %s\n' "${names[$at]}"
      [ "$lines" -lt 1 ] \
        || grep -v '^[[:space:]]*$' "$step_folder/output.$at" | tail -n "$lines" | cut -c 1-200
    done
  fi
  [ ${#flaky[@]} -eq 0 ] || printf '━━ flaky: %s\n' "${flaky[@]}"
  printf '%s passed, %s failed, %s skipped, %s flaky tests\n' "$passed" "$failed" "$skipped" ${#flaky[@]}
  [ "$failed" -eq 0 ]
}
