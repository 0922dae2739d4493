# shellcheck shell=bash
# Named steps with a summary: source this, call `step NAME COMMAND…`, or `beside` for one that runs
# beside the next step; end with `summary`.
# A step that fails does not stop the others: one run shows everything that is wrong.

step_names=() step_results=() passed=0 failed=0
beside_name='' beside_output='' beside_pid='' beside_started=0
trap 'jobs -p | xargs --no-run-if-empty kill' EXIT

step() {
  local name=$1 started=$SECONDS
  shift
  printf '\n━━ %s\n' "$name"
  "$@"
  ended "$name" $? "$started"
  if [ -n "$beside_name" ]; then
    wait "$beside_pid"
    local status=$?
    printf '\n━━ %s\n' "$beside_name"
    cat "$beside_output"
    rm -f "$beside_output"
    ended "$beside_name" "$status" "$beside_started"
    beside_name=''
  fi
}

# A step that runs beside the next one, for such as keep one processor busy. What it prints follows when both are done.
beside() {
  beside_name=$1 beside_output=$(mktemp) beside_started=$SECONDS
  shift
  "$@" >"$beside_output" 2>&1 &
  beside_pid=$!
}

ended() {
  local seconds=$((SECONDS - $3))
  step_names+=("$1")
  if [ "$2" -eq 0 ]; then
    passed=$((passed + 1)) step_results+=("ok      $seconds s")
  else
    failed=$((failed + 1)) step_results+=("FAILED  $seconds s")
  fi
}

summary() {
  printf '\n━━ summary after %s s\n' "$SECONDS"
  local i
  for i in "${!step_names[@]}"; do
    printf '  %-44s %s\n' "${step_names[$i]}" "${step_results[$i]}"
  done
  printf '%s passed, %s failed\n' "$passed" "$failed"
  [ "$failed" -eq 0 ]
}
