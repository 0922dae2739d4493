# shellcheck shell=bash disable=SC2034
# What the lab's tests share. A test ends with the number of its failed checks as its status.

lab=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# check WHAT COMMAND…: one line on the result, and a failure counted.
check() {
  local what=$1
  shift
  if "$@"; then
    echo "  ok      $what"
  else
    echo "  FAILED  $what"
    failures=$((failures + 1))
  fi
}

finish() {
  exit "$((failures > 0))"
}

# guest NAME: a script for the guest, from stdin.
guest() {
  cat >"$work/$1"
  echo "$work/$1"
}

# jq_true EXPRESSION: arithmetic that the shell lacks.
jq_true() {
  jq -ne "$1" >/dev/null
}
