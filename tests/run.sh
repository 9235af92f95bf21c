#!/usr/bin/env bash
# Installs, builds and runs every test. The last line is `N passed, N failed, N skipped`; the exit
# status is not zero if anything failed, a build included.
#
# usage: run.sh [--full] [--only PART[,PART]] [--no-install]
#   --full         whole equality matrices, long fuzzing and chaos too (hours)
#   --only PART    for developers: tidy, release, dev, tsan or fuzz
#
#   tidy      how the sources read
#   release   every test, as users build it; every header compiles alone
#   dev       unit tests and a cluster with many streams, under AddressSanitizer and
#             UndefinedBehaviorSanitizer
#   tsan      what threads share, under ThreadSanitizer
#   fuzz      hostile files, templates and messages, some seconds each; with --full ten minutes
#
# A fresh Debian 12 as root needs nothing beforehand; elsewhere the packages that
# deploy/install_packages.sh --tests lists must be there.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
results=$root/build/results
full=false
install=true
parts=tidy,release,dev,tsan,fuzz
fuzz_seconds=5  # each target
passed=0
failed=0
skipped=0

# Tests that the sanitizers repeat. What links gRPC takes as long to build as all the rest: one
# test of a cluster runs its code.
dev_tests=(-L '^unit$' -L '^no_grpc$')
dev_cluster_programs=(bin/cairn-coordinator bin/cairn-worker tests/stream_load)
dev_cluster_test='^streams_test$'
# State that threads share, and the state machines that one of them owns.
tsan_tests='^(bounded_queue|secret|context|engine|scheduler_walk|block_pool|stats_cell'
tsan_tests+='|(shm_|tcp_)?collective|text_workers)_test$'

say() { printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }

finish() {
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ]
  exit
}

fail() {
  echo "FAILED: $1"
  failed=$((failed + 1))
}

wants() { [[ ",$parts," == *",$1,"* ]]; }

# configure PRESET: into build/PRESET, with ccache where there is one.
configure() {
  local launcher=()
  ! command -v ccache >/dev/null || launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  cmake --preset "$1" -DCAIRN_TESTS=ON -DCAIRN_PRECOMPILED_TESTS=ON "${launcher[@]}" \
    >"$results/$1.cmake.log" 2>&1 && return
  tail -n 20 "$results/$1.cmake.log"
  fail "configuring $1"
  return 1
}

# build PRESET TARGET...
build() {
  local preset=$1
  shift
  NINJA_STATUS='[%f/%t, %e s] ' ninja -C "build/$preset" "$@" >"$results/$preset.build.log" 2>&1 &&
    return
  grep -E 'error|FAILED' "$results/$preset.build.log" | head -n 20
  fail "building $preset, see $results/$preset.build.log"
  return 1
}

# run_tests PRESET CTEST_ARGUMENT...: runs and adds to the sums.
run_tests() {
  local preset=$1 counts
  shift
  local xml=$results/$preset.xml
  rm -rf "$xml" "$xml.junit"
  mkdir -p "$xml"
  GTEST_OUTPUT="xml:$xml/" ctest --test-dir "build/$preset" --output-on-failure \
    --output-junit "$xml.junit" "$@"
  if ! counts=$(python3 tests/count_results.py "$xml.junit" "$xml"); then
    fail "no results of $preset"
    return
  fi
  read -r p f s <<<"$counts"
  echo "$preset: $p passed, $f failed, $s skipped"
  passed=$((passed + p))
  failed=$((failed + f))
  skipped=$((skipped + s))
}

# The tests that ctest would run and that are programs: each is named like its target.
test_programs() {
  local preset=$1
  shift
  comm -12 \
    <(ctest --test-dir "build/$preset" -N "$@" 2>/dev/null |
      sed -n 's/^ *Test *#[0-9]*: //p' | sort) \
    <(ninja -C "build/$preset" -t targets all |
      sed -n 's,^tests/\([a-z0-9_]*\): .*,\1,p' | sort)
}

tidy() {
  say "tidy"
  python3 tests/tidy_test.py --longest 5 && passed=$((passed + 1)) || fail tidy
}

release() {
  say "release: building"
  configure release || return
  build release all benchmarks all_verify_interface_header_sets || return
  passed=$((passed + 1))
  say "release: testing"
  # Tests that start processes or time things run alone, after the others.
  run_tests release -j "$(nproc)" -LE '^(cluster|faults|full)$'
  run_tests release -L '^(cluster|faults)$'
  if $full; then
    say "release: the full matrices"
    run_tests release -L '^full$'
  fi
}

# fuzz_one TARGET SEEDS: for fuzz_seconds, from what the tests read of its kind on.
fuzz_one() {
  local corpus=$results/corpus/$1
  mkdir -p "$corpus"
  "build/fuzz/fuzz/$1" -max_total_time="$fuzz_seconds" -rss_limit_mb=4096 \
    -artifact_prefix="$results/$1." "$corpus" ${2:+"tests/golden/$2"} >"$results/$1.log" 2>&1
}

# Every fuzz target for a while, as many at a time as there are processors.
fuzz() {
  local targets=(gguf_fuzz safetensors_fuzz tokenizer_json_fuzz tokenizer_model_fuzz jinja_fuzz
    wire_fuzz)
  local seeds=(models models tokenizers/small tokenizers/small templates '') i jobs=()
  say "fuzzing: building"
  deploy/install_packages.sh --tests --fuzz &&
    cmake -G Ninja -B build/fuzz -DCAIRN_FUZZ=ON -DCAIRN_TESTS=ON -DCMAKE_C_COMPILER=clang-14 \
      -DCMAKE_CXX_COMPILER=clang++-14 >"$results/fuzz.cmake.log" 2>&1 &&
    ninja -C build/fuzz fuzz_targets >"$results/fuzz.build.log" 2>&1
  if [ $? -ne 0 ]; then
    fail "building the fuzz targets, see $results/fuzz.*.log"
    return
  fi
  say "fuzzing: ${#targets[@]} targets for $fuzz_seconds s each"
  for i in "${!targets[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do sleep 0.2; done
    fuzz_one "${targets[i]}" "${seeds[i]}" &
    jobs+=($!)
  done
  for i in "${!targets[@]}"; do
    if wait "${jobs[i]}"; then
      echo "${targets[i]}: $(tail -n 1 "$results/${targets[i]}.log")"
      passed=$((passed + 1))
    else
      tail -n 20 "$results/${targets[i]}.log"
      fail "${targets[i]}, see $results/${targets[i]}.*"
    fi
  done
}

# sanitized PRESET CTEST_SELECTION...: builds and runs the programs that it selects.
sanitized() {
  local preset=$1 programs
  shift
  say "$preset: building"
  configure "$preset" || return
  mapfile -t programs < <(test_programs "$preset" "$@")
  if [ ${#programs[@]} -eq 0 ]; then
    fail "$preset selects no test"
    return
  fi
  build "$preset" "${programs[@]/#/tests/}" || return
  say "$preset: testing"
  run_tests "$preset" -j "$(nproc)" -R "^($(IFS='|'; echo "${programs[*]}"))$"
}

dev() {
  sanitized dev "${dev_tests[@]}"
  say "dev: building a cluster"
  # The client only asks and looks: that of release does, if it is there.
  local programs=("${dev_cluster_programs[@]}") client=$root/build/release/bin/cairn
  if ! wants release; then
    programs+=(bin/cairn)
    client=$root/build/dev/bin/cairn
  fi
  build dev "${programs[@]}" || return
  say "dev: testing a cluster"
  CAIRN_CLIENT=$client CAIRN_STREAM_SECONDS=60 CAIRN_TEST_PATIENCE=4 \
    run_tests dev -R "$dev_cluster_test"
}

while [ $# -gt 0 ]; do
  case $1 in
    --full) full=true; fuzz_seconds=600; shift ;;
    --only) parts=${2:?--only needs tidy, release, dev, tsan or fuzz}; shift 2 ;;
    --no-install) install=false; shift ;;
    *) sed -n '2,18s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
done
mkdir -p "$results"

if $install; then
  say "packages"
  if ! deploy/install_packages.sh --tests; then
    fail "packages are missing"
    finish
  fi
fi
say "the model of the tests"
python3 deploy/get_model.py || fail "getting the model"
say "the vocabularies of the tests"
python3 tests/get_tokenizers.py || echo "some are missing: their tests are skipped"
# Without these ccache does not keep what uses a precompiled header.
export CCACHE_SLOPPINESS=pch_defines,time_macros
# What the sanitizers know to be the libraries' own.
export LSAN_OPTIONS="suppressions=$root/tests/lsan.supp:print_suppressions=0"
export TSAN_OPTIONS="suppressions=$root/tests/tsan.supp:ignore_noninstrumented_modules=1"
! wants tidy || tidy
! wants release || release
! wants dev || dev
! wants tsan || sanitized tsan -R "$tsan_tests"
! wants fuzz || fuzz
say "done"
finish
