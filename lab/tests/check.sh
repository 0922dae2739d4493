# shellcheck shell=bash disable=SC2034
# Parts that the lab's tests share. A test ends with status 1 if a check failed.

lab=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# check WHAT COMMAND…: prints one line on the result, and counts a failure.
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

# guest NAME: saves a script for the guest from stdin, and prints its path.
guest() {
  cat >"$work/$1"
  echo "$work/$1"
}

# jq_true EXPRESSION: arithmetic that the shell lacks.
jq_true() {
  jq -ne "$1" >/dev/null
}
