# shellcheck shell=bash disable=SC2034
# Parts that lab/setup and lab/run share: paths and error messages.

lab=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(dirname "$lab")
cache=$repository/.lab
# Another series than the default measures differently, and must be requested: lab/run --kernel.
series=6.1

# Sets the directory of a series' kernel.
choose_series() {
  series=$1
  case $series in
    6.1) kernel=$cache/kernel ;;
    6.12) kernel=$cache/kernel-$series ;;
    *) die "there is no kernel $series for the lab; there are 6.1 and 6.12" ;;
  esac
}
choose_series "$series"

die() {
  echo "${0##*/}: $*" >&2
  exit 1
}
