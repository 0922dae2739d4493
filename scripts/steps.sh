# shellcheck shell=bash
# Named steps with a summary. Source this, then:
#
#   step NAME COMMAND…     runs a step now, alone
#   queue NAME COMMAND…    keeps a step that takes one processor
#   run_queue              runs the steps in the queue, as many at once as there are processors
#   summary                shows all steps, and ends with 1 when one failed
#
# A step that fails does not stop the others: one run shows everything that is wrong. A step that cannot run here
# calls `skip REASON` as its last command, and counts as skipped. One that leaves out a part of itself calls it and
# goes on. The summary shows both reasons. A script of its own appends the reason to the file that STEP_SKIPS
# names, and ends with 77.

step_names=() step_results=() passed=0 failed=0 skipped=0
queued_names=() queued_commands=()
step_folder=$(mktemp -d)
trap 'jobs -p | xargs --no-run-if-empty kill; rm -rf "$step_folder"' EXIT

# The exit status of a step that did not run.
readonly SKIPPED=77

# Says why the step, or a part of it, does not run here.
skip() {
  printf 'skipped: %s\n' "$1"
  printf '%s\n' "$1" >>"${STEP_SKIPS:-/dev/null}"
  return "$SKIPPED"
}

step() {
  local name=$1 started=$SECONDS
  shift
  export STEP_SKIPS=$step_folder/step
  printf '\n━━ %s\n' "$name"
  : >"$STEP_SKIPS"
  "$@"
  ended "$name" $? "$started" "$STEP_SKIPS"
}

queue() {
  queued_names+=("$1")
  shift
  queued_commands+=("$(printf '%q ' "$@")")
}

# What a step prints follows when it is done.
run_queue() {
  local next=0 running=0 pid status at
  local -A index=() started=()
  while [ "$next" -lt ${#queued_names[@]} ] || [ "$running" -gt 0 ]; do
    while [ "$next" -lt ${#queued_names[@]} ] && [ "$running" -lt "$(nproc)" ]; do
      : >"$step_folder/skips.$next"
      (
        export STEP_SKIPS=$step_folder/skips.$next
        eval "${queued_commands[$next]}"
      ) >"$step_folder/output.$next" 2>&1 </dev/null &
      index[$!]=$next started[$!]=$SECONDS
      next=$((next + 1)) running=$((running + 1))
    done
    wait -n -p pid
    status=$? at=${index[$pid]} running=$((running - 1))
    printf '\n━━ %s\n' "${queued_names[$at]}"
    cat "$step_folder/output.$at"
    rm -f "$step_folder/output.$at"
    ended "${queued_names[$at]}" "$status" "${started[$pid]}" "$step_folder/skips.$at"
  done
  queued_names=() queued_commands=()
}

# Notes how a step ended: NAME STATUS STARTED SKIPS
ended() {
  local seconds=$((SECONDS - $3)) reasons
  reasons=$(paste -sd ';' "$4")
  step_names+=("$1")
  case $2 in
    0) passed=$((passed + 1)) step_results+=("ok      $seconds s${reasons:+, but skipped: $reasons}") ;;
    "$SKIPPED") skipped=$((skipped + 1)) step_results+=("skipped: ${reasons:-it gives no reason}") ;;
    *) failed=$((failed + 1)) step_results+=("FAILED  $seconds s") ;;
  esac
}

summary() {
  printf '\n━━ summary after %s s\n' "$SECONDS"
  local i
  for i in "${!step_names[@]}"; do
    printf '  %-44s %s\n' "${step_names[$i]}" "${step_results[$i]}"
  done
  printf '%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
  [ "$failed" -eq 0 ]
}
