# shellcheck shell=bash disable=SC2034
# Shared by lab/setup and lab/run: where things are, and how the lab complains.

lab=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(dirname "$lab")
cache=$repository/.lab
kernel=$cache/kernel

die() {
  echo "${0##*/}: $*" >&2
  exit 1
}
