# shellcheck shell=bash Named steps with a summary: source this, call `step NAME COMMAND…`, or `beside` for
# one that runs beside the next step; end with `summary`. A step that fails does not stop the others: one run
# shows everything that is wrong. A step that cannot run here calls `skip REASON` as its last command, and
# counts as skipped. One that leaves out a part of itself calls it and goes on. The summary shows both
# reasons. A script of its own appends the reason to the file that STEP_SKIPS names, and ends with 77.

step_names=() step_results=() passed=0 failed=0 skipped=0
beside_name='' beside_output='' beside_pid='' beside_started=0
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
  ended "$name" $? "$started"
  if [ -n "$beside_name" ]; then
    wait "$beside_pid"
    local status=$?
    printf '\n━━ %s\n' "$beside_name"
    cat "$beside_output"
    rm -f "$beside_output"
    STEP_SKIPS=$step_folder/beside
    ended "$beside_name" "$status" "$beside_started"
    beside_name=''
  fi
}

# A step that runs beside the next one, for such as keep one processor busy. What it prints follows when both
# are done.
beside() {
  export STEP_SKIPS=$step_folder/beside
  beside_name=$1 beside_output=$(mktemp) beside_started=$SECONDS
  shift
  : >"$STEP_SKIPS"
  "$@" >"$beside_output" 2>&1 &
  beside_pid=$!
}

ended() {
  local seconds=$((SECONDS - $3)) reasons
  reasons=$(paste -sd ';' "$STEP_SKIPS")
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
