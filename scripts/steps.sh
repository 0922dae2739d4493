# shellcheck shell=bash
# Named steps with a summary: source this, call `step NAME COMMAND…`, end with `summary`.
# A step that fails does not stop the others: one run shows everything that is wrong.

step_names=() step_results=() passed=0 failed=0

step() {
  local name=$1 started=$SECONDS
  shift
  printf '\n━━ %s\n' "$name"
  if "$@"; then
    passed=$((passed + 1)) step_results+=("ok      $((SECONDS - started)) s")
  else
    failed=$((failed + 1)) step_results+=("FAILED  $((SECONDS - started)) s")
  fi
  step_names+=("$name")
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
