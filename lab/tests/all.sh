#!/usr/bin/env bash
# Tests the lab itself, in about a minute and a half.
set -uo pipefail
tests=$(dirname "$0")
failed=0
for test in contract no-leftovers virtual-clock sealed; do
  echo "$test"
  "$tests/$test.sh" || failed=1
done
exit "$failed"
