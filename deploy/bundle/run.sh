#!/usr/bin/env bash
# Runs Sluice from its bundle. Without arguments, it lists the commands.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

help() {
  cat <<'T'
run.sh test                tests that need a GPU: exit 0 all passed, 1 one failed, 3 skipped where there is no GPU
run.sh bench [FLAGS]       examples a second of a step and of a job on GPU 0 next to the GPU's floor, unique keys of a batch on the CPU
                           and on GPU 0; rows also in gpu.json
run.sh demo [FLAGS]        makes data in ./sluice-demo (DEMO_EXAMPLES lines, default 2000000) and trains the standard
                           model on it; FLAGS are of sluice launch, default --device=auto --worker_num=1
run.sh PROGRAM [ARGS]      a program of the bundle, or of PATH, with the bundle's libraries
    run.sh demo --gpus=0 --batch_size=16384 --epochs=3
    run.sh sluice launch --help
    run.sh compute-sanitizer --tool memcheck tests/cuda_kernels_test
Needs Linux on x86-64 with glibc 2.34 (2.36, or a C++ runtime of GCC 12, with it); for GPUs the driver, and cuBLAS of the
toolkit in LD_LIBRARY_PATH or /usr/local/cuda. Programs: bin/, tests/; jobs: configs/.
T
}

# The bundle's libraries before the host's. Its C++ runtime needs glibc 2.36: with an older one, the host's.
use_libraries() {
  local libraries=$here/lib others=${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} error
  export LD_LIBRARY_PATH=$libraries:$libraries/gcc$others
  "$here/bin/sluice" --version >/dev/null 2>&1 && return
  export LD_LIBRARY_PATH=$libraries$others
  error=$("$here/bin/sluice" --version 2>&1 >/dev/null) && return
  echo "run.sh: this host's C or C++ library is too old for Sluice:" >&2
  echo "$error" >&2
  exit 1
}

run_tests() {
  local failed=0 skipped=0 test log
  log=$(mktemp)
  for test in "$here"/tests/*; do
    echo "== $(basename "$test")"
    "$test" 2>&1 | tee "$log" || failed=1
    ! grep -q '^\[  SKIPPED \]' "$log" || skipped=1
  done
  rm -f "$log"
  [ $failed -eq 0 ] || { echo "run.sh test: FAILED"; return 1; }
  [ $skipped -eq 0 ] || { echo "run.sh test: nothing failed, but tests were skipped (reasons above)"; return 3; }
  echo "run.sh test: all passed"
}

run_demo() {
  local data=$PWD/sluice-demo/data examples=${DEMO_EXAMPLES:-2000000}
  [ $# -gt 0 ] || set -- --device=auto --worker_num=1
  # Written under a temporary name, then renamed, so that the folder is always complete.
  if [ ! -d "$data.$examples" ]; then
    rm -rf "$data.part"
    mkdir -p "$data.part"
    "$here/bin/sluice" data gen --examples="$examples" --files=4 --output="$data.part/train"
    "$here/bin/sluice" data gen --examples=$((examples / 10)) --skip="$examples" --output="$data.part/test.tsv"
    mv "$data.part" "$data.$examples"
  fi
  "$here/bin/sluice" launch --job="$here/configs/criteo_wide_deep.textproto" \
    --set data.train_files="$data.$examples/train/*.tsv" --set data.eval_files="$data.$examples/test.tsv" \
    --output_dir="$PWD/sluice-demo/output" --log_dir="$PWD/sluice-demo/log" --server_num=2 "$@"
}

command=${1:-help}
[ $# -eq 0 ] || shift
case $command in
  help|--help|-h) help; exit 0 ;;
esac
use_libraries
case $command in
  test) run_tests ;;
  bench) "$here/bin/sluice-bench" --filter='/gpu/|^dedup/' --json=gpu.json "$@" ;;
  demo) run_demo "$@" ;;
  *)
    [ ! -x "$here/bin/$command" ] || command=$here/bin/$command
    exec "$command" "$@"
    ;;
esac
