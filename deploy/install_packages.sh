#!/usr/bin/env bash
# Installs the Debian 12 packages that building needs; with --tests also what the tests need.
# usage: install_packages.sh [--tests] [--fuzz] [--check]
#   --fuzz    what the fuzz targets need
#   --check   install nothing: exit 1 with one line if something is missing
# Packages that are present are left alone, so a second run takes no time.
set -euo pipefail

build_packages=(
  g++ cmake ninja-build pkg-config python3 python3-pip
  libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler
  libabsl-dev libssl-dev libpcre2-dev libutf8proc-dev nlohmann-json3-dev
)
test_packages=(libgtest-dev libgmock-dev ccache git iproute2 procps)
fuzz_packages=(clang-14 libclang-rt-14-dev)

wanted=("${build_packages[@]}")
check_only=false
for argument; do
  case $argument in
    --tests) wanted+=("${test_packages[@]}") ;;
    --fuzz) wanted+=("${fuzz_packages[@]}") ;;
    --check) check_only=true ;;
    *) sed -n '2,6s/^# //p' "$0" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null; then
  echo "install_packages.sh: this is not Debian; needed are: ${wanted[*]}" >&2
  exit 1
fi
missing=()
installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${wanted[@]}" 2>/dev/null || true)
for package in "${wanted[@]}"; do
  grep -qxF "$package installed" <<<"$installed" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if $check_only || [ "$(id -u)" -ne 0 ]; then
  echo "packages are missing; as root run: apt-get install ${missing[*]}" >&2
  exit 1
fi
echo "installing ${#missing[@]} packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
{ apt-get update -qq && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 &
installer=$!
# What apt-get is at, often on a terminal and now and then in a log.
if [ -t 1 ]; then interval_s=1; begin='\r\033[K'; end=''; else interval_s=20; begin=''; end='\n'; fi
while kill -0 "$installer" 2>/dev/null; do
  sleep "$interval_s" &
  wait -n "$installer" $! || true
  printf "$begin%.78s$end" "$(tail -n 1 "$log" | tr -d '\r%')"
done
printf "$begin"
if ! wait "$installer"; then
  tail -n 20 "$log" >&2
  echo "install_packages.sh: apt-get failed, see above" >&2
  exit 1
fi
