#!/usr/bin/env bash
# From a fresh Debian 12 to a streamed answer: installs what is missing, builds the programs, gets a
# small model, starts a local cluster of two tensor-parallel workers and asks it a question.
#
# usage: quickstart.sh [--question TEXT] [--port N] [--no-install] [--stop]
#   --question TEXT   what to ask (default: Why is the sky blue?)
#   --port N          where the coordinator listens, on loopback (default: 7070)
#   --no-install      install no packages, even as root
#   --stop            stop the cluster that an earlier call left running
#
# Everything that is done already is skipped: a second call answers in seconds.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/release
cairn=$build/bin/cairn
state=${XDG_STATE_HOME:-$HOME/.local/state}/cairn/quickstart
log=$state/serve.log
pid_file=$state/serve.pid
question="Why is the sky blue?"
port=7070
install=true
stop=false
start_limit_s=180
stop_limit_s=30

say() { printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }
die() { echo "quickstart.sh: $1" >&2; exit 1; }

parse_arguments() {
  while [ $# -gt 0 ]; do
    case $1 in
      --question) question=${2:?--question needs a text}; shift 2 ;;
      --port) port=${2:?--port needs a number}; shift 2 ;;
      --no-install) install=false; shift ;;
      --stop) stop=true; shift ;;
      -h|--help) sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
      *) die "unknown argument: $1 (--help shows them)" ;;
    esac
  done
  [[ $port =~ ^[0-9]{1,5}$ && $port -ge 1 && $port -le 65535 ]] ||
    die "--port must be 1..65535: $port"
}

# The id of the cluster we started, if it still runs. A recycled id is not ours.
running_pid() {
  local pid
  pid=$(cat "$pid_file" 2>/dev/null) || return 1
  [[ $pid =~ ^[0-9]+$ && -r /proc/$pid/cmdline ]] || return 1
  tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q 'cairn serve' && echo "$pid"
}

stop_cluster() {
  local pid waited=0
  if ! pid=$(running_pid); then
    rm -f "$pid_file"
    echo "nothing is running"
    return
  fi
  kill -TERM "$pid"
  while kill -0 "$pid" 2>/dev/null; do
    [ "$waited" -lt "$stop_limit_s" ] || die "process $pid does not end; see $log"
    sleep 1
    waited=$((waited + 1))
  done
  rm -f "$pid_file"
  echo "stopped"
}

install_packages() {
  say "packages"
  if $install; then
    "$root/deploy/install_packages.sh"
  else
    "$root/deploy/install_packages.sh" --check || true
  fi
}

build_programs() {
  say "building the programs; minutes the first time, nothing when all is built"
  if [ ! -f "$build/build.ninja" ]; then
    local launcher=()
    ! command -v ccache >/dev/null || launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    (cd "$root" && cmake --preset release -DCAIRN_TESTS=OFF "${launcher[@]}") >"$state/cmake.log" \
      2>&1 || { tail -n 20 "$state/cmake.log" >&2; die "cmake failed, see $state/cmake.log"; }
  fi
  NINJA_STATUS='[%f/%t, %e s] ' ninja -C "$build" bin/cairn bin/cairn-coordinator bin/cairn-worker
}

get_model() {
  say "the model SmolLM2-135M-Instruct (98 MB, downloaded once)"
  model=$(python3 "$root/deploy/get_model.py")
  echo "$model"
}

serving() { "$cairn" status --endpoint "127.0.0.1:$port" --wait "$1" >/dev/null 2>&1; }

start_cluster() {
  local pid waited=0
  if pid=$(running_pid) && serving 1; then
    say "the cluster of an earlier call still serves (process $pid)"
    return
  fi
  [ -z "${pid:-}" ] || stop_cluster
  ! "$cairn" status --endpoint "127.0.0.1:$port" >/dev/null 2>&1 ||
    die "another cluster listens on port $port: choose one with --port"
  say "starting a coordinator and two workers, each with half of the model"
  setsid "$cairn" serve --model "$model" --tp 2 --port "$port" --state-dir "$state" \
    >"$log" 2>&1 </dev/null &
  pid=$!
  echo "$pid" >"$pid_file"
  until serving 1; do
    kill -0 "$pid" 2>/dev/null || { tail -n 20 "$log" >&2; die "serve ended, see $log"; }
    [ "$waited" -lt "$start_limit_s" ] || { tail -n 20 "$log" >&2; die "not serving, see $log"; }
    printf '\rloading, %d s ' "$waited"
    sleep 1
    waited=$((waited + 1))
  done
  printf '\rserving on 127.0.0.1:%s\n' "$port"
}

ask() {
  say "$question"
  "$cairn" chat --endpoint "127.0.0.1:$port" "$question"
}

say_what_next() {
  cat <<END

== done in $SECONDS s; the cluster goes on running. Try:
  $cairn chat --endpoint 127.0.0.1:$port        talk to it
  $cairn status --endpoint 127.0.0.1:$port      who serves what
  $cairn --help                                 everything else
  $root/deploy/quickstart.sh --stop             stop it
END
}

parse_arguments "$@"
mkdir -p "$state"
if $stop; then
  stop_cluster
  exit 0
fi
install_packages
build_programs
get_model
start_cluster
ask
say_what_next
